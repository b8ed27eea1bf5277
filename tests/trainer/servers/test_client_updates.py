"""Pure laws of greetings and of the numbers of updates."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.mutations import mutated
from tests.support.examples import scaled
from trainer.servers.client_updates import (
    MOST_LANES,
    Greeting,
    Mode,
    is_due,
    is_new,
    missing_updates,
    takes_place,
)
from trainer.servers.session_roles import SessionRole
from trainer.tables.routes.servers.frames import Header, Kind
from transforms.errors import DataError, InputError


@st.composite
def greetings(draw):
    clients, lanes = draw(st.integers(1, 1024)), draw(st.integers(1, MOST_LANES))
    return Greeting(
        draw(st.text(max_size=20)),
        draw(st.integers(0, clients - 1)),
        clients,
        draw(st.integers(0, 1 << 62)),
        draw(st.sampled_from(Mode)),
        draw(st.sampled_from(SessionRole)),
        draw(st.integers(0, 1 << 62)),
        draw(st.integers(0, lanes - 1)),
        lanes,
    )


@given(greetings())
def test_a_greeting_is_read_as_it_was_written(greeting):
    document = json.loads(json.dumps(greeting.to_document()))
    assert ("lanes" in document) == (greeting.lanes > 1), "a client with one lane speaks with servers that know none"
    assert Greeting.read(document) == greeting


@pytest.mark.parametrize(
    "changes",
    [
        {"token": 7},
        {"client": 2},
        {"client": -1},
        {"client": True},
        {"clients": 0},
        {"clients": 1025},
        {"clients": 1.0},
        {"attempt": -1},
        {"attempt": 1 << 63},
        {"mode": "sum"},
        {"mode": []},
        {"mode": None},
        {"role": "trains, saves"},
        {"role": ["saves"]},
        {"role": None},
        {"session": -1},
        {"session": 1.0},
        {"lane": 1},
        {"lane": -1},
        {"lane": True},
        {"lanes": 0},
        {"lanes": MOST_LANES + 1},
        {"lanes": None},
    ],
)
def test_a_greeting_is_refused(changes):
    document = Greeting(clients=2).to_document()
    assert Greeting.read(dict(document)) == Greeting(clients=2)
    with pytest.raises(DataError):
        Greeting.read(document | changes)


def test_a_mutated_greeting_is_one_error_or_a_greeting():
    whole = Greeting("secret", 1, 3, 7).to_document()
    for seed in range(scaled(3000)):
        document = mutated(whole, Random(seed))
        try:
            found = Greeting.read(document)
        except DataError:
            continue
        assert 0 <= found.client < found.clients
        assert 0 <= found.lane < found.lanes


@given(st.integers(0, 1 << 40), st.lists(st.integers(0, 3), max_size=20))
def test_updates_are_made_once_in_order_however_often_they_are_sent(applied, repeats):
    """Sent in order, each any number of times, also after later ones."""
    made, sent = [], applied
    for back in repeats:
        sent += 1
        for number in range(max(sent - back, 1), sent + 1):
            if is_new(applied, number, 0):
                applied = number
                made.append(number)
    assert made == sorted(set(made))
    assert len(made) == len(repeats)


@given(st.integers(0, 100), st.integers(2, 100))
def test_an_update_ahead_of_its_turn_is_refused(applied, ahead):
    assert not is_new(applied, applied, 0)
    assert is_new(applied, applied + 1, 0)
    with pytest.raises(InputError, match="in order"):
        is_new(applied, applied + ahead, 0)


@given(st.integers(1, 3), st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_updates_of_lanes_that_are_made_once_they_are_due_are_in_order(clients, choices):
    """Each client draws which of its next updates arrives; those that are not due wait."""
    applied, arrived, made = [0] * clients, [set() for _ in range(clients)], []
    for step, back in enumerate(choices):
        client = step % clients
        later = [
            number
            for number in range(1, len(choices) + 1)
            if number not in arrived[client] and number > applied[client]
        ]
        arrived[client].add(later[min(back, len(later) - 1)])
        while due := [
            one for one in sorted(arrived[client]) if is_due(Header(Kind.UPDATE, number=one), applied, client)
        ]:
            assert is_new(applied[client], due[0], client), "one that is due is never ahead"
            applied[client] = due[0]
            arrived[client].discard(due[0])
            made.append((client, due[0]))
    for client in range(clients):
        numbers = [number for one, number in made if one == client]
        assert numbers == list(range(1, len(numbers) + 1))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=5), st.integers(0, 60), st.data())
def test_a_fetch_is_due_once_all_clients_have_made_its_floor(applied, floor, data):
    client = data.draw(st.integers(0, len(applied) - 1))
    assert is_due(Header(Kind.FETCH, floor=floor), applied, client) == all(one >= floor for one in applied)
    assert is_due(Header(Kind.FETCH, floor=-1), applied, client)
    assert is_due(Header(Kind.STATUS), applied, client)


@given(greetings(), greetings())
def test_a_session_is_ended_by_one_of_its_lane_and_by_later_attempts(newer, earlier):
    found = takes_place(newer, earlier)
    if earlier.attempt < newer.attempt:
        assert found
    elif earlier.client != newer.client:
        assert not found
    elif earlier.lanes == newer.lanes:
        assert found == (earlier.lane == newer.lane)
    else:
        assert found
    assert takes_place(newer, newer)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=5), st.data())
def test_staleness_is_how_far_the_slowest_other_client_is_behind(applied, data):
    client = data.draw(st.integers(0, len(applied) - 1))
    missed = missing_updates(applied, client)
    assert missed == max([0, *(applied[client] - other for k, other in enumerate(applied) if k != client)])
    if len(applied) == 1:
        assert missed == 0
