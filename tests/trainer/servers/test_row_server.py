"""Sessions, updates of several clients, staleness and snapshots of a server without sockets."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.processes import PATIENCE_SECS
from tests.trainer.servers.requests import (
    DIMS,
    TABLES,
    all_rows,
    apply_to,
    ask,
    body_of,
    engine_alone,
    expected_rows,
    fetch,
    open_tables,
    random_update,
    update,
)
from tests.trainer.tables.table_states import assert_same
from trainer.errors import AttemptOver, BadBatch, ConfigError, NonFiniteLoss, OtherUpdate, ServerLost
from trainer.servers.client_updates import Greeting, Mode
from trainer.servers.held_rows import HeldRows
from trainer.servers.row_server import RowServer
from trainer.servers.session_roles import OF_SERVERS, SessionRole
from trainer.tables.routes.servers import row_messages as messages
from trainer.tables.routes.servers.frames import MOST_UNANSWERED, OPENED_MEMBERS, Kind, read_document, write_document
from trainer.tables.routes.servers.row_messages import RowNumbers
from transforms.errors import DataError, InputError

#: Less than a request waits for other clients where a test wants it to give up.
SHORT_SECS = 0.05


def server_of(patience_secs: float = PATIENCE_SECS, **settings_) -> RowServer:
    return RowServer(HeldRows(None), return_secs=0.1, patience_secs=patience_secs, **settings_)


def sessions_of(server, clients, mode=Mode.EACH, attempt=0):
    made = [server.begin(Greeting("", k, clients, attempt, mode)) for k in range(clients)]
    for one in made:
        open_tables(server, one)
    return made


def state_of(server):
    return server._rows.engine.state()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(8) as made:
        yield made


def is_waiting(future) -> bool:
    time.sleep(SHORT_SECS)
    return not future.done()


def test_an_older_attempt_is_refused_and_a_newer_one_ends_its_sessions():
    server = server_of()
    (old,) = sessions_of(server, 1, attempt=3)
    update(server, old, 1, 0)
    with pytest.raises(AttemptOver, match="newest"):
        server.begin(Greeting(attempt=2))
    new = server.begin(Greeting(attempt=4))
    for request in (lambda: update(server, old, 2, 1), lambda: fetch(server, old), lambda: open_tables(server, old)):
        with pytest.raises(AttemptOver, match="newer session"):
            request()
    open_tables(server, new)
    update(server, new, 2, 1)
    with pytest.raises(AttemptOver):
        server.begin(Greeting(attempt=3))


@pytest.mark.medium
def test_a_newer_attempt_is_known_after_a_restart(tmp_path):
    server = RowServer(HeldRows(tmp_path))
    sessions_of(server, 1, attempt=5)
    again = RowServer(HeldRows(tmp_path))
    with pytest.raises(AttemptOver):
        again.begin(Greeting(attempt=4))


def test_a_client_that_connects_again_replaces_its_session():
    server = server_of()
    first, other = sessions_of(server, 2)
    saving = server.begin(Greeting("", 0, 2, role=SessionRole.SAVES))
    second = server.begin(Greeting("", 0, 2))
    with pytest.raises(AttemptOver):
        fetch(server, first)
    for one in (second, other):
        fetch(server, one)
    ask(server, saving, Kind.END_SNAPSHOT)


def test_the_clients_of_an_attempt_agree():
    server = server_of()
    server.begin(Greeting("", 0, 2, mode=Mode.SUMMED))
    for other in (Greeting("", 1, 3, mode=Mode.SUMMED), Greeting("", 1, 2, mode=Mode.EACH)):
        with pytest.raises(ConfigError, match="must agree"):
            server.begin(other)
    server.begin(Greeting("", 1, 3, attempt=1))


def test_a_client_of_other_tables_is_refused_in_an_attempt_and_taken_in_the_next():
    server = server_of()
    one, other = sessions_of(server, 2)
    update(server, one, 1, 0)
    with pytest.raises(ConfigError, match="those of its attempt"):
        open_tables(server, other, seed=4)
    new = server.begin(Greeting(attempt=1))
    open_tables(server, new, seed=4)
    assert not any(len(state.rows) for state in state_of(server).values())


def test_an_opened_server_says_what_it_has():
    server = server_of()
    one, other = sessions_of(server, 2)
    update(server, one, 1, 0)
    for session, applied in ((one, 1), (other, 0)):
        document = read_document(server.opened(session).body[0], OPENED_MEMBERS)
        assert document["applied"] == applied
        assert document["generation"] > 0
    assert read_document(server_of().opened(one).body[0], OPENED_MEMBERS) == {"generation": 0, "applied": 0, "digest": ""}  # fmt: skip


def test_a_repeated_update_is_made_once():
    server, alone = server_of(), engine_alone()
    (session,) = sessions_of(server, 1)
    for number in (1, 1, 2, 1, 2, 3):
        assert update(server, session, number, number).kind == Kind.DONE
    for number in (1, 2, 3):
        apply_to(alone, [random_update(number)])
    assert_same(state_of(server), alone.state())
    assert fetch(server, session) == expected_rows(alone)
    assert server.status().repeated_updates == 3
    with pytest.raises(InputError, match="in order"):
        update(server, session, 5, 5)


@pytest.mark.medium
@pytest.mark.parametrize("folder", [False, True], ids=["in one process", "after a restart"])
@pytest.mark.parametrize("case", ["other content", "another session", "another encoding", "long ago"])
def test_a_number_that_was_used_is_refused_for_another_update(tmp_path, case, folder):
    """Training would go on with the rows of another update else. The same update of the same session is a repetition."""
    rows = HeldRows(tmp_path if folder else None)
    server = RowServer(rows)
    session = server.begin(Greeting(session=5))
    open_tables(server, session)
    last = 1 if case != "long ago" else 2 * MOST_UNANSWERED + 2
    for number in range(1, last + 1):
        update(server, session, number, 1)
    before = rows.engine.state()
    if folder:
        server = RowServer(HeldRows(tmp_path))
        session = server.begin(Greeting(session=5))
    update(server, session, last, 1)
    own = server.begin(Greeting(session=6)) if case == "another session" else session
    one = random_update(2 if case == "other content" else 1)
    dtype, flags = (np.int32, 0) if case == "another encoding" else (np.int64, messages.LONG_ROWS)
    numbers = RowNumbers(one.numbers.rows.astype(dtype), one.numbers.counts)
    parts = messages.write_gradients(numbers, one.rates, [one.values])
    with pytest.raises(OtherUpdate, match="the session and the bytes of the first time") as caught:
        ask(server, own, Kind.UPDATE, parts, number=1, flags=flags)
    assert "run training again" in caught.value.next_step
    assert_same(state_of(server), before)
    assert server.status().repeated_updates == 1


def test_an_update_that_waits_for_other_clients_is_not_replaced_by_another(pool):
    server, alone = server_of(), engine_alone()
    first, other = sessions_of(server, 2, Mode.SUMMED)
    waiting = pool.submit(update, server, first, 1, 1)
    assert is_waiting(waiting)
    again = server.begin(Greeting("", 0, 2, mode=Mode.SUMMED))
    with pytest.raises(OtherUpdate):
        update(server, again, 1, 3)
    update(server, other, 1, 2)
    apply_to(alone, [random_update(1), random_update(2)])
    assert_same(state_of(server), alone.state())


@pytest.mark.medium
@settings(max_examples=scaled(40))
@given(st.integers(2, 4), st.integers(0, 1000), st.randoms(use_true_random=False))
def test_summed_updates_are_applied_once_in_the_order_of_clients(clients, seed, random):
    """Whatever the order in which they come: the bits of one engine that has all parts at once."""
    server, alone = server_of(), engine_alone()
    sessions = sessions_of(server, clients, Mode.SUMMED)
    with ThreadPoolExecutor(clients) as pool:
        for number in range(1, 4):
            seeds = [seed + 10 * number + k for k in range(clients)]
            order = random.sample(range(clients), clients)
            list(pool.map(lambda k, n=number, s=seeds: update(server, sessions[k], n, s[k]), order))
            apply_to(alone, [random_update(one) for one in seeds])
            assert fetch(server, sessions[number % clients]) == expected_rows(alone)
    assert_same(state_of(server), alone.state())
    assert server.status().applied == (3,) * clients


def test_a_summed_update_waits_for_the_other_clients(pool):
    server, alone = server_of(), engine_alone()
    one, other = sessions_of(server, 2, Mode.SUMMED)
    waiting = pool.submit(update, server, one, 1, 0)
    assert is_waiting(waiting)
    assert server.status().applied == (0, 0)
    update(server, other, 1, 1)
    waiting.result(timeout=PATIENCE_SECS)
    apply_to(alone, [random_update(0), random_update(1)])
    assert_same(state_of(server), alone.state())


def test_a_summed_update_that_is_sent_again_counts_once(pool):
    """The client's connection failed while it waited; it sends the same update from a new session."""
    server, alone = server_of(), engine_alone()
    one, other = sessions_of(server, 2, Mode.SUMMED)
    first = pool.submit(update, server, one, 1, 0)
    assert is_waiting(first)
    again = server.begin(Greeting("", 0, 2, mode=Mode.SUMMED))
    with pytest.raises(AttemptOver):
        first.result(timeout=PATIENCE_SECS)
    second = pool.submit(update, server, again, 1, 0)
    update(server, other, 1, 1)
    second.result(timeout=PATIENCE_SECS)
    apply_to(alone, [random_update(0), random_update(1)])
    assert_same(state_of(server), alone.state())


