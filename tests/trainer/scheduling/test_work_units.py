from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.document_field import DocumentField
from trainer.errors import TornCheckpoint
from trainer.runs.epochs import plan_epochs
from trainer.scheduling.work_units import (
    NOTHING_TRAINED,
    PlannedFragment,
    TrainedRows,
    TrainedRun,
    UnitMode,
    UnitPlan,
    WorkUnit,
    extend_plan,
    plan_units,
    stops_by_events,
    stops_by_steps,
    units_of,
)
from transforms.errors import InputError

Pair = tuple[str, int, int]


def fragments_of(rows: list[int], version: int = 0) -> list[PlannedFragment]:
    return [
        PlannedFragment(f"p{n // 2}#{n % 2}", f"p{n // 2}", count, version, 10.0 * n) for n, count in enumerate(rows)
    ]


def units(plan: UnitPlan, first: int | None = None, stop: int | None = None) -> list[WorkUnit]:
    return [plan.unit(n) for n in range(first or plan.first_unit, plan.stop_unit if stop is None else stop)]


def events(some: list[WorkUnit]) -> list[Pair]:
    return [
        (one.fragment, row, one.label_version) for one in some for row in range(one.first_row, one.first_row + one.rows)
    ]


plans = st.lists(st.integers(0, 40), max_size=8)


@given(plans, st.integers(1, 15))
def test_units_are_all_rows_in_order(rows: list[int], unit_rows: int) -> None:
    fragments = fragments_of(rows)
    plan = plan_units(fragments, unit_rows=unit_rows)
    found = units(plan)
    assert events(found) == [(one.key, row, 0) for one in fragments for row in range(one.rows)]
    assert all(1 <= one.rows <= unit_rows for one in found)
    assert [one.number for one in found] == list(range(plan.stop_unit))
    for k in range(plan.stop_unit + 1):
        assert plan.rows_before(k) == sum(one.rows for one in found[:k])


@given(plans, st.integers(1, 6), st.integers(0, 30), st.integers(1, 5), st.integers(1, 5))
def test_the_stream_of_events_does_not_depend_on_hosts(
    rows: list[int], unit_rows: int, cut: int, hosts: int, others: int
) -> None:
    """A job with some hosts commits at a unit and goes on with other hosts."""
    plan = plan_units(fragments_of(rows), unit_rows=unit_rows)
    cut = min(cut, plan.stop_unit)
    before = [units_of(rank, hosts, 0, cut) for rank in range(hosts)]
    after = [units_of(rank, others, cut, plan.stop_unit) for rank in range(others)]
    assert all(number % hosts == rank for rank, own in enumerate(before) for number in own)
    assert all(number % others == rank for rank, own in enumerate(after) for number in own)
    merged = sorted(n for own in before for n in own) + sorted(n for own in after for n in own)
    assert merged == list(range(plan.stop_unit))


@given(plans, st.integers(1, 15), st.integers(0, 40), st.integers(1, 15), st.integers(1, 3))
def test_a_rest_can_be_planned_again_from_the_account(
    rows: list[int], unit_rows: int, cut: int, other_rows: int, passes: int
) -> None:
    """A commit between any two units, read by a job with other units."""
    fragments = fragments_of(rows)
    plan = plan_units(fragments, unit_rows=unit_rows, passes=passes)
    cut = min(cut, plan.stop_unit)
    trained = NOTHING_TRAINED.after(plan, 0, cut)
    rest = plan_units(fragments, unit_rows=other_rows, passes=passes, trained=trained, first_unit=cut)
    assert events(units(rest)) == events(units(plan, cut) if cut else units(plan))
    assert rest.first_unit == cut


@given(st.integers(0, 2**32))
def test_each_event_and_each_changed_label_is_trained_once(seed: int) -> None:
    """Data grows, labels change and commits happen in any order; plans grow, or are made again at a commit."""
    draw = random.Random(seed)
    fragments = fragments_of([draw.randint(0, 20) for _ in range(draw.randint(1, 4))])
    plan, trained, base, done = plan_units(fragments, unit_rows=5), NOTHING_TRAINED, NOTHING_TRAINED, 0
    seen: list[Pair] = []
    for _ in range(draw.randint(1, 6)):
        stop = draw.randint(done, plan.stop_unit)
        seen += events([plan.unit(n) for n in range(done, stop)])
        trained, done = trained.after(plan, done, stop), stop
        fragments = [replace(one, label_version=one.label_version + (draw.random() < 0.3)) for one in fragments]
        if draw.random() < 0.5:
            rows = [0] * len(fragments) + [draw.randint(1, 9)]
            fragments.append(fragments_of(rows)[-1])
        if draw.random() < 0.5:
            plan = extend_plan(plan, fragments, trained=base)
        else:
            plan, base = plan_units(fragments, unit_rows=draw.randint(1, 7), trained=trained, first_unit=done), trained
    seen += events([plan.unit(n) for n in range(done, plan.stop_unit)])
    trained = trained.after(plan, done, plan.stop_unit)
    assert max(Counter(seen).values(), default=1) == 1, "a pair of event and label version is trained once"
    assert {(key, row) for key, row, _ in seen} == {(one.key, row) for one in fragments for row in range(one.rows)}
    newest = {(key, row): version for key, row, version in seen}
    assert all(newest[one.key, row] == one.label_version for one in fragments for row in range(one.rows))
    assert plan_units(fragments, unit_rows=5, trained=trained).stop_unit == 0


