"""Simulated cores by a partition plan give the bits of one engine, whatever the plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.tables.routes.partitioned.plans import mixed_plan, plan_of, plans
from tests.trainer.tables.routes.partitioned.test_partitioned_engine import FEATURES as PLAIN
from tests.trainer.tables.routes.partitioned.test_partitioned_engine import (
    ROWS,
    batches,
    one,
    same_states,
    train_without_rounding,
    two,
)
from tests.trainer.tables.test_engine import batch_of
from tests.trainer.tables.test_snapshot import state_of
from tests.trainer.thread_exchange import on_hosts
from trainer.errors import BadBatch, ConfigError
from trainer.planning.plan import PartitionPlan, Slice, TablePlan, cyclic_plan
from trainer.tables import FTRL, SGD, Adam, CpuEngine, FeatureSpec, Quantization, RowWiseAdagrad, TableSpec
from trainer.tables.routes.exchange import OneHost
from trainer.tables.routes.partitioned.engine import PartitionedEngine
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.partitioned.static_buffers import limits_from
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tables.spec import tables_of

FEATURES = (
    *PLAIN,
    FeatureSpec("e", TableSpec("four", ROWS, 4, RowWiseAdagrad(0.1), "sum")),
    FeatureSpec("f", TableSpec("five", 3, 1, SGD(0.5), "sum")),
)
TABLES = tables_of(FEATURES)
SAVED = [(3, 3), (5, 5), (2, 4), (4, 1), (1, 0)]
MEANS = (
    FeatureSpec("a", replace(one, combiner="mean")),
    FeatureSpec("b", replace(two, combiner="sqrtn", quantization=Quantization(64, -1.0, 1.0))),
    FeatureSpec("c", TableSpec("six", ROWS, 4, FTRL(0.1), "mean"), max_sequence_length=2),
)


def planned(plan, features=FEATURES, **options):
    return PartitionedEngine(features, seed=3, cores=plan.cores, plan=plan, **options)


def normal_gradients(batch, width, seed):
    return np.random.default_rng(seed).normal(size=(batch.rows, width)).astype(np.float32)


@pytest.mark.medium
@settings(max_examples=scaled(80))
@given(st.lists(batches(FEATURES), min_size=1, max_size=3), plans(FEATURES))
def test_a_plan_changes_nothing_where_sums_have_no_rounding(trained, plan):
    whole, parted = CpuEngine(FEATURES, seed=3), planned(plan)
    train_without_rounding(whole, parted, trained)
    for table in TABLES:
        rows = np.arange(table.vocabulary_size)[::-1]
        assert parted.weights_of(table.name, rows).tobytes() == whole.weights_of(table.name, rows).tobytes()


@pytest.mark.medium
@settings(max_examples=scaled(50))
@given(st.lists(batches(MEANS), min_size=2, max_size=3), plans(MEANS))
def test_activations_are_equal_and_updates_repeat(trained, plan):
    whole, engines = CpuEngine(MEANS, seed=3), [planned(plan, MEANS) for _ in range(2)]
    for seed, batch in enumerate(trained):
        for engine in engines:
            engine.load_state(whole.state())
            assert engine.lookup(batch).tobytes() == whole.lookup(batch).tobytes()
        for engine in (whole, *engines):
            engine.apply_gradients(batch, normal_gradients(batch, whole.width, seed))
        same_states(*(engine.state() for engine in engines))
        for table, other in zip(whole.state().values(), engines[0].state().values(), strict=True):
            assert np.array_equal(table.rows, other.rows)
            np.testing.assert_allclose(other.weights, table.weights, rtol=1e-3, atol=1e-4)


@settings(max_examples=scaled(30))
@given(st.lists(batches(FEATURES), min_size=1, max_size=3), plans(FEATURES), plans(FEATURES))
def test_a_state_moves_to_another_plan(trained, before, after):
    parted, moved, whole = planned(before), planned(after), CpuEngine(FEATURES, seed=3)
    for seed, batch in enumerate(trained):
        parted.apply_gradients(batch, normal_gradients(batch, parted.width, seed))
    for engine in (moved, whole):
        engine.load_state(parted.state())
        same_states(engine.state(), parted.state())
        assert engine.lookup(batch).tobytes() == parted.lookup(batch).tobytes()


@pytest.mark.medium
@settings(max_examples=scaled(40))
@given(st.lists(batches(FEATURES), min_size=2, max_size=4), plans(FEATURES), st.integers(1, 200))
def test_a_snapshot_is_of_its_moment(trained, plan, range_bytes):
    """Batches are trained before the snapshot, and between the tables that are read."""
    engine = planned(plan)
    gradients = [np.full((batch.rows, engine.width), 2.0, np.float32) for batch in trained]
    engine.apply_gradients(trained[0], gradients[0])
    before = engine.state()
    snapshot = replace(engine.begin_snapshot(most_bytes=1 << 24), range_bytes=range_bytes)
    assert snapshot.counts == tuple(len(table.rows) for table in before.values())
    found = [[] for _ in TABLES]
    for t, parts in enumerate(found):
        for part in snapshot.table(t):
            parts.append(part)
            for batch, own in zip(trained[1:], gradients[1:], strict=True):
                engine.apply_gradients(batch, own)
    for parts, table, (dim, slot_dim) in zip(found, before.values(), SAVED, strict=True):
        assert all(
            4 * (dim + slot_dim) * len(part.rows) <= max(range_bytes, 4 * (dim + slot_dim)) * plan.cores
            for part in parts
        )
        for name in ("rows", "weights", "slots"):
            joined = b"".join(getattr(part, name).tobytes() for part in parts)
            assert joined == getattr(table, name).tobytes(), name
    # The snapshot has ended on all cores: another one finds the rows of now.
    again = state_of(engine.begin_snapshot(most_bytes=0), SAVED)
    for parts, table in zip(again, engine.state().values(), strict=True):
        assert [part.tobytes() for part in parts] == [table.rows.tobytes(), table.weights.tobytes(), table.slots.tobytes()]  # fmt: skip


def test_a_snapshot_that_was_read_does_not_hold_training():
    """Also on the cores that have copies only, or no rows at all."""
    engine = planned(mixed_plan(FEATURES, 4))
    batch = batch_of([[[1, 2], [3]], [[4], [5]], [[6], [7]], [[1], [2]], [[3], []], [[0], [1, 2]]])
    gradients = np.ones((2, engine.width), np.float32)
    engine.apply_gradients(batch, gradients)
    state_of(engine.begin_snapshot(most_bytes=0), SAVED)
    engine.apply_gradients(batch, gradients)
    assert engine.statistics()["a"].batches == 2


def test_copies_of_a_replicated_table_stay_equal():
    """Cores that ask one copy and cores that ask another one see the same bits."""
    table = TableSpec("t", 5, 3, Adam(0.1), "sum")
    features = [FeatureSpec("f", table)]
    plan = PartitionPlan(5, (TablePlan("t", 5, 3, (Slice(0, 3, (3, 1, 4)),), True),))
    engine = planned(plan, features)
    for seed in range(4):
        batch = batch_of([[[k % 5, 0, (k + seed) % 5] for k in range(10)]])
        engine.apply_gradients(batch, normal_gradients(batch, 3, seed))
    same = engine.lookup(batch_of([[[0, 1, 2, 3, 4]] * 5]))
    assert len({row.tobytes() for row in same}) == 1
    copies = [engine._cores[core].part_weights_of(0, np.arange(5))[1].tobytes() for core in (3, 1, 4)]
    assert copies[0] == copies[1] == copies[2]
    assert [len(engine._cores[core].part_weights_of(0, np.arange(5))[1]) for core in (0, 2)] == [0, 0]


@settings(max_examples=scaled(30))
@given(st.lists(batches(FEATURES), min_size=1, max_size=2), plans(FEATURES))
def test_the_stacks_of_a_plan_have_limits_and_counters(looked_up, plan):
    engine = planned(plan)
    if plan.stacks:
        assert list(engine.traffic) == ["_".join(stack) for stack in plan.stacks]
    for batch in looked_up:
        engine.lookup(batch)
    counted = engine.traffic
    limited = planned(plan, settings=limits_from(counted, spare=1.0))
    for batch in looked_up:
        assert limited.lookup(batch).tobytes() == engine.lookup(batch).tobytes()
    assert all(held.rows == counted[name].rows for name, held in limited.traffic.items())


def test_each_slice_of_columns_is_asked_for_on_its_own():
    plan = plan_of(TABLES, 2, {"two": (Slice(0, 3, (0,)), Slice(3, 2, (1,)))}, stacks=tuple((t.name,) for t in TABLES))
    engine = planned(plan)
    engine.lookup(batch_of([[[]], [[4, 4, 7]], [[]], [[]], [[]], [[]]]))
    assert (engine.traffic["two"].rows, engine.traffic["two"].most_rows) == (4, 2)


@settings(max_examples=scaled(15))
@given(batches(FEATURES), st.integers(1, 4), st.data())
def test_hosts_follow_a_plan(batch, hosts, data):
    plan = data.draw(plans(FEATURES, hosts))
    whole = CpuEngine(FEATURES, seed=3)
    expected = whole.lookup(batch)
    whole.apply_gradients(batch, np.ones_like(expected))
    none = batch_of([[] for _ in FEATURES])

    def work(exchange):
        parts = TableParts(TABLES, hosts, plan)
        tables, own = ShardedTables(FEATURES, seed=3, exchange=exchange, parts=parts), none
        if exchange.rank == hosts - 1:
            own = batch
        found = tables.lookup(own)
        tables.apply_gradients(own, np.ones_like(found))
        return found, [[tables.part_state(p)] for p in range(len(parts.parts))]

    results = on_hosts(hosts, work)
    assert results[-1][0].tobytes() == expected.tobytes()
    parts = TableParts(TABLES, hosts, plan)
    states = {
        table.name: parts.join(t, [[one_ for _, held in results for one_ in held[p]] for p in parts.of_table(t)])
        for t, table in enumerate(TABLES)
    }
    same_states(whole.state(), states)


def test_one_core_does_not_save_parts_of_rows():
    plan = plan_of(TABLES, 1, {"one": (Slice(0, 2, (0,)), Slice(2, 1, (0,)))})
    tables = ShardedTables(FEATURES, seed=3, exchange=OneHost(), parts=TableParts(TABLES, 1, plan))
    for attempt in (tables.state, lambda: tables.begin_snapshot(most_bytes=0)):
        with pytest.raises(ConfigError, match="rows that one core saves must be whole") as caught:
            attempt()
        assert caught.value.where == "table one"


OTHER = [(table.name, table.vocabulary_size, table.dim) for table in TABLES]


@pytest.mark.parametrize(
    ("plan", "said", "where"),
    [
        (cyclic_plan(OTHER, 3), "as many cores as the engine", None),
        (cyclic_plan(OTHER[1:], 2), "a plan must have the table", None),
        (cyclic_plan([("one", ROWS, 4), *OTHER[1:]], 2), "as large as the engine's", "table one"),
        (plan_of(TABLES, 2, {"four": (Slice(0, 2, (0,)), Slice(2, 2, (1,)))}), "row-wise optimizer", "table four"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(plan, said, where):
    with pytest.raises(ConfigError, match=said) as caught:
        PartitionedEngine(FEATURES, seed=3, cores=2, plan=plan)
    assert where is None or caught.value.where == where


def test_stacks_of_a_plan_contradict_disabled_stacking():
    plan = plan_of(TABLES, 2, {}, stacks=(tuple(table.name for table in TABLES),))
    with pytest.raises(ConfigError, match="disable_table_stacking must be False"):
        planned(plan, settings=SparseCoreSettings(disable_table_stacking=True))


def test_a_plan_may_have_more_tables():
    plan = plan_of(TABLES, 2, {}, stacks=(("one", "two"), ("three", "four"), ("five",)))
    engine = planned(plan, FEATURES[:1])
    assert list(engine.traffic) == ["one"]
    with pytest.raises(BadBatch, match="row must lie in its table"):
        engine.weights_of("one", np.array([ROWS]))
    with pytest.raises(ConfigError, match="must be one of the engine's"):
        engine.weights_of("two", np.array([0]))