def test_a_bad_update_is_refused_to_its_client_and_not_to_the_others(pool):
    server, alone = server_of(), engine_alone()
    one, other = sessions_of(server, 2, Mode.SUMMED)
    bad = random_update(0)
    bad.numbers.rows[0] = 1 << 40
    parts = messages.write_gradients(bad.numbers, bad.rates, [bad.values])
    with pytest.raises(BadBatch):
        ask(server, one, Kind.UPDATE, parts, number=1, flags=messages.LONG_ROWS)
    waiting = pool.submit(update, server, other, 1, 1)
    update(server, one, 1, 2)
    waiting.result(timeout=PATIENCE_SECS)
    apply_to(alone, [random_update(2), random_update(1)])
    assert_same(state_of(server), alone.state())


@pytest.mark.parametrize("mode", Mode)
def test_a_client_that_leaves_blocks_the_others_for_the_patience_alone(mode):
    server = server_of(SHORT_SECS)
    one, other = sessions_of(server, 2, mode)
    server.end(other)
    if mode is Mode.SUMMED:
        with pytest.raises(AttemptOver, match="in time"):
            update(server, one, 1, 0)
    else:
        update(server, one, 1, 0)
        with pytest.raises(AttemptOver, match="in time"):
            fetch(server, one, floor=1)
        fetch(server, one, floor=0)


