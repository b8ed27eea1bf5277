"""Plans of jobs: equal shares of due events, wherever these are; plans and commits of earlier releases; damaged documents."""

from __future__ import annotations

import base64
import json
import zlib
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.late_log import Log
from tests.trainer.synthetic import Synthetic, config
from trainer.checkpoints.commit_manifest import JobPosition
from trainer.checkpoints.manifest import canonical_json
from trainer.errors import ConfigError, TornCheckpoint
from trainer.job.host.job_data import JobData
from trainer.run.preparation.job_plan import JobPlan, config_of, plan_job
from trainer.run.preparation.preparation import prepare_run
from trainer.run.progress.data_changes import REFUSE_CHANGES
from trainer.run.progress.due_stretches import stretches_of

BATCH_ROWS = 8


def plan_of(log, run_dir, *, hosts, unit_rows=1 << 16, **options):
    options = {"batch_rows": BATCH_ROWS, "partitions_per_epoch": 2, **options}
    prepared = prepare_run(log.solution, config(run_dir, **options), log.read_labels, changes=REFUSE_CHANGES, on_skip=pytest.fail)  # fmt: skip
    return prepared, JobPlan.from_bytes(plan_job(prepared, unit_rows=unit_rows, hosts=hosts).to_bytes(), "plan")


def rows_of(plan, places):
    """Pass, fragment and row of each stored event at these places."""
    units = plan.units
    return [
        (int(units.pass_number[units.stretch_of(one.place)]), one.fragment, row)
        for one in units.pieces(0, places)
        for row in range(one.first_row, one.first_row + one.rows)
    ]


def shares_of(plan, hosts, first, stop):
    units = plan.units
    return [
        [row for unit in range(first, stop) for row in rows_of(plan, units.share(unit, rank, hosts))]
        for rank in range(hosts)
    ]


@pytest.mark.parametrize("hosts", [1, 2, 3, 8])
@pytest.mark.parametrize("counted", [True, False])
def test_hosts_share_the_events_that_have_labels(tmp_path, hosts, counted):
    """Labels are missing at the end of one fragment and at random in another one, and a third has deleted events."""
    log, random = Log(4, 200), np.random.default_rng(3)
    paths = list(log.stored)
    log.hide(paths[0], range(60, 200))
    log.hide(paths[3], np.flatnonzero(random.random(200) < 0.3).tolist())
    log.retract(paths[5], range(20, 90), "deleted")
    prepared, plan = plan_of(log, tmp_path, hosts=hosts, count_events=counted, batch_rows_per_host=True)
    assert plan.units.due.sum() == prepared.planned_events
    assert len(plan.epochs) == 2
    trained = {path: log.live[path] & np.array([one is not None for one in log.stored[path]["__label__"].to_pylist()]) for path in paths}  # fmt: skip
    masks = {ref.key: trained[ref.fragment.path] for refs in prepared.fragments.values() for ref in refs}
    for first, stop in pairwise((0, *plan.stops)):
        due = [[row for row in own if masks[row[1]][row[2]]] for own in shares_of(plan, hosts, first, stop)]
        events = sum(map(len, due))
        assert len({row for own in due for row in own}) == events
        assert max(map(len, due)) <= 1.1 * events / hosts + 1
    everything = {row for own in shares_of(plan, hosts, 0, plan.stop_unit) for row in own}
    assert {(0, key, int(row)) for key, mask in masks.items() for row in np.flatnonzero(mask)} <= everything


