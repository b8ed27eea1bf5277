"""The planner: whole plans within memory, near their bound, and clear refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.planning.table_facts import table
from trainer.errors import ConfigError
from trainer.planning.loads import load_imbalance, loads_of
from trainer.planning.plan import PartitionPlan, Slice, TablePlan, cyclic_plan
from trainer.planning.plan_changes import moved_share
from trainer.planning.plan_document import plan_bytes
from trainer.planning.planner import make_plan
from trainer.planning.topologies import topology_of
from trainer.planning.ways import bound_of, ways_of
from trainer.planning.work import TableWork, Way

FOUR = topology_of("cpu:4")
TWO_TABLES = (table("a", 4, 64, exponent=0.0), table("b", 4, 64, exponent=0.0))


def plan_by_table(tables, cores):
    return PartitionPlan(
        cores,
        tuple(
            TablePlan(one.name, one.rows, one.columns, (Slice(0, one.columns, (k % cores,)),))
            for k, one in enumerate(tables)
        ),
    )


def test_equation_1():
    assert load_imbalance(np.array([1.0, 1.0, 0.0, 0.0])) == 2
    assert load_imbalance(np.array([1.0, 1.0])) == 1
    assert load_imbalance(np.zeros(3)) == 1


def test_the_worked_example_of_the_paper():
    """Two tables of 4 x 64 on four cores: a table on a core has an imbalance of 2, their columns on two cores each 1."""
    assert loads_of(plan_by_table(TWO_TABLES, 4), TWO_TABLES, FOUR, 1024).imbalance == pytest.approx(2)
    halves = tuple(
        TablePlan(one.name, 4, 64, (Slice(0, 32, (2 * k,)), Slice(32, 32, (2 * k + 1,))))
        for k, one in enumerate(TWO_TABLES)
    )
    assert loads_of(PartitionPlan(4, halves), TWO_TABLES, FOUR, 1024).imbalance == pytest.approx(1)
    busy = replace(FOUR, rates=replace(FOUR.rates, shard_secs=0.0))
    assert make_plan(TWO_TABLES, busy, 100_000).loads.imbalance == pytest.approx(1)


TABLES = st.lists(
    st.builds(
        table,
        rows=st.integers(1, 100_000),
        columns=st.integers(1, 380),
        valency=st.floats(0, 50),
        exponent=st.sampled_from([0.0, 0.8, 1.1]),
        row_slots=st.integers(0, 1),
    ),
    min_size=1,
    max_size=8,
).map(lambda found: tuple(replace(one, name=f"t{k}") for k, one in enumerate(found)))


@pytest.mark.medium
@given(TABLES, st.sampled_from([1, 2, 3, 8, 17]), st.sampled_from([64, 4096]))
@settings(max_examples=scaled(60))
def test_a_plan_has_all_tables_and_keeps_its_bound(tables, cores, events):
    topology = topology_of(f"cpu:{cores}")
    planned = make_plan(tables, topology, events)
    assert [one.name for one in planned.plan.tables] == [one.name for one in tables]
    assert planned.loads.step_secs >= planned.bound_secs * (1 - 1e-3)
    for facts, one in zip(tables, planned.plan.tables, strict=True):
        assert facts.can_split_columns or len(one.slices) == 1
        rows = {shard.place: shard.rows for shard in one.shards() if shard.slice_ is one.slices[0]}
        assert sum(rows.values()) == facts.rows * (cores if one.is_replicated else 1)
    held = sum(
        one.table_bytes * (cores if kept.is_replicated else 1)
        for one, kept in zip(tables, planned.plan.tables, strict=True)
    )
    assert planned.loads.core_bytes.sum() == held


@given(TABLES, st.sampled_from([2, 5]))
@settings(max_examples=scaled(20))
def test_no_other_plan_is_below_the_bound(tables, cores):
    topology = topology_of(f"cpu:{cores}")
    bound = bound_of([ways_of(TableWork(one, topology, 512)) for one in tables], topology).step_secs
    cyclic = cyclic_plan([(one.name, one.rows, one.columns) for one in tables], cores)
    for plan in (plan_by_table(tables, cores), cyclic):
        if all(one.rows >= cores for one in tables):
            assert loads_of(plan, tables, topology, 512).step_secs >= bound * (1 - 1e-3)


def test_equal_problems_have_equal_plans():
    tables = tuple(table(f"t{k}", 10_000 + k, 32, valency=1 + k % 5) for k in range(12))
    first, second = (make_plan(tables, topology_of("cpu:3"), 2048) for _ in range(2))
    assert plan_bytes(first.plan) == plan_bytes(second.plan)


def test_statistics_change_the_plan():
    """A table that is much used is spread; with the assumption that all are used alike it is not."""
    used = tuple(table(f"t{k}", 50_000, 64, valency=50.0 if k == 3 else 0.1) for k in range(8))
    assumed = tuple(table(f"t{k}", 50_000, 64, exponent=0.0) for k in range(8))
    topology = topology_of("gpu:8")
    blind, fed = (make_plan(tables, topology, 8192).plan for tables in (assumed, used))
    assert len(fed.of_table("t3").slices[0].cores) * len(fed.of_table("t3").slices) == 8
    assert loads_of(fed, used, topology, 8192).step_secs < 0.7 * loads_of(blind, used, topology, 8192).step_secs


def test_tables_that_do_not_fit_are_refused_with_what_is_enough():
    tables = (table("large", 1_000_000, 128), table("small", 1000, 8))
    topology = replace(topology_of("cpu:4"), memory_bytes=100 << 20)
    with pytest.raises(ConfigError) as caught:
        make_plan(tables, topology, 1024)
    error = caught.value
    assert error.what == "a core's memory must hold its share of each table"
    assert error.where == "table large on cpu:4"
    assert error.next_step.startswith("take 10 cores, or give each core 0.24 GiB; the largest table is large")
    make_plan(tables, replace(topology_of("cpu:10"), memory_bytes=100 << 20), 1024)
    make_plan(tables, replace(topology, memory_bytes=round(0.24 * (1 << 30))), 1024)


def test_many_tables_that_do_not_fit_together_are_refused():
    tables = tuple(table(f"t{k}", 100_000, 128) for k in range(10))
    with pytest.raises(ConfigError, match="its share of all tables with their slots") as caught:
        make_plan(tables, replace(topology_of("cpu:4"), memory_bytes=150 << 20), 1024)
    assert "0.24 GiB on a core" in str(caught.value.value)
    assert "give each core 0.24 GiB" in caught.value.next_step
    make_plan(tables, replace(topology_of("cpu:4"), memory_bytes=round(0.24 * (1 << 30))), 1024)


def test_memory_that_just_suffices_is_used():
    tables = tuple(table(f"t{k}", 100_000 + 7919 * k, 64, valency=1 + k) for k in range(9))
    total = sum(one.table_bytes for one in tables)
    planned = make_plan(tables, replace(topology_of("cpu:4"), memory_bytes=int(total / 4 * 1.02)), 1024)
    assert planned.loads.core_bytes.max() <= total / 4 * 1.02


@pytest.mark.parametrize("text", ["cpu", "cpu:0", "cpu:99999", "v9:2x2", "v5p:3x3", "gpu:-1", ""])
def test_unknown_topologies_are_refused(text):
    with pytest.raises(ConfigError):
        topology_of(text)


def test_a_slice_has_its_sparse_cores():
    found = topology_of("v5p:4x4x4")
    assert found.cores == 256
    assert found.memory_bytes == int(95 * (1 << 30) * 0.75) // 4


def test_a_copy_on_a_slice_costs_the_sums_of_all_its_rows():
    """Between devices a ring sends and receives them two times; a row counts as one value more, the ids that it has."""
    slice_ = topology_of("v5p:2x2x1")
    assert (slice_.cores, slice_.device_cores) == (16, 4)
    for rows in (10, 1000):
        work, way = TableWork(table("t", rows, 64), slice_, 4096), Way(is_replicated=True)
        ((lookup, exchange, update),) = work.secs(way, 64)
        assert exchange == pytest.approx(rows / 4 * 65 * 4 * 4 * (3 / 4) * slice_.rates.wire_byte_secs)
        assert lookup > 0
        assert update > 0
    few, many = table("few", 200, 128, exponent=0.0), table("many", 1_000_000, 128, exponent=0.0)
    found = make_plan((few, many), slice_, 65_536).plan
    assert [one.is_replicated for one in found.tables] == [True, False]


@pytest.mark.parametrize("bad", [(), (table("a"), table("a"))])
def test_tables_must_be_there_once(bad):
    with pytest.raises(ConfigError, match="tables with different names"):
        make_plan(bad, FOUR, 64)


def test_the_share_of_values_that_move():
    before = TablePlan("t", 100_000, 64, (Slice(0, 64, (2, 1, 3, 0)),))
    after = replace(before, slices=(Slice(0, 64, (2, 1, 3, 0, 4, 5)),))
    assert moved_share(before, after) == pytest.approx(2 / 3, abs=0.03)
    small = replace(before, rows=120), replace(after, rows=120)
    assert moved_share(*small) == pytest.approx(2 / 3)
    halves = replace(small[0], slices=(Slice(0, 32, (2, 1, 3, 0)), Slice(32, 32, (5,))))
    assert moved_share(small[0], halves) == pytest.approx(1 / 2)
    copies = replace(small[0], slices=(Slice(0, 64, (0, 1, 2, 3)),), is_replicated=True)
    assert moved_share(small[0], copies) == 0
