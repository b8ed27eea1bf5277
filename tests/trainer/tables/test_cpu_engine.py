"""What the cpu engine does beyond sums and means: sequences, sqrtn, quantization, threads, stacks, counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.tables.test_engine import batch_of
from trainer.errors import BadBatch, NonFiniteLoss
from trainer.planning.valencies import VALENCY_BOUNDS
from trainer.tables import (
    FTRL,
    SGD,
    Adagrad,
    Adam,
    Constant,
    CpuEngine,
    FeatureSpec,
    IdBatch,
    Quantization,
    RowWiseAdagrad,
    TableSpec,
)
from trainer.tables.feature_counts import FeatureCounts
from trainer.tables.kernels.layout import stack_order

bags_lists = st.lists(st.lists(st.integers(0, 8), max_size=9), min_size=1, max_size=6)


def weighted(batch, rng):
    return IdBatch(batch.ids, batch.offsets, rng.uniform(0.1, 2, len(batch.ids)).astype(np.float32))


@given(
    bags_lists,
    st.sampled_from(["sum", "mean", "sqrtn"]),
    st.booleans(),
    st.sampled_from([1, 5, 16, 35]),
    st.integers(0, 99),
)
def test_combiners_are_those_of_tensorflow(bags, combiner, has_weights, dim, seed):
    engine = CpuEngine([FeatureSpec("f", TableSpec("t", 9, dim, SGD(1.0), combiner))], seed=seed)
    batch = batch_of([bags])
    if has_weights:
        batch = weighted(batch, np.random.default_rng(seed))
    table = engine.weights_of("t", np.arange(9)).astype(np.float64)
    expected = np.zeros((len(bags), dim))
    weights = np.ones(len(batch.ids)) if batch.weights is None else batch.weights.astype(np.float64)
    for b, bag in enumerate(bags):
        own = weights[batch.offsets[0, b] : batch.offsets[0, b + 1]]
        divisor = {"sum": 1.0, "mean": own.sum(), "sqrtn": np.sqrt((own**2).sum())}[combiner]
        if bag:
            expected[b] = (own[:, None] * table[bag]).sum(axis=0) / divisor
    np.testing.assert_allclose(engine.lookup(batch), expected, rtol=1e-5, atol=1e-6)
    # The gradient of a row is the sum over bags of its share times the bag's gradient.
    gradients = np.random.default_rng(seed).normal(size=(len(bags), dim)).astype(np.float32)
    for b, bag in enumerate(bags):
        own = weights[batch.offsets[0, b] : batch.offsets[0, b + 1]]
        divisor = {"sum": 1.0, "mean": own.sum(), "sqrtn": np.sqrt((own**2).sum())}[combiner]
        for row, weight in zip(bag, own, strict=True):
            table[row] -= weight / divisor * gradients[b]
    engine.apply_gradients(batch, gradients)
    np.testing.assert_allclose(engine.weights_of("t", np.arange(9)), table, rtol=1e-4, atol=1e-5)


@given(bags_lists, st.integers(1, 4), st.sampled_from([2, 16]), st.booleans())
def test_a_sequence_feature_gives_the_rows_of_its_first_ids(bags, length, dim, has_weights):
    table = TableSpec("t", 9, dim, SGD(1.0))
    engine = CpuEngine([FeatureSpec("s", table, length), FeatureSpec("c", table)], seed=1)
    batch = batch_of([bags, bags])
    if has_weights:
        batch = weighted(batch, np.random.default_rng(0))
    rows = engine.weights_of("t", np.arange(9))
    found = engine.lookup(batch)
    assert found.shape == (len(bags), dim * (length + 1))
    assert engine.columns["c"] == slice(dim * length, dim * (length + 1))
    sequence = found[:, engine.columns["s"]].reshape(len(bags), length, dim)
    shares = np.ones(len(batch.ids)) if batch.weights is None else batch.weights
    at = batch.offsets[0]
    for b, bag in enumerate(bags):
        expected = np.zeros((length, dim))
        for k, row in enumerate(bag[:length]):
            expected[k] = rows[row] * shares[at[b] + k]
        np.testing.assert_allclose(sequence[b], expected, rtol=1e-6)
    gradients = np.zeros_like(found)
    gradients[:, : dim * length] = 1.0
    engine.apply_gradients(batch, gradients)
    for b, bag in enumerate(bags):
        for k, row in enumerate(bag[:length]):
            rows[row] -= shares[at[b] + k]
    np.testing.assert_allclose(engine.weights_of("t", np.arange(9)), rows, rtol=1e-5, atol=1e-5)


def test_quantized_rows_are_rounded_before_they_are_combined():
    quantization = Quantization(5, -1.0, 1.0)  # -1, -0.5, 0, 0.5, 1
    for value, level in ((0.2, 0.0), (0.3, 0.5), (-0.8, -1.0), (7.0, 1.0), (-9.0, -1.0)):
        table = TableSpec("t", 3, 20, SGD(1.0), "sum", Constant(value), quantization)
        engine = CpuEngine([FeatureSpec("f", table)], seed=0)
        batch = batch_of([[[0, 1], [2]]])
        np.testing.assert_array_equal(engine.lookup(batch)[:, [0, 19]], [[2 * level] * 2, [level] * 2])
        engine.apply_gradients(batch, np.ones((2, 20), np.float32))
        np.testing.assert_allclose(
            engine.weights_of("t", np.arange(3)), value - 1, rtol=1e-6
        )  # the table is not quantized


def some_engine(threads):
    tables = [
        TableSpec("a", 50, 16, Adagrad(0.1), "mean"),
        TableSpec("b", 7, 3, Adam(0.01), "sqrtn"),
        TableSpec("c", 1000, 16, Adagrad(0.1), "sum"),
        TableSpec("d", 40, 33, FTRL(0.1), "sum"),
        TableSpec("e", 40, 33, RowWiseAdagrad(0.1), "sum"),
    ]
    features = [FeatureSpec(f"f{k}", tables[k % 5], 3 if k == 6 else 0) for k in range(8)]
    return CpuEngine(features, seed=3, threads=threads)


def some_batches(engine, count, events, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        lengths = rng.integers(0, 40, (len(engine.features), events)) * (
            rng.random((len(engine.features), events)) < 0.7
        )
        ends = np.cumsum(lengths).reshape(lengths.shape)
        offsets = np.concatenate([np.concatenate([[0], ends[:-1, -1]])[:, None], ends], axis=1)
        sizes = [feature.table.vocabulary_size for feature in engine.features]
        ids = np.concatenate([(rng.zipf(1.3, n.sum()) - 1) % size for n, size in zip(lengths, sizes, strict=True)])
        yield IdBatch(ids, offsets), rng.normal(size=(events, engine.width)).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_threads_and_types_of_ids_change_no_bit(dtype, monkeypatch):
    # Small buckets, so that tables are divided into many.
    monkeypatch.setattr("trainer.tables.kernels.updates._BUCKET_BYTES", 2048)
    states = []
    for threads in (1, 2, 5):
        engine = some_engine(threads)
        sums = []
        for batch, gradients in some_batches(engine, 4, 67):
            batch = IdBatch(batch.ids.astype(dtype if threads > 1 else np.int64), batch.offsets)
            sums.append(engine.lookup(batch).tobytes())
            engine.apply_gradients(batch, gradients)
        state = engine.state()
        states.append(
            [sums, [array.tobytes() for one in state.values() for array in (one.rows, one.weights, one.slots)]]
        )
    assert states[0] == states[1] == states[2]


def test_tables_of_equal_width_and_optimizer_stand_side_by_side():
    engine = some_engine(1)
    assert [table.name for table in engine.tables] == ["a", "b", "c", "d", "e"]
    assert [engine.tables[t].name for t in stack_order(engine.tables)] == ["a", "c", "b", "d", "e"]


def test_activations_in_use_are_not_written_to_again():
    engine = some_engine(2)
    kept = [(engine.lookup(batch), batch) for batch, _ in some_batches(engine, 6, 30)]
    views = [found[:, 3] for found, _ in kept]
    expected = [np.array(found) for found, _ in kept]
    for (found, _), view, values in zip(kept, views, expected, strict=True):
        np.testing.assert_array_equal(found, values)
        np.testing.assert_array_equal(view, values[:, 3])
    addresses = set()
    (batch, _), *_ = some_batches(engine, 1, 31)
    for _ in range(5):
        addresses.add(engine.lookup(batch).ctypes.data)
    assert len(addresses) == 1


def test_a_gradient_that_is_not_finite_changes_nothing():
    engine = some_engine(2)
    (batch, gradients), *_ = some_batches(engine, 1, 30)
    before = engine.state()
    for bad in (np.nan, np.inf, -np.inf):
        wrong = gradients.copy()
        wrong[17, engine.columns["f3"].start + 1] = bad
        with pytest.raises(NonFiniteLoss, match="gradient is NaN or infinite") as caught:
            engine.apply_gradients(batch, wrong)
        assert caught.value.where == "feature f3, event 17 of the batch"
    after = engine.state()
    assert all(len(one.rows) == 0 for one in (*before.values(), *after.values()))


def test_counts_are_those_of_the_trained_batches():
    table = TableSpec("t", 9, 2, SGD(1.0))
    engine = CpuEngine(
        [FeatureSpec("a", table), FeatureSpec("b", table), FeatureSpec("c", TableSpec("u", 5, 2, SGD(1.0)))], seed=0
    )
    batch = batch_of([[[0, 1, 1], []], [[1], [2]], [[], []]])
    for _ in range(2):
        engine.apply_gradients(batch, np.zeros((2, 6), np.float32))

    def by_class(counts):
        return tuple(counts.get(bound, 0) for bound in VALENCY_BOUNDS)

    assert engine.statistics() == {
        "a": FeatureCounts(2, 6, 3, 6, bags_by_valency=by_class({0: 2, 4: 2}), ids_by_valency=by_class({4: 6})),
        "b": FeatureCounts(2, 4, 1, 6, bags_by_valency=by_class({1: 4}), ids_by_valency=by_class({1: 4})),
        "c": FeatureCounts(2, 0, 0, 0, bags_by_valency=by_class({0: 4}), ids_by_valency=by_class({})),
    }


def test_a_wrong_id_beyond_the_first_thread_is_found():
    engine = some_engine(4)
    (batch, _), *_ = some_batches(engine, 1, 64)
    ids = batch.ids.copy()
    ids[-1] = -1
    with pytest.raises(BadBatch, match="must lie in its table"):
        engine.lookup(IdBatch(ids, batch.offsets))
