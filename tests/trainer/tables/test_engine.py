from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.errors import BadBatch, ConfigError, TornCheckpoint
from trainer.tables import (
    SGD,
    Adagrad,
    Constant,
    CpuEngine,
    FeatureSpec,
    IdBatch,
    Normal,
    TableSpec,
    TableState,
    Uniform,
    batch_checks,
)
from trainer.tables.routes.exchange import OneHost
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.spec import tables_of
from trainer.tables.stores.tiered.tiered_store import TieredStore

ROWS = 7
KINDS = {
    "cpu": lambda features, seed: CpuEngine(features, seed=seed),
    "tiered": lambda features, seed: ShardedTables(
        features, seed=seed, exchange=OneHost(), store=_tiered(features, seed)
    ),
}


def _tiered(features, seed):
    hot_rows = {feature.table.name: 3 for feature in features}
    return TieredStore(tables_of(features), seed=seed, hot_rows=hot_rows, move_lookups=0.0)


_make = KINDS["cpu"]


@pytest.fixture(scope="module", params=KINDS, autouse=True)
def kind(request):
    """Every test runs with each engine; a module's fixture, which Hypothesis allows."""
    global _make
    _make = KINDS[request.param]
    return request.param


def engine_of(*, combiner="mean", optimizer=None, shared=True, seed=3, dim=3):
    optimizer = optimizer or Adagrad(0.1, 0.01)
    one = TableSpec("one", ROWS, dim, optimizer, combiner)
    two = one if shared else TableSpec("two", ROWS, 2, optimizer, combiner)
    return _make([FeatureSpec("a", one), FeatureSpec("b", two)], seed)


def batch_of(bags: list[list[list[int]]]) -> IdBatch:
    """From one list of bags a feature."""
    ids = [i for feature in bags for bag in feature for i in bag]
    offsets, total = [], 0
    for feature in bags:
        ends = [total]
        for bag in feature:
            total += len(bag)
            ends.append(total)
        offsets.append(ends)
    return IdBatch(np.array(ids, np.int64), np.array(offsets, np.int64).reshape(len(bags), -1))


def reference_lookup(engine: CpuEngine, bags) -> np.ndarray:
    """float64, the slow obvious way."""
    out = np.zeros((len(bags[0]), engine.width))
    for feature, feature_bags in zip(engine.features, bags, strict=True):
        columns = engine.columns[feature.name]
        for b, bag in enumerate(feature_bags):
            if bag:
                rows = engine.store.weights_of(feature.table.name, np.array(bag)).astype(np.float64)
                out[b, columns] = rows.sum(axis=0) / (len(bag) if feature.table.combiner == "mean" else 1)
    return out


def reference_update(weights, slots, optimizer, gradient_by_row):
    """float64 weights and slots after one update of each row with its summed gradient."""
    for row, g in gradient_by_row.items():
        if isinstance(optimizer, Adagrad):
            slots[row] += g * g
            weights[row] -= optimizer.learning_rate * g / np.sqrt(slots[row])
        else:
            weights[row] -= optimizer.learning_rate * g
    return weights, slots


def gradients_by_row(engine, bags, gradients):
    """Table name to row to summed float64 gradient."""
    summed: dict[str, dict[int, np.ndarray]] = {table.name: {} for table in engine.tables}
    for feature, feature_bags in zip(engine.features, bags, strict=True):
        for b, bag in enumerate(feature_bags):
            share = gradients[b, engine.columns[feature.name]].astype(np.float64)
            share = share / (len(bag) if feature.table.combiner == "mean" and bag else 1)
            for row in bag:
                of_table = summed[feature.table.name]
                of_table[row] = of_table.get(row, 0.0) + share
    return summed


bag = st.lists(st.integers(0, ROWS - 1), max_size=5)
two_features = st.integers(1, 6).flatmap(
    lambda events: st.lists(st.lists(bag, min_size=events, max_size=events), min_size=2, max_size=2)
)
optimizers = st.sampled_from([SGD(0.3), Adagrad(0.1, 0.01), Adagrad(0.5, 1e-6)])


@settings(max_examples=scaled(60))
@given(bags=two_features, combiner=st.sampled_from(["sum", "mean"]), shared=st.booleans())
def test_lookup_is_the_combination_of_each_bag(bags, combiner, shared):
    engine = engine_of(combiner=combiner, shared=shared)
    np.testing.assert_allclose(engine.lookup(batch_of(bags)), reference_lookup(engine, bags), rtol=1e-5, atol=1e-6)