def test_modes_choose_what_is_trained_and_in_which_order() -> None:
    old = fragments_of([4, 4])
    trained = NOTHING_TRAINED.after(plan_units(old, unit_rows=4), 0, 1)
    now = [replace(one, label_version=1) for one in old]

    def planned(*modes: UnitMode) -> list[tuple[str, UnitMode]]:
        return [(one.fragment, one.mode) for one in units(plan_units(now, unit_rows=4, trained=trained, modes=modes))]

    assert planned(UnitMode.NEW) == [("p0#1", UnitMode.NEW)]
    assert planned(UnitMode.RELABELLED) == [("p0#0", UnitMode.RELABELLED)]
    assert planned(UnitMode.RELABELLED, UnitMode.NEW) == [("p0#0", UnitMode.RELABELLED), ("p0#1", UnitMode.NEW)]


def test_a_plan_grows_without_changing_its_units() -> None:
    plan = plan_units(fragments_of([7, 3]), unit_rows=2)
    grown = extend_plan(plan, fragments_of([7, 3, 5]))
    assert units(grown)[: plan.stop_unit] == units(plan)
    assert [one.fragment for one in units(grown)[plan.stop_unit :]] == ["p1#0"] * 3
    assert grown.digest != plan.digest == plan_units(fragments_of([7, 3]), unit_rows=2).digest


def test_a_changed_label_does_not_count_as_a_pass() -> None:
    fragments = fragments_of([4])
    trained = NOTHING_TRAINED.after(plan_units(fragments, unit_rows=4, passes=2), 0, 2)
    now = [replace(one, label_version=1) for one in fragments]
    plan = plan_units(now, unit_rows=4, passes=2, trained=trained)
    assert [(one.mode, one.label_version) for one in units(plan)] == [(UnitMode.RELABELLED, 1)]
    trained = trained.after(plan, 0, 1)
    assert trained.runs == {"p0#0": (TrainedRun(4, 2, 1),)}
    assert plan_units(now, unit_rows=4, passes=2, trained=trained).stop_unit == 0


def test_epochs_end_at_partitions_of_a_grown_plan() -> None:
    one = plan_units([PlannedFragment("a#0", "a", 4)], unit_rows=2)
    grown = extend_plan(
        one, [PlannedFragment("a#0", "a", 4), PlannedFragment("b#0", "b", 4), PlannedFragment("c#0", "c", 4)]
    )
    assert stops_by_events(grown, 1, whole_partitions=True) == (2, 4, 6)


def test_epochs_end_after_so_many_events() -> None:
    plan = plan_units(fragments_of([10, 10, 10, 10, 10]), unit_rows=3)
    stops = stops_by_events(plan, 12)
    assert stops[-1] == plan.stop_unit
    sizes = np.diff([0, *(plan.rows_before(stop) for stop in stops)])
    assert sizes[:-1].min() >= 12
    assert sizes[:-1].max() < 12 + 3
    assert [plan.rows_before(stop) for stop in stops_by_events(plan, 12, whole_partitions=True)] == [20, 40, 50]
    assert stops_by_steps(plan, 2, batch_rows=3, hosts=2) == stops
    assert stops_by_events(plan, 12, first_unit=stops[0]) == stops[1:]
    assert stops_by_events(plan_units([], unit_rows=3), 12) == (0,)
    with pytest.raises(InputError):
        stops_by_events(plan, 0)


@given(plans, st.integers(1, 7), st.integers(1, 50), st.booleans())
def test_ends_of_epochs_ascend_to_the_end(rows: list[int], unit_rows: int, count: int, whole: bool) -> None:
    plan = plan_units(fragments_of(rows), unit_rows=unit_rows)
    stops = stops_by_events(plan, count, whole_partitions=whole)
    assert stops[-1] == plan.stop_unit
    assert list(stops) == sorted(set(stops))


