"""Compares the engine with TensorFlow: optimizers, lookups."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainer.tables.test_engine import batch_of
from trainer.errors import BadBatch
from trainer.tables import (
    SGD,
    Adagrad,
    Constant,
    CpuEngine,
    FeatureSpec,
    IdBatch,
    TableSpec,
)

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")


def rows_and_gradients(steps: int = 4):
    rng = np.random.default_rng(0)
    for _ in range(steps):
        yield rng.integers(0, 6, 9), rng.normal(size=(9, 3)).astype(np.float32)


def ours(optimizer, initial):
    """Weights after training sparse gradients, from ``initial`` on."""
    table = TableSpec("t", 6, 3, optimizer, "sum", Constant(initial))
    engine = CpuEngine([FeatureSpec("f", table)], seed=0)
    for ids, gradients in rows_and_gradients():
        engine.apply_gradients(batch_of([[[i] for i in ids]]), gradients)
    return engine.weights_of("t", np.arange(6))


@pytest.mark.parametrize(
    ("optimizer", "theirs"),
    [
        (SGD(0.3), lambda: keras.optimizers.SGD(0.3)),
        (Adagrad(0.3, 0.01), lambda: keras.optimizers.Adagrad(0.3, initial_accumulator_value=0.01, epsilon=0.0)),
    ],
)
def test_optimizers_equal_keras_on_summed_gradients(optimizer, theirs):
    variable, keras_optimizer = tf.Variable(tf.fill([6, 3], 0.5)), theirs()
    keras_optimizer.build([variable])
    for ids, gradients in rows_and_gradients():
        slices = tf.IndexedSlices(tf.constant(gradients), tf.constant(ids), tf.constant([6, 3]))
        # Keras squares duplicates one by one where TensorFlow sums them first, so it is handed the sum.
        keras_optimizer.apply([tf.convert_to_tensor(slices)], [variable])
    np.testing.assert_allclose(ours(optimizer, 0.5), variable.numpy(), rtol=1e-5, atol=1e-6)


def test_adagrad_equals_tensorflows_sparse_operator():
    variable, slots = tf.Variable(tf.fill([6, 3], 0.5)), tf.Variable(tf.fill([6, 3], 0.01))
    for ids, gradients in rows_and_gradients():
        rows, places = np.unique(ids, return_inverse=True)
        summed = tf.math.unsorted_segment_sum(gradients, places, len(rows))
        tf.raw_ops.ResourceSparseApplyAdagrad(
            var=variable.handle, accum=slots.handle, lr=0.3, grad=summed, indices=tf.constant(rows)
        )
    np.testing.assert_allclose(ours(Adagrad(0.3, 0.01), 0.5), variable.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("combiner", ["sum", "mean"])
def test_lookups_equal_embedding_lookup_sparse(combiner):
    table = TableSpec("t", 20, 5, SGD(1.0), combiner)
    engine = CpuEngine([FeatureSpec("f", table)], seed=0)
    bags = [[1, 1, 4], [7], [19, 0, 3, 3], [2, 5]]
    sparse = tf.RaggedTensor.from_row_lengths(np.concatenate(bags).astype(np.int64), [len(bag) for bag in bags])
    weights = engine.weights_of("t", np.arange(20))
    theirs = tf.nn.embedding_lookup_sparse(tf.constant(weights), sparse.to_sparse(), None, combiner=combiner)
    np.testing.assert_allclose(engine.lookup(batch_of([bags])), theirs.numpy(), rtol=1e-6)


def weighted_batch(features: int, rows: int, source: np.random.Generator):
    """(bags of distinct and repeated ids, their weights, the same as a batch); some bags are empty or weigh nothing."""
    bags = [[source.integers(0, 20, source.integers(0, 6)).tolist() for _ in range(rows)] for _ in range(features)]
    weights = [[source.normal(size=len(bag)).astype(np.float32) for bag in feature] for feature in bags]
    bags[0][0], weights[0][0] = [3, 3, 5], np.array([1.0, -1.0, 0.0], np.float32)
    plain = batch_of(bags)
    flat = np.concatenate([weight for feature in weights for weight in feature])
    return bags, weights, IdBatch(plain.ids, plain.offsets, flat)


def theirs_weighted(table, bags, weights, combiner):
    lengths = [len(bag) for bag in bags]
    ids = tf.RaggedTensor.from_row_lengths(np.concatenate(bags).astype(np.int64), lengths).to_sparse()
    weighing = tf.RaggedTensor.from_row_lengths(np.concatenate(weights), lengths).to_sparse()
    found = tf.nn.embedding_lookup_sparse(table, ids, weighing, combiner=combiner)
    return tf.pad(found, [[0, len(bags) - tf.shape(found)[0]], [0, 0]])  # it ends with the last bag that has ids


@pytest.mark.parametrize("combiner", ["sum", "mean"])
def test_weighted_lookups_and_gradients_equal_embedding_lookup_sparse(combiner):
    table = TableSpec("t", 20, 5, SGD(1.0), combiner)
    engine = CpuEngine([FeatureSpec("f", table), FeatureSpec("g", table)], seed=0)
    source = np.random.default_rng(3)
    bags, weights, batch = weighted_batch(2, 30, source)
    before = tf.Variable(engine.weights_of("t", np.arange(20)))
    with tf.GradientTape() as tape:
        found = tf.concat([theirs_weighted(before, bags[f], weights[f], combiner) for f in range(2)], 1)
    np.testing.assert_allclose(engine.lookup(batch), found.numpy(), rtol=2e-5, atol=1e-5)
    gradients = source.normal(size=found.shape).astype(np.float32)
    slope = tf.convert_to_tensor(tape.gradient(found, before, output_gradients=gradients))
    engine.apply_gradients(batch, gradients)
    np.testing.assert_allclose(engine.weights_of("t", np.arange(20)), (before - slope).numpy(), rtol=2e-5, atol=2e-5)


def test_weighted_training_repeats_bit_for_bit_and_weights_of_one_change_nothing():
    def trained(weights):
        engine = CpuEngine([FeatureSpec("f", TableSpec("t", 20, 5, Adagrad(0.1), "sum"))], seed=0)
        source = np.random.default_rng(5)
        for _ in range(3):
            _, _, batch = weighted_batch(1, 10, source)
            batch = IdBatch(batch.ids, batch.offsets, weights(batch.weights))
            engine.apply_gradients(batch, engine.lookup(batch))
        return engine.weights_of("t", np.arange(20)).tobytes()

    assert trained(lambda given: given) == trained(lambda given: given.copy())
    assert trained(np.ones_like) == trained(lambda given: None)
    assert trained(np.ones_like) != trained(lambda given: given)


def test_weights_that_do_not_fit_are_refused():
    engine = CpuEngine([FeatureSpec("f", TableSpec("t", 20, 5, SGD(1.0)))], seed=0)
    plain = batch_of([[[1, 2]]])
    for weights in (np.ones(1, np.float32), np.ones(2, np.float64)):
        with pytest.raises(BadBatch, match="float32 weight for every id"):
            engine.lookup(IdBatch(plain.ids, plain.offsets, weights))