@settings(max_examples=scaled(60))
@given(
    steps=st.lists(two_features, min_size=1, max_size=3),
    combiner=st.sampled_from(["sum", "mean"]),
    optimizer=optimizers,
    shared=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_updates_equal_a_float64_reference(steps, combiner, optimizer, shared, seed):
    engine = engine_of(combiner=combiner, optimizer=optimizer, shared=shared)
    every = np.arange(ROWS)
    weights = {t.name: engine.store.weights_of(t.name, every).astype(np.float64) for t in engine.tables}
    start = optimizer.initial_accumulator if isinstance(optimizer, Adagrad) else 0.0
    slots = {t.name: np.full((ROWS, t.dim), np.float64(start)) for t in engine.tables}
    rng = np.random.default_rng(seed)
    for bags in steps:
        batch = batch_of(bags)
        gradients = rng.normal(size=(batch.rows, engine.width)).astype(np.float32)
        engine.lookup(batch)
        engine.apply_gradients(batch, gradients)
        for name, by_row in gradients_by_row(engine, bags, gradients).items():
            reference_update(weights[name], slots[name], optimizer, by_row)
    for name, expected in weights.items():
        np.testing.assert_allclose(engine.store.weights_of(name, every), expected, rtol=2e-4, atol=2e-5)
        state = engine.state()[name]
        if isinstance(optimizer, Adagrad):
            np.testing.assert_allclose(state.slots, slots[name][state.rows], rtol=1e-4, atol=1e-7)
        else:
            assert state.slots.shape == (len(state.rows), 0)


@settings(max_examples=scaled(30))
@given(bags=two_features, combiner=st.sampled_from(["sum", "mean"]))
def test_the_gradient_is_that_of_the_lookup(bags, combiner):
    """Central differences through lookup agree with what SGD at rate 1 subtracts."""
    engine = engine_of(combiner=combiner, optimizer=SGD(1.0))
    batch = batch_of(bags)
    upstream = np.random.default_rng(0).normal(size=(batch.rows, engine.width)).astype(np.float32)
    before = engine.store.weights_of("one", np.arange(ROWS)).astype(np.float64)

    def loss(weights):
        return sum(
            float(upstream[b, engine.columns[f.name]] @ (weights[list(ids)].sum(axis=0) / divisor))
            for f, feature_bags in zip(engine.features, bags, strict=True)
            for b, ids in enumerate(feature_bags)
            if ids
            for divisor in [len(ids) if combiner == "mean" else 1]
        )

    engine.apply_gradients(batch, upstream)
    analytic = before - engine.store.weights_of("one", np.arange(ROWS))
    numeric = np.zeros_like(before)
    for at in np.ndindex(before.shape):
        up, down = before.copy(), before.copy()
        up[at] += 1e-3
        down[at] -= 1e-3
        numeric[at] = (loss(up) - loss(down)) / 2e-3
    np.testing.assert_allclose(analytic, numeric, rtol=1e-3, atol=1e-4)


def test_a_row_that_occurs_often_is_updated_once():
    """Adagrad tells them apart: two updates by g move a row further than one by 2g."""
    optimizer = Adagrad(1.0, 1e-6)
    engine = engine_of(combiner="sum", optimizer=optimizer)
    before = engine.store.weights_of("one", np.array([2]))
    gradients = np.ones((2, engine.width), np.float32)
    engine.apply_gradients(batch_of([[[2, 2], []], [[], [2]]]), gradients)
    moved = before - engine.store.weights_of("one", np.array([2]))
    np.testing.assert_allclose(moved, 3 / np.sqrt(9 + 1e-6) * np.ones((1, 3)), rtol=1e-6)
    np.testing.assert_allclose(engine.state()["one"].slots, 9 + 1e-6, rtol=1e-6)


@settings(max_examples=scaled(30))
@given(bags=two_features, data=st.data())
def test_the_order_of_events_does_not_matter_beyond_rounding(bags, data):
    order = data.draw(st.permutations(range(len(bags[0]))))
    one, other = engine_of(), engine_of()
    gradients = np.random.default_rng(1).normal(size=(len(order), one.width)).astype(np.float32)
    one.apply_gradients(batch_of(bags), gradients)
    other.apply_gradients(batch_of([[feature[i] for i in order] for feature in bags]), gradients[list(order)])
    every = np.arange(ROWS)
    np.testing.assert_allclose(
        one.store.weights_of("one", every), other.store.weights_of("one", every), rtol=1e-4, atol=1e-5
    )


def test_two_engines_agree_bit_for_bit():
    def run():
        engine = engine_of()
        rng = np.random.default_rng(5)
        for _ in range(20):
            bags = [[list(rng.integers(0, ROWS, rng.integers(0, 5))) for _ in range(9)] for _ in range(2)]
            batch = batch_of(bags)
            engine.apply_gradients(batch, engine.lookup(batch) + np.float32(0.1))
        return engine.state()["one"]

    one, other = run(), run()
    assert one.weights.tobytes() == other.weights.tobytes()
    assert one.slots.tobytes() == other.slots.tobytes()


def test_empty_bags_give_zeros_and_change_nothing():
    engine = engine_of()
    batch = batch_of([[[], []], [[], []]])
    assert not engine.lookup(batch).any()
    engine.apply_gradients(batch, np.ones((2, engine.width), np.float32))
    assert len(engine.state()["one"].rows) == 0


@pytest.mark.parametrize("bad", [-1, ROWS, 2**40, -(2**63)])
def test_an_id_outside_its_table_is_refused_by_name(bad):
    engine = engine_of()
    batch = batch_of([[[0], [1]], [[2], [bad]]])
    for call in (engine.lookup, lambda b: engine.apply_gradients(b, np.ones((2, engine.width), np.float32))):
        with pytest.raises(BadBatch, match="must lie in its table") as caught:
            call(batch)
        assert caught.value.value == bad
        assert "feature b" in caught.value.where
        assert "[0, 7)" in caught.value.allowed
    assert len(engine.state()["one"].rows) == 0


@pytest.mark.parametrize(
    "offsets",
    [
        [[0, 2], [1, 3]],  # the second feature does not begin where the first ends
        [[0, 9], [9, 9]],  # past the ids
        [[2, 1], [1, 3]],  # descending
        [[0, 1], [1, 2]],  # an id is left over
        [[1, 2], [2, 3]],
    ],
)
def test_offsets_that_do_not_fit_are_refused(offsets):
    with pytest.raises(BadBatch, match="offsets"):
        engine_of().lookup(IdBatch(np.zeros(3, np.int64), np.array(offsets, np.int64)))


def test_a_batch_is_looked_at_once_and_not_at_all_where_its_maker_did(monkeypatch):
    engine, looked = engine_of(), []
    find_problem = batch_checks.find_problem

    def counted(*arguments):
        looked.extend(one for one in (batch.ids,) if arguments[0] is one)
        return find_problem(*arguments)

    monkeypatch.setattr(batch_checks, "find_problem", counted)
    batch = batch_of([[[0], [1]], [[2], []]])  # an engine may check what it asks others for, too
    engine.apply_gradients(batch, engine.lookup(batch))
    assert len(looked) == 1
    checked = replace(batch, bounds=(ROWS, ROWS))
    engine.apply_gradients(checked, engine.lookup(checked))
    assert len(looked) == 1
    engine.lookup(replace(batch, bounds=(ROWS, ROWS + 1)))  # by the bounds of another engine
    assert len(looked) == 2


def test_shares_are_those_of_the_batch_at_hand():
    engine = engine_of(optimizer=SGD(1.0))
    bags = [[[0, 1]], [[2, 3]]]
    plain = batch_of(bags)
    weighted = replace(plain, weights=np.array([1, 3, 1, 1], np.float32))
    expected = {id(batch): engine.lookup(batch) for batch in (plain, weighted)}
    for batch in (plain, weighted, plain):
        np.testing.assert_array_equal(engine.lookup(batch), expected[id(batch)])
    assert not np.array_equal(expected[id(plain)], expected[id(weighted)])


def test_wrong_dtypes_and_shapes_are_refused():
    engine = engine_of()
    batch = batch_of([[[0]], [[1]]])
    with pytest.raises(BadBatch):
        engine.lookup(IdBatch(batch.ids.astype(np.int16), batch.offsets))
    with pytest.raises(BadBatch):
        engine.lookup(batch_of([[[0]]]))
    with pytest.raises(BadBatch):
        engine.apply_gradients(batch, np.ones((1, 2), np.float32))
    with pytest.raises(BadBatch):
        engine.apply_gradients(batch, np.ones((1, engine.width), np.float64))


@settings(max_examples=scaled(30))
@given(order=st.permutations(range(ROWS)), cut=st.integers(0, ROWS))
def test_initial_rows_do_not_depend_on_the_order_of_requests(order, cut):
    fresh = engine_of()
    expected = fresh.store.weights_of("one", np.arange(ROWS))  # never read: straight from the hash
    engine = engine_of()
    engine.lookup(batch_of([[list(order[:cut])], [[]]]))
    engine.lookup(batch_of([[[]], [list(order[cut:])]]))
    assert engine.store.weights_of("one", np.arange(ROWS)).tobytes() == expected.tobytes()


def test_initial_rows_differ_by_seed_table_row_and_column():
    def rows(seed, name):
        table = TableSpec(name, 50, 4, SGD(1.0))
        return _make([FeatureSpec("f", table)], seed).store.weights_of(name, np.arange(50))

    one = rows(1, "t")
    assert len(np.unique(one)) == one.size
    assert not np.intersect1d(one, rows(2, "t")).size
    assert not np.intersect1d(one, rows(1, "u")).size


@pytest.mark.parametrize(
    ("initializer", "mean", "stddev", "low", "high"),
    [
        (Constant(0.25), 0.25, 0.0, 0.25, 0.25),
        (Uniform(-1.0, 3.0), 1.0, 4 / np.sqrt(12), -1.0, 3.0),
        (Normal(0.5, 2.0, truncated=False), 0.5, 2.0, -np.inf, np.inf),
        (Normal(0.5, 2.0), 0.5, 2.0 * 0.8796, -3.5, 4.5),
        (None, 0.0, 0.5 * 0.8796, -1.0, 1.0),
    ],
)
def test_initializers_have_their_distribution(initializer, mean, stddev, low, high):
    table = TableSpec("t", 20_000, 4, SGD(1.0), initializer=initializer)
    values = _make([FeatureSpec("f", table)], 0).store.weights_of("t", np.arange(20_000)).astype(np.float64)
    assert abs(values.mean() - mean) < 0.02
    assert abs(values.std() - stddev) < 0.02
    assert low - 1e-6 <= values.min() <= values.max() <= high + 1e-6


def test_a_golden_row():
    """Rows are regenerated from the seed when a checkpoint is restored: their values may never change."""
    engine = _make([FeatureSpec("f", TableSpec("t", 10, 2, SGD(1.0), initializer=Uniform(0.0, 1.0)))], 0)
    row = engine.store.weights_of("t", np.array([3]))[0]
    assert [value.hex() for value in row.astype(float)] == GOLDEN_ROW


GOLDEN_ROW = ["0x1.cf5c1c0000000p-1", "0x1.b5c3900000000p-1"]


@pytest.mark.parametrize("optimizer", [SGD(0.1), Adagrad(0.1, 0.01)])
def test_state_round_trip_continues_bit_for_bit(optimizer):
    rng = np.random.default_rng(0)
    batches = [batch_of([[list(rng.integers(0, ROWS - 2, 2)) for _ in range(4)] for _ in range(2)]) for _ in range(6)]

    def train(engine, some):
        for batch in some:
            engine.apply_gradients(batch, engine.lookup(batch) * np.float32(0.5) + np.float32(0.1))

    straight, first, second = (engine_of(optimizer=optimizer, shared=False) for _ in range(3))
    train(straight, batches)
    train(first, batches[:3])
    second.lookup(batch_of([[[ROWS - 1]], [[0]]]))  # reading is not training: it must leave no trace
    second.load_state(first.state())
    train(second, batches[3:])
    for name, expected in straight.state().items():
        state = second.state()[name]
        for part in ("rows", "weights", "slots"):
            assert getattr(state, part).tobytes() == getattr(expected, part).tobytes()


def test_a_state_that_does_not_fit_is_refused():
    engine = engine_of()
    good = TableState(np.array([1]), np.zeros((1, 3), np.float32), np.zeros((1, 3), np.float32))
    engine.load_state({"one": good})
    for state in (
        {},
        {"other": good},
        {"one": TableState(np.array([ROWS]), good.weights, good.slots)},
        {"one": TableState(np.array([-1]), good.weights, good.slots)},
        {"one": TableState(good.rows, np.zeros((1, 2), np.float32), good.slots)},
        {"one": TableState(good.rows, good.weights, np.zeros((1, 0), np.float32))},
    ):
        with pytest.raises(TornCheckpoint):
            engine.load_state(state)


def test_a_large_vocabulary_costs_what_is_used():
    def resident_bytes():
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    if not Path("/proc/self/statm").exists():
        pytest.skip("needs Linux to ask for resident memory")
    before = resident_bytes()
    engine = _make([FeatureSpec("f", TableSpec("t", 20_000_000, 16, Adagrad(0.1)))], 0)
    batch = batch_of([[[19_999_999], [5]]])
    engine.apply_gradients(batch, engine.lookup(batch))
    assert resident_bytes() - before < 100e6  # the table is 1.28e9 bytes, and its slots again
    assert list(engine.state()["t"].rows) == [5, 19_999_999]


def test_inspection_refuses_unknown_tables_and_rows():
    with pytest.raises(ConfigError, match="an embedding table must be one of the engine's"):
        engine_of().store.weights_of("nope", np.array([0]))
    with pytest.raises(BadBatch):
        engine_of().store.weights_of("one", np.array([ROWS]))
    with pytest.raises(ConfigError):
        _make([], 0)