@given(plans, st.integers(1, 7), st.integers(1, 50), st.integers(1, 3))
def test_epochs_of_whole_partitions_are_those_of_a_single_process(
    rows: list[int], unit_rows: int, count: int, passes: int
) -> None:
    fragments = [PlannedFragment(f"{n}#0", str(n), 1 + one) for n, one in enumerate(rows)]
    plan = plan_units(fragments, unit_rows=unit_rows, passes=passes)
    sizes = {one.partition: one.rows for one in fragments}
    epochs = plan_epochs([tuple(sizes)], partitions_per_epoch=1, passes=passes, events_per_epoch=count, rows=sizes)
    ends = np.cumsum([sum(sizes[key] for key in epoch.partitions) for epoch in epochs])
    stops = stops_by_events(plan, count, whole_partitions=True)
    assert [plan.rows_before(stop) for stop in stops] == (list(ends) or [0])


def test_staleness_is_measured_from_the_newest_partition() -> None:
    plan = plan_units(fragments_of([4, 4, 4]), unit_rows=2)
    assert [plan.newest_secs(k) for k in range(7)] == [0.0, 0.0, 0.0, 10.0, 10.0, 20.0, 20.0]


@pytest.mark.parametrize(("fragments", "most_mb"), [(20_000, 3), (100_000, 8)])
def test_a_million_units_are_compact(fragments: int, most_mb: int) -> None:
    rows = 1_000_000 // fragments * 100
    plan = plan_units(
        [PlannedFragment(str(n), str(n // 100), rows) for n in range(fragments)], unit_rows=100
    )  # fmt: skip
    assert plan.stop_unit == 1_000_000
    assert plan.nbytes < most_mb * 1_000_000
    assert plan.unit(999_999).rows == 100


@pytest.mark.parametrize("bad", [{"unit_rows": 0}, {"passes": 0}, {"passes": 256}, {"modes": [UnitMode.NEW] * 2}])
def test_bad_plans_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(InputError):
        plan_units([], **{"unit_rows": 5, **bad})  # type: ignore[arg-type]
    with pytest.raises(InputError):
        PlannedFragment("a", "p", -1)
    with pytest.raises(InputError, match="distinct"):
        plan_units([PlannedFragment("a", "p", 1)] * 2, unit_rows=5)


def test_a_unit_outside_the_plan_is_refused() -> None:
    plan = plan_units(fragments_of([4]), unit_rows=2, first_unit=10)
    for number in (9, 12):
        with pytest.raises(InputError) as caught:
            plan.unit(number)
        assert caught.value.allowed == "[10, 12)"


def test_the_position_of_a_commit_is_a_document() -> None:
    plan = plan_units(fragments_of([4, 4]), unit_rows=2)
    trained = NOTHING_TRAINED.after(plan, 0, 3)
    document = json.loads(json.dumps(plan.position_document(3, trained)))
    assert (document["next_unit"], document["rows"], document["plan"]) == (3, 6, plan.digest)
    assert TrainedRows.read(DocumentField(document["trained"], "position")) == trained
    assert document["trained"] == {"p0#0": [[4, 1, 0]], "p0#1": [[2, 1, 0]]}


@pytest.mark.parametrize(
    "runs",
    [
        3,
        [[1, 1]],
        [[1, 1, 0, 0]],
        [[0, 1, 0]],
        [[5, 1, 0], [5, 2, 0]],
        [[5, 1, 0], [4, 2, 0]],
        [[5, 256, 0]],
        [[2**31, 1, 0]],
        [[5, 0, 3]],
        [[5, 1, -1]],
        [[5, 1, -2]],
        [[True, 1, 0]],
        [[5.0, 1, 0]],
    ],
)
def test_a_damaged_account_is_refused(runs: object) -> None:
    with pytest.raises(TornCheckpoint):
        TrainedRows.read(DocumentField({"a": runs}, "position"))


def test_an_account_with_a_gap_is_kept() -> None:
    runs = {"a": (TrainedRun(3, 0, -1), TrainedRun(5, 2, 1))}
    read = TrainedRows.read(DocumentField(json.loads(json.dumps(TrainedRows(runs).to_document())), "x"))
    assert read.runs == runs
    plan = plan_units([PlannedFragment("a", "p", 6, 1)], unit_rows=9, trained=read)
    assert [(one.first_row, one.rows) for one in units(plan)] == [(0, 3), (5, 1)]