def test_a_newer_attempt_frees_a_client_that_waits(pool):
    server = server_of()
    one, _ = sessions_of(server, 2, Mode.SUMMED)
    waiting = pool.submit(update, server, one, 1, 0)
    assert is_waiting(waiting)
    new = server.begin(Greeting(attempt=1))
    with pytest.raises(AttemptOver):
        waiting.result(timeout=PATIENCE_SECS)
    open_tables(server, new)
    update(server, new, 1, 5)
    alone = engine_alone()
    apply_to(alone, [random_update(5)])
    assert_same(state_of(server), alone.state())


def test_a_fetch_waits_until_all_clients_are_within_the_bound(pool):
    server = server_of()
    sessions = sessions_of(server, 3)
    for number in (1, 2):
        update(server, sessions[0], number, number)
    update(server, sessions[1], 1, 10)
    fetch(server, sessions[0], floor=0)
    waiting = pool.submit(fetch, server, sessions[0], floor=1)
    assert is_waiting(waiting)
    update(server, sessions[2], 1, 20)
    assert len(waiting.result(timeout=PATIENCE_SECS)) == 4 * sum(one.vocabulary_size * one.dim for one in TABLES)
    # Updates of others that the first client's fetches have missed: 2 of the third, then 1 of both.
    assert server.staleness == {2: 1, 1: 1}
    assert server.wait_secs >= SHORT_SECS / 2
    assert server.status().staleness == {1: 1, 2: 1}