@settings(max_examples=scaled(15))
@given(st.data(), st.booleans(), st.integers(1, 2))
def test_a_plan_knows_the_place_of_each_due_event(tmp_path_factory, data, counted, passes):
    """Whichever events have no label, are deleted, or were trained before: those that the readers deliver, in their order."""
    log, random = Log(3, 60), np.random.default_rng(data.draw(st.integers(0, 99)))
    for path in data.draw(st.sets(st.sampled_from(list(log.stored)), max_size=4)):
        log.hide(path, np.flatnonzero(random.random(log.stored[path].num_rows) < random.choice([0.05, 0.6])).tolist())
    path = data.draw(st.sampled_from(list(log.stored)))
    log.retract(path, range(*sorted(random.integers(0, 60, 2).tolist())), "deleted")
    prepared, plan = plan_of(log, tmp_path_factory.mktemp("run"), hosts=2, count_events=counted, passes=passes)
    wanted = [
        (epoch.number, ref.key, row)
        for epoch in prepared.remaining
        for ref in prepared.refs_of[epoch.number]
        for row in np.flatnonzero(prepared.trainable.of(ref.key)).tolist()
    ]
    job = JobData(plan, "run")
    units = plan.units
    places = job.places.of(np.arange(int(units.section_due[-1])))
    assert (np.diff(places) > 0).all()
    ends = dict(zip([one.epoch.number for one in plan.epochs], units.section_due[1:].tolist(), strict=True))
    found = []
    for number, place in enumerate(places.tolist()):
        stretch = units.stretch_of(place)
        row = int(units.first_row[stretch]) + place - int(units.row_starts[stretch])
        epoch = next(one for one, end in ends.items() if number < end)
        found.append((epoch, units.keys[units.fragment[stretch]], row))
    assert found == wanted
    for number in random.integers(0, len(places), 20).tolist():
        unit = units.unit_of(number)
        assert units.due_before(unit) <= number < units.due_before(unit + 1)


@settings(max_examples=scaled(200))
@given(
    st.integers(1, 300).flatmap(lambda rows: st.tuples(st.just(rows), st.sets(st.integers(0, rows - 1)))),
    st.integers(0, 40),
)
def test_due_events_are_spread_evenly_over_stretches(drawn, tolerance):
    rows, chosen = drawn
    due = np.array(sorted(chosen), np.int64)
    found = stretches_of(rows, due, tolerance)
    assert sum(count for _, _, count in found) == len(due)
    end = 0
    for first, size, count in found:
        assert end <= first
        end = first + size
        held = due[(due >= first) & (due < end)]
        assert len(held) == count >= 1
        expected = (np.arange(first, end) - first) * count / size
        true = np.searchsorted(held, np.arange(first, end))
        assert np.abs(true - expected).max() <= max(1, tolerance) + 1
    assert end <= rows


