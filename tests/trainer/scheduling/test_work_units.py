"""Units are all events in order; hosts have equal shares of them, so no host is idle but in the last step of an epoch."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.plans import plan_of
from trainer.scheduling.work_units import UnitPlan, share_ranges, units_of_epoch
from transforms.errors import InputError

plans = st.lists(st.lists(st.integers(1, 40), max_size=5), min_size=1, max_size=5)
Event = tuple[int, str, int]


def events_of(plan: UnitPlan, places: tuple[int, int]) -> list[Event]:
    """Pass, fragment and row of each stored event at these places."""
    return [
        (int(plan.pass_number[plan.stretch_of(one.place)]), one.fragment, row)
        for one in plan.pieces(0, places)
        for row in range(one.first_row, one.first_row + one.rows)
    ]


def streams(plan: UnitPlan, hosts: int, first_unit: int, stop_unit: int) -> list[list[Event]]:
    """What each host trains of a range of units, in order."""
    units = range(first_unit, stop_unit)
    return [[event for unit in units for event in events_of(plan, plan.share(unit, rank, hosts))] for rank in range(hosts)]  # fmt: skip


@given(plans, st.integers(1, 3), st.integers(1, 15), st.integers(1, 16), st.integers(1, 16))
def test_every_event_is_in_one_share_and_shares_are_equal(
    epochs: list[list[int]], passes: int, batch_rows: int, planned: int, hosts: int
) -> None:
    plan = plan_of(epochs, hosts=planned, batch_rows=batch_rows, most_rows=16, passes=passes, first_unit=7)
    everything = [
        (number, plan.keys[n], row)
        for begin, stop in pairwise(np.cumsum([0, *([len(rows) for rows in epochs] * passes)]).tolist())
        for n, number, count in zip(
            plan.fragment[begin:stop].tolist(), plan.pass_number[begin:stop].tolist(), plan.rows[begin:stop].tolist(), strict=True,
        )
        for row in range(count)
    ]  # fmt: skip
    by_unit = [
        event for unit in range(7, plan.stop_unit) for own in streams(plan, hosts, unit, unit + 1) for event in own
    ]
    assert by_unit == everything
    for first, stop in pairwise(plan.section_units.tolist()):
        sizes = [len(own) for own in streams(plan, hosts, first, stop)]
        assert max(sizes) - min(sizes) <= 1


@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=12),
    st.integers(1, 64),
    st.integers(1, 16),
    st.integers(1, 16),
    st.sampled_from([7, 64, 1 << 16]),
)
def test_every_host_has_events_in_every_step_but_the_last_of_an_epoch(
    fragments: list[int], batch_rows: int, planned: int, hosts: int, most_rows: int
) -> None:
    """For the number of hosts that was planned, and for any other, with any sizes of fragments."""
    plan = plan_of([fragments], hosts=planned, batch_rows=batch_rows, most_rows=most_rows)
    own = np.zeros(hosts, np.int64)
    for unit in range(plan.stop_unit):
        own += [stop - first for first, stop in (plan.share(unit, rank, hosts) for rank in range(hosts))]
    steps, rows = (-(-own // batch_rows)).tolist(), sum(fragments)
    assert own.sum() == rows
    assert max(steps) == -(-rows // (batch_rows * hosts)), "the fewest that are possible"
    assert min(steps) >= max(steps) - 1
    if rows >= 10 * batch_rows * hosts:
        assert max(steps) <= 1.1 * rows / (batch_rows * hosts)


@given(st.integers(1, 300_000), st.integers(1, 5_000), st.integers(1, 16), st.sampled_from([100, 1 << 16]))
def test_an_epoch_is_cut_into_units_of_whole_batches_of_all_hosts(
    events: int, batch_rows: int, hosts: int, most_rows: int
) -> None:
    units = units_of_epoch(events, hosts=hosts, batch_rows=batch_rows, most_rows=most_rows)
    assert 1 <= units <= events
    assert -(-events // units) <= hosts * most_rows
    if most_rows >= batch_rows:
        assert units <= 1 or events / units >= hosts * batch_rows / 2
        if events >= 8 * hosts * batch_rows:
            assert units >= 3, "the hosts train events of about the same time"
    assert units_of_epoch(0, hosts=hosts, batch_rows=batch_rows, most_rows=most_rows) == 0


@given(plans, st.integers(1, 6), st.integers(0, 30), st.integers(1, 5), st.integers(1, 5))
def test_another_number_of_hosts_goes_on_at_any_unit(
    epochs: list[list[int]], batch_rows: int, cut: int, hosts: int, others: int
) -> None:
    plan = plan_of(epochs, hosts=hosts, batch_rows=batch_rows)
    cut = min(cut, plan.stop_unit)
    found = [*streams(plan, hosts, 0, cut), *streams(plan, others, cut, plan.stop_unit)]
    assert sorted(event for own in found for event in own) == sorted(events_of(plan, (0, int(plan.row_starts[-1]))))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), max_size=6), st.integers(1, 16))
def test_carried_places_are_shared_equally(sizes: list[tuple[int, int]], hosts: int) -> None:
    at, ranges = 0, []
    for gap, rows in sizes:
        ranges.append((at + gap, at + gap + rows))
        at += gap + rows
    found = [share_ranges(ranges[::-1], rank, hosts) for rank in range(hosts)]
    places = [[place for first, stop in own for place in range(first, stop)] for own in found]
    assert [one for own in places for one in own] == [place for first, stop in ranges for place in range(first, stop)]
    assert max(map(len, places)) - min(map(len, places)) <= 1


@given(plans, st.integers(1, 6), st.integers(1, 60), st.lists(st.integers(0, 60), max_size=3))
def test_epochs_end_at_the_first_unit_with_enough_rows(
    epochs: list[list[int]], most_rows: int, epoch_rows: int, cuts: list[int]
) -> None:
    plan = plan_of(epochs, most_rows=most_rows, first_unit=5)
    stops = sorted({*(5 + cut for cut in cuts if cut > 0 and 5 + cut < plan.stop_unit), plan.stop_unit} - {5})
    ends = plan.ends_by_rows(epoch_rows, stops)
    assert set(stops) <= set(ends)
    assert list(ends) == sorted(set(ends))
    for begin, end in pairwise((5, *ends)):
        trained, last = plan.due_before(end) - plan.due_before(begin), plan.due_before(end) - plan.due_before(end - 1)
        assert trained - last < epoch_rows
        assert trained >= epoch_rows or end in stops


@given(plans, st.integers(1, 6), st.integers(0, 9), st.integers(0, 60))
def test_no_events_are_due_before_the_first_unit(
    epochs: list[list[int]], most_rows: int, first_unit: int, number: int
) -> None:
    plan = plan_of(epochs, most_rows=most_rows, first_unit=first_unit)
    units = range(first_unit, min(max(number, first_unit), plan.stop_unit))
    assert plan.due_before(number) == sum(len(own) for unit in units for own in streams(plan, 1, unit, unit + 1))


def test_an_epoch_without_rows_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        plan_of([[4]], most_rows=2).ends_by_rows(0, (2,))


def test_staleness_is_measured_from_the_newest_partition() -> None:
    plan = plan_of([[4], [4], [4]], batch_rows=2, most_rows=2)
    assert [plan.newest_secs(k) for k in range(7)] == [0.0, 0.0, 0.0, 10.0, 10.0, 20.0, 20.0]


def test_small_fragments_are_whole_pieces_of_a_few_hosts() -> None:
    """The shares of a unit are contiguous, so a fragment is read by one host, or two at a boundary."""
    plan = plan_of([[100] * 160], hosts=16, batch_rows=10)
    requests = [
        one for unit in range(plan.stop_unit) for rank in range(16) for one in plan.pieces(unit, plan.share(unit, rank, 16))
    ]  # fmt: skip
    assert len(requests) <= 160 + 16 * plan.stop_unit


@pytest.mark.parametrize(("fragments", "most_mb"), [(20_000, 3), (100_000, 8)])
def test_a_million_units_are_compact(fragments: int, most_mb: int) -> None:
    plan = plan_of([[1_000_000 // fragments * 100] * fragments], most_rows=100)
    assert plan.stop_unit == 1_000_000
    assert plan.share(999_999, 0, 1)[1] - plan.share(999_999, 0, 1)[0] == 100
    arrays = [getattr(plan, one.name) for one in fields(plan)] + [plan.due_starts, plan.row_starts]
    assert sum(one.nbytes for one in arrays if isinstance(one, np.ndarray)) < most_mb * 1_000_000


def test_a_unit_outside_the_plan_is_refused() -> None:
    plan = plan_of([[4]], batch_rows=2, most_rows=2, first_unit=10)
    for number in (9, 12):
        with pytest.raises(InputError) as caught:
            plan.share(number, 0, 1)
        assert caught.value.allowed == "[10, 12)"