@settings(max_examples=scaled(15))
@given(st.integers(2, 4), st.integers(0, 3), st.integers(0, 1000))
def test_no_fetch_misses_more_updates_than_the_bound(clients, bound, seed):
    """Clients in threads, each at its own pace."""
    server, steps = server_of(), 6
    sessions = sessions_of(server, clients)

    def run(k):
        pause = np.random.default_rng(seed + k)
        for number in range(1, steps + 1):
            fetch(server, sessions[k], floor=number - 1 - bound)
            time.sleep(pause.random() * 1e-3)
            update(server, sessions[k], number, 100 * k + number)

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(run, range(clients)))
    assert max(server.staleness) <= bound
    assert sum(server.staleness.values()) == clients * steps
    assert server.status().applied == (steps,) * clients


def test_non_finite_gradients_are_refused():
    server = server_of()
    (session,) = sessions_of(server, 1)
    bad = random_update(0)
    bad.values[3] = np.nan
    with pytest.raises(NonFiniteLoss):
        ask(server, session, Kind.UPDATE, messages.write_gradients(bad.numbers, bad.rates, [bad.values]), number=1, flags=messages.LONG_ROWS)  # fmt: skip
    update(server, session, 1, 0)


def test_the_rows_of_an_answer_are_limited():
    """A fetch of 4 bytes a row would make the server take the memory of whole rows."""
    server = server_of(most_answer_bytes=1000)
    (session,) = sessions_of(server, 1)
    for rows in (62, 63):
        numbers = RowNumbers(np.zeros(rows, np.int32), np.array([rows, 0, 0]))
        if 16 * rows <= 1000:
            fetch(server, session, numbers)
        else:
            with pytest.raises(DataError, match="must fit in one answer"):
                fetch(server, session, numbers)
    with pytest.raises(DataError, match="must fit in one answer"):
        ask(server, server.begin(Greeting(role=SessionRole.SAVES)), Kind.READ_STATE, messages.write_counts([1, 0, 50]))


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("role", list(SessionRole))
def test_every_request_before_tables_and_with_an_empty_body_is_one_error(kind, role):
    server = server_of()
    session = server.begin(Greeting(role=role))
    if kind not in OF_SERVERS[role]:
        with pytest.raises(ConfigError, match="that its session may make"):
            ask(server, session, kind)
    elif kind in (Kind.END_SNAPSHOT, Kind.STATUS):
        ask(server, session, kind)
    else:
        with pytest.raises((DataError, ServerLost)):
            ask(server, session, kind)


@pytest.mark.medium
@pytest.mark.parametrize("role", [one for one in SessionRole if one is not SessionRole.TRAINS])
def test_no_session_but_that_of_training_changes_rows_one_by_one(role):
    """Also beside the client, with its number: whoever reads the number of its next update cannot take it."""
    server, alone = server_of(), engine_alone()
    (session,) = sessions_of(server, 1)
    other = server.begin(Greeting(role=role))
    for number in (1, 2):
        with pytest.raises(ConfigError, match="that its session may make"):
            update(server, other, number, 7)
        with pytest.raises(ConfigError, match="that its session may make"):
            ask(server, other, Kind.WRITE_VALUES, number=number)
        update(server, session, number, number)
        apply_to(alone, [random_update(number)])
    assert_same(state_of(server), alone.state())
    assert not session.is_over
    server.end(other)


def read_all(server, session) -> list[bytes]:
    return [b"".join(ask(server, session, Kind.READ_SNAPSHOT, messages.write_counts([p, 0, one.vocabulary_size])).body)
            for p, one in enumerate(TABLES)]  # fmt: skip


def begin_snapshot(server, session, most_bytes=1 << 20):
    return ask(server, session, Kind.BEGIN_SNAPSHOT, messages.write_counts([most_bytes]))


def saved_rows(alone) -> list[bytes]:
    return [b"".join(messages.write_part(alone.changed_rows(p, 0, one.vocabulary_size))) for p, one in enumerate(TABLES)]  # fmt: skip


def test_a_snapshot_is_that_of_its_moment():
    server, alone = server_of(), engine_alone()
    (session,) = sessions_of(server, 1)
    saving = server.begin(Greeting(role=SessionRole.SAVES))
    update(server, session, 1, 1)
    apply_to(alone, [random_update(1)])
    begin_snapshot(server, saving)
    for number in (2, 3, 4):
        update(server, session, number, number)
    assert read_all(server, saving) == saved_rows(alone)