def of_earlier_release(plan, unit_rows):
    """The document of a plan as an earlier release wrote it: units of one stretch each."""
    document = json.loads(plan.to_bytes())
    rows = document["stretches"]["rows"]
    assert rows == document["stretches"].pop("due"), "all events are due"
    del document["most_rows"]
    del document["config"]["batch_rows_per_host"]
    counts = [-(-count // unit_rows) for count in rows]
    due = np.cumsum([0, *rows])
    for epoch, stop in zip(document["epochs"], np.cumsum([pair[1] for pair in document.pop("sections")]), strict=True):
        epoch[3] = sum(counts[: int(np.searchsorted(due, stop))])
    return {**document, "format": "headrace.plan/1", "unit_rows": unit_rows}, rows, counts


@settings(max_examples=scaled(30))
@given(st.data(), st.integers(1, 4), st.integers(1, 4))
def test_a_commit_of_an_earlier_release_goes_on_with_each_event_once(tmp_path_factory, data, before, after):
    """Its unit u belongs to the host of rank u modulo the hosts, and it names carried units by the first row that is not trained."""
    log = Synthetic(3, 40)
    _, made = plan_of(log, tmp_path_factory.mktemp("run"), hosts=2, passes=2, partitions_per_epoch=1)
    document, rows, counts = of_earlier_release(made, 23)
    plan = JobPlan.from_bytes(canonical_json(document), "plan")
    assert plan.stop_unit == sum(counts)
    assert config_of(plan, "run").batch_rows_per_host, "its hosts have batches of their own"
    units = [
        (stretch, k * rows[stretch] // count, (k + 1) * rows[stretch] // count)
        for stretch, count in enumerate(counts)
        for k in range(count)
    ]
    next_unit = data.draw(st.integers(0, plan.stop_unit))
    carried = []
    for unit in data.draw(st.sets(st.integers(0, max(0, next_unit - 1)), max_size=4)) if next_unit else ():
        _, first, stop = units[unit]
        carried.append((unit, data.draw(st.sampled_from([0, *range(first, stop)]))))
    hosts = tuple(f"h{k}" for k in range(before))
    job = JobPosition(1, next_unit, "plan", hosts, (), "0.9", carried_units=tuple(sorted(carried)))
    left = [rows_of(plan, places) for rank in range(after) for places in plan.carried_of(job, rank, after)]
    found = [*left, *shares_of(plan, after, next_unit, plan.stop_unit)]

    def row(stretch, at):
        return int(plan.units.pass_number[stretch]), plan.units.keys[plan.units.fragment[stretch]], at

    first_left = dict(carried)
    expected = [
        row(stretch, at)
        for unit, (stretch, first, stop) in enumerate(units)
        if unit >= next_unit or unit in first_left
        for at in range(max(first, first_left.get(unit, 0)), stop)
    ]
    assert sorted(one for own in found for one in own) == sorted(expected)
    if before == after:
        for rank in range(after):
            own = {one for places in plan.carried_of(job, rank, after) for one in rows_of(plan, places)}
            owned = [unit for unit in first_left if unit % before == rank]
            assert len(own) == sum(units[unit][2] - max(units[unit][1], first_left[unit]) for unit in owned)


def test_the_document_of_a_plan_is_read_as_it_was_written(tmp_path):
    _, plan = plan_of(Synthetic(3, 40), tmp_path, hosts=2, passes=2)
    assert JobPlan.from_bytes(plan.to_bytes(), "plan").to_bytes() == plan.to_bytes()
    earlier, _, _ = of_earlier_release(plan, 23)
    old = JobPlan.from_bytes(canonical_json(earlier), "plan")
    again = JobPlan.from_bytes(old.to_bytes(), "plan")
    assert [old.units.share(k, 1, 3) for k in range(old.stop_unit)] == [again.units.share(k, 1, 3) for k in range(again.stop_unit)]  # fmt: skip


def test_sections_that_do_not_fit_the_stretches_are_torn(tmp_path):
    _, plan = plan_of(Synthetic(3, 40), tmp_path, hosts=2)
    document = json.loads(plan.to_bytes())
    units, due = document["sections"][0]
    random = Random(7)
    for wrong in ([units], [units, due + 1], [due + 1, due], [0, due], [-1, due], [units, due, 0], [units, "x"], None):
        sections = [wrong, *document["sections"][1:]]
        with pytest.raises(TornCheckpoint):
            JobPlan.from_bytes(canonical_json({**document, "sections": sections}), "plan")
    column = document["stretches"]["due"]
    for value in (0, column[0] + 1, -1, 1.5):
        at = random.randrange(len(column))
        changed = [*column[:at], value, *column[at + 1 :]]
        stretches = {**document["stretches"], "due": changed}
        with pytest.raises(TornCheckpoint):
            JobPlan.from_bytes(canonical_json({**document, "stretches": stretches}), "plan")
    with pytest.raises(TornCheckpoint, match="known format"):
        JobPlan.from_bytes(canonical_json({**document, "format": "headrace.plan/3"}), "plan")


def test_damaged_bits_of_events_are_torn(tmp_path):
    log = Log(2, 60)
    log.hide(next(iter(log.stored)), [3, 7])
    _, plan = plan_of(log, tmp_path, hosts=2)
    assert list(plan.trainable) == [0]
    document = json.loads(plan.to_bytes())
    ((number, text),) = document["trainable"]
    long, none = (base64.b64encode(zlib.compress(content)).decode() for content in (bytes(9), b""))
    for wrong in (None, [[number]], [[number, text, 1]], [[-1, text]], [[4, text]], [[1, text]], [[number, "?"]], [[number, text[:8]]],
                  [[number, long]], [[number, none]], [[number, 7]]):  # fmt: skip
        with pytest.raises(TornCheckpoint):
            JobPlan.from_bytes(canonical_json({**document, "trainable": wrong}), "plan")


def test_hosts_with_batches_of_their_own_need_no_bits(tmp_path):
    log = Log(2, 60)
    log.hide(next(iter(log.stored)), [3, 7])
    _, plan = plan_of(log, tmp_path, hosts=2, batch_rows_per_host=True)
    assert "batch_rows_per_host" not in plan.config, "as documents of earlier releases"
    assert not plan.trainable


def test_hosts_that_share_a_batch_need_an_event_each(tmp_path):
    with pytest.raises(ConfigError, match="at least the number of hosts"):
        plan_of(Log(2, 60), tmp_path, hosts=3, batch_rows=2)
    assert plan_of(Log(2, 60), tmp_path, hosts=3, batch_rows=2, batch_rows_per_host=True)
    assert plan_of(Log(2, 60), tmp_path, hosts=3, batch_rows=3)
