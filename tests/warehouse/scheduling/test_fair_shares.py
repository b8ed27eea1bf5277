from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.errors import InputError
from warehouse.scheduling.fair_shares import (
    Charge,
    ClientShare,
    apply_corrections,
    charge_by_client,
    charge_corrections,
    charged_shares,
    next_client,
    shares,
    starting_virtual_times,
    virtual_times_after,
)

NAMES = ("ads", "feed", "mail", "search")
weights = st.dictionaries(st.sampled_from(NAMES), st.floats(1e-3, 1e6), min_size=1)


@given(weights, st.floats(0, 1))
def test_shares_add_up_and_none_is_under_the_floor(weights: dict[str, float], floor: float) -> None:
    found = shares(weights, floor)
    assert sum(found.values()) == pytest.approx(1)
    assert min(found.values()) >= min(floor, 1 / len(weights)) * (1 - 1e-6)
    for one in weights:
        for other in weights:
            if weights[one] >= weights[other]:
                assert found[one] >= found[other] * (1 - 1e-9)


def test_shares_follow_the_weights_where_the_floor_allows() -> None:
    assert shares({"ads": 3, "feed": 1}, 0.05) == {"ads": 0.75, "feed": 0.25}
    assert shares({"ads": 1000, "feed": 1, "mail": 1}, 0.05) == pytest.approx({"ads": 0.9, "feed": 0.05, "mail": 0.05})
    assert shares({}, 0.05) == {}


def served(weights: dict[str, float], turns: int, secs: dict[str, float], floor: float = 0.05) -> dict[str, float]:
    """The seconds that clients who always wait got in so many turns of ``secs`` each."""
    clients = [ClientShare(name, weight) for name, weight in weights.items()]
    got = dict.fromkeys(weights, 0.0)
    for turn in range(1, turns + 1):
        chosen = next_client(clients, weights)
        times = virtual_times_after(clients, weights, {chosen: secs[chosen]}, floor)
        got[chosen] += secs[chosen]
        clients = [
            ClientShare(one.name, one.weight, times[one.name], turn if one.name == chosen else one.served)
            for one in clients
        ]
    return got


@given(weights, st.data())
def test_a_client_that_always_waits_gets_its_share(weights: dict[str, float], data: st.DataObject) -> None:
    secs = {name: data.draw(st.floats(0.1, 10)) for name in weights}
    got = served(weights, 400, secs)
    wanted, total = shares(weights), sum(got.values())
    for name in weights:
        # Nobody is further from its share than one turn of everybody.
        assert abs(got[name] - wanted[name] * total) <= sum(secs.values()) + 1e-6


def test_the_floor_keeps_the_lightest_alive() -> None:
    got = served({"ads": 1e6, "mail": 1e-3}, 400, {"ads": 1.0, "mail": 1.0})
    assert got["mail"] >= 0.05 * 400 - 1


def test_an_idle_client_saves_no_share() -> None:
    busy, away = ClientShare("busy", virtual_secs=1000.0), ClientShare("away", virtual_secs=10.0)
    assert starting_virtual_times([busy, away], {"busy"}) == {"busy": 1000.0, "away": 1000.0}
    assert starting_virtual_times([busy, away], {"busy", "away"}) == {"busy": 1000.0, "away": 10.0}, (
        "it waited all the time"
    )


def test_a_new_client_starts_at_the_virtual_time_of_the_others() -> None:
    old, new = ClientShare("old", virtual_secs=500.0, served=3), ClientShare("new")
    assert starting_virtual_times([old, new], {"old", "new"})["new"] == 500.0
    assert next_client([old, new], {"old", "new"}) == "new", "served longest ago"
    assert starting_virtual_times([new], {"new"}) == {"new": 0.0}


def test_riding_along_is_paid_for() -> None:
    clients = [ClientShare("ads", virtual_secs=0.0), ClientShare("feed", virtual_secs=0.0)]
    assert virtual_times_after(clients, {"ads", "feed"}, {"ads": 1.0, "feed": 3.0}) == {"ads": 2.0, "feed": 6.0}


secs = st.floats(0, 1e4)


@given(
    weights, st.lists(st.tuples(secs, secs, st.sets(st.sampled_from(NAMES), min_size=1)), max_size=6), st.floats(0, 1)
)
def test_a_corrected_charge_equals_a_charge_of_the_measured_time(
    weights: dict[str, float], work: list[tuple[float, float, set[str]]], floor: float
) -> None:
    """Whatever was estimated, whoever shares it, whatever the floor lifts."""
    clients = [ClientShare(name, weights.get(name, 1.0), 1000.0) for name in NAMES]
    payers = {which: sorted(names) for which, (_, _, names) in enumerate(work)}
    estimated = charge_by_client({which: guess for which, (guess, _, _) in enumerate(work)}, payers)
    took = charge_by_client({which: truth for which, (_, truth, _) in enumerate(work)}, payers)
    share = charged_shares(clients, weights, estimated, floor)
    times = virtual_times_after(clients, weights, estimated, floor)
    more = charge_corrections(
        (Charge(guess, {name: share[name] for name in names}), truth) for guess, truth, names in work
    )
    amended = apply_corrections([ClientShare(one.name, one.weight, times[one.name]) for one in clients], more)
    wanted = virtual_times_after(clients, weights, took, floor)
    scale = max(1.0, *times.values(), *wanted.values())
    for one in amended:
        assert one.virtual_secs is not None
        assert abs(one.virtual_secs - wanted[one.name]) <= 1e-9 * scale


def test_no_virtual_time_is_less_than_nothing() -> None:
    clients = [ClientShare("ads", virtual_secs=3.0), ClientShare("feed")]
    more = charge_corrections([(Charge(10.0, {"ads": 0.5, "feed": 0.5}), 1.0)])
    assert more == {"ads": -9.0, "feed": -9.0}
    assert [one.virtual_secs for one in apply_corrections(clients, more)] == [0.0, None], (
        "who never had a turn has no time"
    )
    assert charge_corrections([(Charge(2.0, {"ads": 0.5}), 2.0), (Charge(1.0, {}), 9.0)]) == {}


@pytest.mark.parametrize("weight", [0.0, -1.0, 1e-7, 1e308, float("inf"), float("nan")])
def test_a_weight_is_positive(weight: float) -> None:
    with pytest.raises(InputError, match=r"a client.s weight must be"):
        ClientShare("ads", weight)