def test_an_update_that_waits_for_memory_goes_on_when_the_reader_does(pool):
    server = server_of()
    (session,) = sessions_of(server, 1)
    saving = server.begin(Greeting(role=SessionRole.SAVES))
    update(server, session, 1, 1)
    begin_snapshot(server, saving, most_bytes=0)
    waiting = pool.submit(update, server, session, 2, 1)
    assert is_waiting(waiting)
    read_all(server, saving)
    ask(server, saving, Kind.END_SNAPSHOT)
    waiting.result(timeout=PATIENCE_SECS)


def test_an_update_of_more_unchanged_rows_than_can_be_noted_waits_for_the_reader(pool):
    """They have no values to put aside, but each is noted, in space for a row every 4 bytes of the limit."""
    server, alone = server_of(), engine_alone()
    (session,) = sessions_of(server, 1)
    saving = server.begin(Greeting(role=SessionRole.SAVES))
    begin_snapshot(server, saving, most_bytes=40)
    rows = RowNumbers(np.arange(11), np.array([0, 11, 0]))
    parts = messages.write_gradients(rows, np.ones(3, np.float32), [np.ones(33, np.float32)])
    waiting = pool.submit(ask, server, session, Kind.UPDATE, parts, number=1, flags=messages.LONG_ROWS)
    assert is_waiting(waiting)
    assert read_all(server, saving) == saved_rows(alone)
    ask(server, saving, Kind.END_SNAPSHOT)
    waiting.result(timeout=PATIENCE_SECS)


