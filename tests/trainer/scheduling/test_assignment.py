from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.scheduling.assignment import (
    Assignments,
    AssignmentSettings,
    AssignUnit,
    RevokeUnit,
    assign_units,
    fail_service,
    receive_unit,
    request_units,
    withdraw_reader,
    withdraw_service,
)
from transforms.errors import InputError

SETTINGS = AssignmentSettings(units_per_reader=2, straggler_secs=1.0, least_measured=3)


def requested(*numbers: int) -> Assignments:
    return request_units(Assignments(), "h0", [(number, 100) for number in numbers])


def measured(held: Assignments, secs: float = 1.0) -> Assignments:
    """The assignments after three units took so long."""
    for number in range(1000, 1003):
        held = request_units(held, "h0", [(number, 100)])
        held, _ = assign_units(held, ["m"], 0.0, AssignmentSettings(units_per_reader=99))
        held, _ = receive_unit(held, number, "m", secs)
    return held


def test_the_lowest_units_go_to_the_least_loaded_readers() -> None:
    held, told = assign_units(requested(7, 3, 5, 9, 11), ["b", "a"], 0.0, SETTINGS)
    assert told == (
        AssignUnit(3, "a", "h0"),
        AssignUnit(5, "b", "h0"),
        AssignUnit(7, "a", "h0"),
        AssignUnit(9, "b", "h0"),
    )
    assert assign_units(held, ["a", "b"], 0.0, SETTINGS) == (held, ())
    held, revoked = receive_unit(held, 5, "b", 1.0)
    assert revoked == ()
    assert assign_units(held, ["a", "b"], 1.0, SETTINGS)[1] == (AssignUnit(11, "b", "h0"),)


@given(st.integers(1, 5), st.integers(0, 2**33), st.integers(0, 3))
def test_hosts_ask_the_same_reader_for_the_same_rows(readers: int, home: int, loaded: int) -> None:
    """Whatever else a host has in flight, while the reader can take a unit more; another reader serves it otherwise."""
    names = [f"r{n}" for n in range(readers)]
    told = set()
    for host in ("h0", "h1"):
        held, _ = assign_units(requested(*range(loaded if host == "h1" else 0)), names, 0.0, SETTINGS)
        before = held.loads()
        held = request_units(held, host, [(10, 100)], {10: home})
        _, found = assign_units(held, names, 0.0, SETTINGS)
        reader = names[home % readers]
        if before.get(reader, 0) < SETTINGS.units_per_reader:
            told |= {one.reader for one in found if one.unit == 10}
    assert told == {reader}


def test_units_of_a_lost_reader_are_assigned_again() -> None:
    held, _ = assign_units(requested(1, 2), ["a", "b"], 0.0, SETTINGS)
    held, told = assign_units(held, ["b"], 1.0, SETTINGS)
    assert told == (AssignUnit(1, "b", "h0"),)
    held, _ = assign_units(held, [], 1.0, SETTINGS)
    assert all(unit.services == () for unit in held.units.values())


def test_a_unit_avoids_readers_that_failed_to_serve_it() -> None:
    held, _ = assign_units(requested(1), ["a", "b"], 0.0, SETTINGS)
    held = fail_service(held, 1, "a")
    held, told = assign_units(held, ["a", "b"], 1.0, SETTINGS)
    assert told == (AssignUnit(1, "b", "h0"),)
    held = fail_service(held, 1, "b")
    assert assign_units(held, ["a", "b"], 2.0, SETTINGS)[1] == (AssignUnit(1, "a", "h0"),), "all failed"
    assert assign_units(held, ["b"], 2.0, SETTINGS)[1] == (AssignUnit(1, "b", "h0"),), "there is no other"


def test_the_units_of_a_reader_that_was_gone_for_a_moment_are_assigned_again() -> None:
    held, _ = assign_units(requested(1, 2), ["a", "b"], 0.0, SETTINGS)
    held = withdraw_reader(held, "a")
    assert assign_units(held, ["a", "b"], 1.0, SETTINGS)[1] == (AssignUnit(1, "a", "h0"),)


def test_a_withdrawn_service_is_no_failure() -> None:
    held, _ = assign_units(requested(1), ["a", "b"], 0.0, SETTINGS)
    held = withdraw_service(held, 1, "a")
    assert withdraw_service(held, 2, "a") == held
    assert assign_units(held, ["a", "b"], 1.0, SETTINGS)[1] == (AssignUnit(1, "a", "h0"),)


