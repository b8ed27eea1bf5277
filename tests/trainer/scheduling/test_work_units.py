from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.scheduling.work_units import UnitPlan, units_of
from transforms.errors import InputError


def plan_of(rows: list[int], *, unit_rows: int, passes: int = 1, first_unit: int = 0) -> UnitPlan:
    """All rows of fragments, ``passes`` times, two fragments to a partition; a fragment without rows has no stretch."""
    stretches = [n for _ in range(passes) for n, count in enumerate(rows) if count]
    return UnitPlan(
        unit_rows=unit_rows,
        keys=tuple(f"p{n // 2}#{n % 2}" for n in range(len(rows))),
        partitions=np.arange(len(rows), dtype=np.int32) // 2,
        end_secs=10.0 * np.arange(len(rows)),
        fragment=np.array(stretches, np.int32),
        first_row=np.zeros(len(stretches), np.int32),
        rows=np.array([rows[n] for n in stretches], np.int32),
        pass_number=np.repeat(np.arange(passes, dtype=np.uint8), len(stretches) // passes),
        first_unit=first_unit,
    )


plans = st.lists(st.integers(0, 40), max_size=8)


@given(plans, st.integers(1, 15), st.integers(1, 3))
def test_units_are_all_rows_in_order(rows: list[int], unit_rows: int, passes: int) -> None:
    plan = plan_of(rows, unit_rows=unit_rows, passes=passes, first_unit=7)
    found = [plan.unit(number) for number in range(7, plan.stop_unit)]
    events = [
        (one.fragment, row, one.pass_number) for one in found for row in range(one.first_row, one.first_row + one.rows)
    ]
    assert events == [
        (plan.keys[n], row, number) for number in range(passes) for n, count in enumerate(rows) for row in range(count)
    ]
    assert all(1 <= one.rows <= unit_rows for one in found)
    assert [one.number for one in found] == list(range(7, plan.stop_unit))
    for k in range(len(found) + 1):
        assert plan.rows_before(7 + k) == sum(one.rows for one in found[:k])


@given(plans, st.integers(1, 6), st.integers(0, 30), st.integers(1, 5), st.integers(1, 5))
def test_the_stream_of_events_does_not_depend_on_hosts(
    rows: list[int], unit_rows: int, cut: int, hosts: int, others: int
) -> None:
    """A job with some hosts commits at a unit and goes on with other hosts."""
    plan = plan_of(rows, unit_rows=unit_rows)
    cut = min(cut, plan.stop_unit)
    before = [units_of(rank, hosts, 0, cut) for rank in range(hosts)]
    after = [units_of(rank, others, cut, plan.stop_unit) for rank in range(others)]
    assert all(number % hosts == rank for rank, own in enumerate(before) for number in own)
    assert all(number % others == rank for rank, own in enumerate(after) for number in own)
    merged = sorted(n for own in before for n in own) + sorted(n for own in after for n in own)
    assert merged == list(range(plan.stop_unit))


@given(plans, st.integers(1, 6), st.integers(1, 60), st.lists(st.integers(0, 60), max_size=3))
def test_epochs_end_at_the_first_unit_with_enough_rows(
    rows: list[int], unit_rows: int, epoch_rows: int, cuts: list[int]
) -> None:
    plan = plan_of(rows, unit_rows=unit_rows, first_unit=5)
    stops = sorted({*(5 + cut for cut in cuts if cut > 0 and 5 + cut < plan.stop_unit), plan.stop_unit} - {5})
    ends = plan.ends_by_rows(epoch_rows, stops)
    assert set(stops) <= set(ends)
    assert list(ends) == sorted(set(ends))
    for begin, end in pairwise((5, *ends)):
        trained, last = plan.rows_before(end) - plan.rows_before(begin), plan.unit(end - 1).rows
        assert trained - last < epoch_rows
        assert trained >= epoch_rows or end in stops


def test_an_epoch_without_rows_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        plan_of([4], unit_rows=2).ends_by_rows(0, (2,))


def test_staleness_is_measured_from_the_newest_partition() -> None:
    plan = plan_of([4, 4, 4], unit_rows=2)
    assert [plan.newest_secs(k) for k in range(7)] == [0.0, 0.0, 0.0, 10.0, 10.0, 20.0, 20.0]


@pytest.mark.parametrize(("fragments", "most_mb"), [(20_000, 3), (100_000, 8)])
def test_a_million_units_are_compact(fragments: int, most_mb: int) -> None:
    plan = plan_of([1_000_000 // fragments * 100] * fragments, unit_rows=100)
    assert plan.stop_unit == 1_000_000
    assert plan.unit(999_999).rows == 100
    arrays = [getattr(plan, one.name) for one in fields(plan)] + [plan.unit_starts, plan.row_starts]
    assert sum(one.nbytes for one in arrays if isinstance(one, np.ndarray)) < most_mb * 1_000_000


def test_a_unit_outside_the_plan_is_refused() -> None:
    plan = plan_of([4], unit_rows=2, first_unit=10)
    for number in (9, 12):
        with pytest.raises(InputError) as caught:
            plan.unit(number)
        assert caught.value.allowed == "[10, 12)"
