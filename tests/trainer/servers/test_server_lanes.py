"""Sessions of one client in several lanes, at a server: updates in the order of their numbers, however they arrive."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.frames import framed
from tests.support.processes import PATIENCE_SECS
from tests.trainer.servers.requests import (
    apply_to,
    engine_alone,
    expected_rows,
    fetch,
    held,
    open_tables,
    random_update,
    update,
)
from tests.trainer.servers.test_row_server import SHORT_SECS, is_waiting, server_of, state_of
from tests.trainer.servers.test_service import answer, connected, greeting, request, running, wait_until
from tests.trainer.tables.table_states import assert_same
from trainer.errors import AttemptOver, OtherUpdate
from trainer.servers.client_updates import Greeting, Mode
from trainer.servers.service import ServiceLimits
from trainer.servers.session_roles import SessionRole
from trainer.tables.routes.servers import row_messages as messages
from trainer.tables.routes.servers.frames import Header, Kind, write_document
from transforms.errors import InputError


def lanes_at(server, lanes: int, *, client: int = 0, clients: int = 1, mode: Mode = Mode.EACH, attempt: int = 0):
    """A session of a client in each lane."""
    made = [server.begin(Greeting("", client, clients, attempt, mode, lane=k, lanes=lanes)) for k in range(lanes)]
    for one in made:
        open_tables(server, one)
    return made


@settings(max_examples=scaled(20))
@given(st.integers(2, 4), st.permutations(range(4)))
def test_updates_are_made_in_the_order_of_their_numbers(lanes, order):
    """Each lane sends its own in order; lanes begin in any order."""
    server, alone = server_of(), engine_alone()
    sessions = lanes_at(server, lanes)
    with ThreadPoolExecutor(lanes) as pool:

        def run(lane):
            for number in range(1, 9):
                if number % lanes == lane:
                    update(server, sessions[lane], number, number)

        for one in [pool.submit(run, lane) for lane in order if lane < lanes]:
            one.result(timeout=PATIENCE_SECS)
    for number in range(1, 9):
        apply_to(alone, [random_update(number)])
    assert_same(state_of(server), alone.state())
    assert server.status().applied == (8,)


def test_an_update_waits_for_the_one_before_it_in_another_lane():
    server = server_of()
    first, second = lanes_at(server, 2)
    with ThreadPoolExecutor(2) as pool:
        later = pool.submit(update, server, second, 2, 2)
        assert is_waiting(later)
        assert server.status().applied == (0,)
        update(server, first, 1, 1)
        later.result(timeout=PATIENCE_SECS)
    assert server.status().applied == (2,)


def test_a_fetch_of_a_client_alone_waits_for_its_other_lanes():
    server, alone = server_of(), engine_alone()
    first, second = lanes_at(server, 2)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(fetch, server, second, floor=1)
        assert is_waiting(waiting)
        update(server, first, 1, 1)
        apply_to(alone, [random_update(1)])
        assert waiting.result(timeout=PATIENCE_SECS) == expected_rows(alone)
    assert server.wait_secs >= SHORT_SECS / 2
    assert server.staleness == {}, "no other client"


def test_an_update_whose_predecessor_does_not_come_is_one_error():
    server = server_of(patience_secs=SHORT_SECS)
    _, second = lanes_at(server, 2)
    with pytest.raises(AttemptOver, match="other lanes must come in time"):
        update(server, second, 2, 2)
    assert server.status().applied == (0,)


def test_a_client_with_one_lane_has_no_update_to_wait_for():
    server = server_of()
    (alone,) = lanes_at(server, 1)
    with pytest.raises(InputError, match="in order"):
        update(server, alone, 2, 2)


def test_a_newer_session_of_a_lane_ends_the_earlier_one_alone():
    """Also one that waits; its update is made once, by the newer session."""
    server = server_of()
    first, second = lanes_at(server, 2)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(update, server, second, 2, 2)
        assert is_waiting(waiting)
        again = server.begin(Greeting(lane=1, lanes=2))
        with pytest.raises(AttemptOver, match="newer session"):
            waiting.result(timeout=PATIENCE_SECS)
        open_tables(server, again)
        later = pool.submit(update, server, again, 2, 2)
        update(server, first, 1, 1)
        later.result(timeout=PATIENCE_SECS)
    with pytest.raises(OtherUpdate):
        update(server, again, 2, 3)
    update(server, again, 2, 2)
    assert server.status().applied == (2,)
    assert server.status().repeated_updates == 1


def test_sessions_of_another_number_of_lanes_end_all_of_a_client():
    server = server_of()
    sessions = lanes_at(server, 3)
    others = lanes_at(server, 2)
    for one in sessions:
        with pytest.raises(AttemptOver):
            fetch(server, one)
    for one in others:
        fetch(server, one)


def test_rows_are_loaded_beside_the_lanes():
    server = server_of()
    first, second = lanes_at(server, 2)
    loading = server.begin(Greeting(role=SessionRole.LOADS))
    fetch(server, loading)
    update(server, first, 1, 1)
    update(server, second, 2, 2)


@settings(max_examples=scaled(10))
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
def test_summed_updates_of_lanes_are_added_in_the_order_of_clients(first, second, third):
    """Three clients, with any numbers of lanes, that send in any order."""
    server, alone, steps = server_of(), engine_alone(), 6
    lanes = (first, second, third)
    sessions = [lanes_at(server, own, client=k, clients=3, mode=Mode.SUMMED) for k, own in enumerate(lanes)]
    with ThreadPoolExecutor(sum(lanes)) as pool:

        def run(client, lane):
            for number in range(1, steps + 1):
                if number % lanes[client] == lane:
                    update(server, sessions[client][lane], number, 100 * client + number)

        works = [pool.submit(run, client, lane) for client in range(3) for lane in range(lanes[client])]
        for one in works:
            one.result(timeout=PATIENCE_SECS)
    for number in range(1, steps + 1):
        apply_to(alone, [random_update(100 * client + number) for client in range(3)])
    assert_same(state_of(server), alone.state())
    assert server.status().applied == (steps,) * 3


def update_frame(number: int):
    one = random_update(number)
    parts = messages.write_gradients(one.numbers, one.rates, [one.values])
    return request(Kind.UPDATE, b"".join(map(bytes, parts)), number=number, flags=messages.LONG_ROWS)


def test_updates_that_wait_for_another_lane_take_no_memory():
    """The memory for messages is enough for one update: those of later numbers are with the server first."""
    longest = max(len(update_frame(number)[1]) for number in range(1, 5))
    opened = request(Kind.OPEN, write_document(held().to_document()))
    limits = ServiceLimits(most_bytes=1 << 20, message_bytes=longest, patience_secs=PATIENCE_SECS)
    with running(limits=limits) as server:
        streams = {}
        for lane in range(4):
            streams[lane] = connected(server, greeting(lane=lane, lanes=4), opened)
            for _ in range(2):
                assert answer(streams[lane]) is not None
        for number in (4, 3, 2):
            streams[number % 4].sendall(framed([update_frame(number)], first=2))
        assert server.rows.status().applied == (0,)
        wait_until(lambda: server.service._budget.used_bytes == 0)
        streams[1].sendall(framed([update_frame(1)], first=2))
        for one in streams.values():
            found = answer(one)
            assert found is not None
            assert found[0].kind == Kind.DONE
        assert server.rows.status().applied == (4,)
        for one in streams.values():
            one.close()


def test_a_service_that_ends_leaves_no_request_that_waits_for_another_lane():
    server = server_of()
    _, second = lanes_at(server, 2)
    ends = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.await_turn, second, Header(Kind.UPDATE, number=2), ends.is_set)
        assert is_waiting(waiting)
        ends.set()
        assert wait([waiting], timeout=PATIENCE_SECS).done
    wait_until(lambda: server.status().applied == (0,))