def test_a_failed_service_is_repeated() -> None:
    held, _ = assign_units(requested(1), ["a"], 0.0, SETTINGS)
    held = fail_service(held, 1, "a")
    assert assign_units(held, ["a"], 1.0, SETTINGS)[1] == (AssignUnit(1, "a", "h0"),)
    assert fail_service(held, 99, "a") == held


def test_a_straggler_is_speculated_once_and_the_slower_service_is_revoked() -> None:
    held, _ = assign_units(measured(requested(1)), ["a"], 0.0, SETTINGS)
    assert assign_units(held, ["a", "b"], 3.0, SETTINGS)[1] == ()
    held, told = assign_units(held, ["a", "b"], 3.1, SETTINGS)
    assert told == (AssignUnit(1, "b", "h0"),)
    assert assign_units(held, ["a", "b", "c"], 6.0, SETTINGS)[1] == ()
    held, told = receive_unit(held, 1, "b", 4.0)
    assert told == (RevokeUnit(1, "a"),)
    assert receive_unit(held, 1, "a", 5.0) == (held, ()), "the second delivery is ignored"


def test_a_third_reader_replaces_the_first_of_two_stragglers() -> None:
    held, _ = assign_units(measured(requested(1)), ["a"], 0.0, SETTINGS)
    held, _ = assign_units(held, ["a", "b"], 4.0, SETTINGS)
    held, told = assign_units(held, ["a", "b", "c"], 8.0, SETTINGS)
    assert told == (RevokeUnit(1, "a"), AssignUnit(1, "c", "h0"))
    assert [one.reader for one in held.units[1].services] == ["b", "c"]


def test_no_unit_is_a_straggler_without_measurements() -> None:
    held, _ = assign_units(requested(1), ["a"], 0.0, SETTINGS)
    assert assign_units(held, ["a", "b"], 1e6, SETTINGS)[1] == ()


def test_a_straggler_has_precedence_over_later_units() -> None:
    held, _ = assign_units(measured(requested(1)), ["a"], 0.0, SETTINGS)
    held = request_units(held, "h0", [(2, 100), (3, 100), (4, 100)])
    _, told = assign_units(held, ["a", "b"], 50.0, SETTINGS)
    assert [one.unit for one in told] == [1, 2, 3]


def test_a_clock_that_was_set_back_measures_nothing() -> None:
    held, _ = assign_units(requested(1), ["a"], 100.0, SETTINGS)
    held, _ = receive_unit(held, 1, "a", 50.0)
    assert held == Assignments()


def test_a_request_twice_is_one() -> None:
    held, _ = assign_units(requested(1), ["a"], 0.0, SETTINGS)
    assert request_units(held, "h0", [(1, 100)]) is held


@given(st.integers(0, 2**32))
def test_random_histories_keep_the_limits_and_serve_every_unit(seed: int) -> None:
    draw = random.Random(seed)
    held, now, next_unit, received = Assignments(), 0.0, 0, set[int]()
    for step in range(200):
        now += draw.uniform(0, 2)
        if len(held.units) < 8 and next_unit < 40:
            held = request_units(held, f"h{next_unit % 2}", [(next_unit, draw.randint(0, 100))])
            next_unit += 1
        readers = [f"r{n}" for n in range(4) if step > 150 or draw.random() < 0.8]
        held, told = assign_units(held, readers, now, SETTINGS)
        assert all(one.reader in readers for one in told if isinstance(one, AssignUnit))
        assert max(held.loads().values(), default=0) <= SETTINGS.units_per_reader
        for unit in held.units.values():
            serving = [one.reader for one in unit.services]
            assert len(serving) == len(set(serving)) <= 2
        free = [one for one in readers if held.loads().get(one, 0) < SETTINGS.units_per_reader]
        waiting = [number for number, unit in held.units.items() if not unit.services]
        assert not (free and waiting), "no unit waits while a reader is free"
        for number, unit in list(held.units.items()):
            if unit.services and draw.random() < 0.4:
                held, _ = receive_unit(held, number, draw.choice(unit.services).reader, now)
                received.add(number)
    assert received == set(range(next_unit))


@pytest.mark.parametrize("bad", [{"units_per_reader": 0}, {"straggler_factor": 0.5}, {"straggler_secs": -1}])
def test_settings_are_checked(bad: dict[str, float]) -> None:
    with pytest.raises(InputError):
        AssignmentSettings(**bad)  # type: ignore[arg-type]