ENDS = {
    "the reader's connection ends": lambda server, saving: server.end(saving),
    "the reader ends the snapshot": lambda server, saving: ask(server, saving, Kind.END_SNAPSHOT),
    "the reader's connection ends, and a newer attempt begins": lambda server, saving: (
        server.end(saving),
        server.begin(Greeting(attempt=1)),
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_an_update_that_waits_for_memory_goes_on_when_the_reader_ends(pool, end):
    """The update holds the lock of the server meanwhile."""
    server = server_of()
    (session,) = sessions_of(server, 1)
    saving = server.begin(Greeting(role=SessionRole.SAVES))
    update(server, session, 1, 1)
    begin_snapshot(server, saving, most_bytes=0)
    waiting = pool.submit(update, server, session, 2, 1)
    assert is_waiting(waiting)
    pool.submit(ENDS[end], server, saving).result(timeout=PATIENCE_SECS)
    waiting.exception(timeout=PATIENCE_SECS)
    with pytest.raises((AttemptOver, ServerLost)):
        read_all(server, saving)


def test_a_snapshot_that_was_replaced_is_not_read():
    """Its rows would be of different moments."""
    server = server_of()
    (session,) = sessions_of(server, 1)
    first, second = (server.begin(Greeting("", k, 2, role=SessionRole.SAVES)) for k in range(2))
    update(server, session, 1, 1)
    begin_snapshot(server, first)
    begin_snapshot(server, second)
    with pytest.raises(ServerLost, match="begun first"):
        read_all(server, first)
    read_all(server, second)


def test_a_session_that_is_over_does_not_end_the_snapshot_of_the_next_attempt():
    server = server_of()
    (session,) = sessions_of(server, 1)
    old = server.begin(Greeting(role=SessionRole.SAVES))
    update(server, session, 1, 1)
    begin_snapshot(server, old)
    open_tables(server, server.begin(Greeting(attempt=1)))
    new = server.begin(Greeting(attempt=1, role=SessionRole.SAVES))
    begin_snapshot(server, new)
    with pytest.raises(AttemptOver):
        ask(server, old, Kind.END_SNAPSHOT)
    server.end(old)
    read_all(server, new)


def beside_updates(most_bytes):
    """A server with a snapshot, an engine with the same rows, the session that reads it, and a function that makes further updates."""
    server, alone = server_of(), engine_alone()
    (session,) = sessions_of(server, 1)
    saving = server.begin(Greeting(role=SessionRole.SAVES))
    for number in (1, 2, 3):
        update(server, session, number, number)
        apply_to(alone, [random_update(number)])
    begin_snapshot(server, saving, most_bytes=most_bytes)

    def train():
        for number in range(4, 20):
            update(server, session, number, number)

    return server, alone, saving, train


def test_reading_beside_updates_gives_one_moment(pool):
    """Ranges are read in one thread while another updates: repeated at many speeds."""
    for seed in range(scaled(20)):
        server, alone, saving, train = beside_updates(seed * 40)
        training = pool.submit(train)
        found = []
        for p, one in enumerate(TABLES):
            for first in range(0, one.vocabulary_size, 5):
                stop = min(first + 5, one.vocabulary_size)
                body = ask(server, saving, Kind.READ_SNAPSHOT, messages.write_counts([p, first, stop])).body
                found.append(messages.read_part(body_of(body), int(DIMS[p]), int(server._rows.slot_dims[p])))
        ask(server, saving, Kind.END_SNAPSHOT)
        training.result(timeout=PATIENCE_SECS)
        expected = [alone.changed_rows(p, first, min(first + 5, one.vocabulary_size))
                    for p, one in enumerate(TABLES) for first in range(0, one.vocabulary_size, 5)]  # fmt: skip
        for one, other in zip(found, expected, strict=True):
            assert all(getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in ("rows", "weights", "slots"))  # fmt: skip


@pytest.mark.medium
def test_a_load_is_over_the_wire_and_forgets_what_waited(pool):
    server = server_of(SHORT_SECS)
    one, other = sessions_of(server, 2, Mode.SUMMED)
    with pytest.raises(AttemptOver):
        update(server, one, 1, 0)
    for k, session in enumerate((one, other)):
        ask(server, session, Kind.BEGIN_LOAD)
        alone = engine_alone()
        apply_to(alone, [random_update(k)])
        for p, table in enumerate(TABLES):
            part = alone.changed_rows(p, 0, table.vocabulary_size)
            ask(server, session, Kind.LOAD_ROWS, messages.write_load(p, part), number=p + 1)
        with pytest.raises(ServerLost, match="before their load"):
            fetch(server, session)
        reply = ask(server, session, Kind.END_LOAD, number=4, floor=77 + k)
        opened = read_document(reply.body[0], OPENED_MEMBERS)
        assert (opened["applied"], opened["generation"]) == (0, 77 + k)
        assert_same(state_of(server), alone.state())
        assert fetch(server, session, all_rows()) == expected_rows(alone)
    with pytest.raises(AttemptOver):
        update(server, other, 1, 0)  # alone: that of the first client is from before the load


def test_a_request_of_a_load_that_comes_again_is_made_once():
    """Its answer was lost. A request that is ahead, and one of an earlier load, is refused."""
    server = server_of()
    (session,) = sessions_of(server, 1)
    alone = engine_alone()
    apply_to(alone, [random_update(1)])
    part = alone.changed_rows(0, 0, TABLES[0].vocabulary_size)
    ask(server, session, Kind.BEGIN_LOAD, number=10)
    with pytest.raises(ServerLost, match="begun first"):
        ask(server, session, Kind.LOAD_ROWS, messages.write_load(0, part), number=12)
    ask(server, session, Kind.LOAD_ROWS, messages.write_load(0, part), number=11)
    nothing = replace(part, weights=part.weights * 0, slots=part.slots * 0)
    ask(server, session, Kind.LOAD_ROWS, messages.write_load(0, nothing), number=11)
    for _ in range(2):
        opened = ask(server, session, Kind.END_LOAD, number=12, floor=99)
        assert read_document(opened.body[0], OPENED_MEMBERS)["generation"] == 99
    saving = server.begin(Greeting(role=SessionRole.SAVES))
    found = messages.read_part(body_of(ask(server, saving, Kind.READ_STATE, messages.write_counts([0, 0, 30])).body),
                               int(DIMS[0]), int(server._rows.slot_dims[0]))  # fmt: skip
    assert found.weights.tobytes() == part.weights.tobytes()
    with pytest.raises(ServerLost, match="begun first"):
        ask(server, session, Kind.LOAD_ROWS, messages.write_load(0, part), number=11)


def test_documents_with_other_members_are_refused():
    server, threads = server_of(), threading.active_count()
    session = server.begin(Greeting())
    for document in ({}, {"seed": 3}, {"seed": 3, "tables": [], "more": 1}, {"seed": 3, "tables": [{}]}):
        with pytest.raises(DataError):
            ask(server, session, Kind.OPEN, [write_document(document)])
    assert threading.active_count() <= threads
