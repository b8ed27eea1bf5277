"""Compares embeddings with TensorFlow: configuration, optimizers, lookups."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.trainer.embedding.test_engine import batch_of
from trainer.embedding import (
    SGD,
    Adagrad,
    Constant,
    CpuEngine,
    FeatureSpec,
    IdBatch,
    Normal,
    TableSpec,
    Uniform,
    from_tensorflow,
)
from trainer.errors import BadBatch, UnsupportedSetting

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
embedding = tf.tpu.experimental.embedding


def test_a_configuration_converts():
    words = embedding.TableConfig(100, 8, optimizer=embedding.SGD(0.5), combiner="sum", name="words")
    other = embedding.TableConfig(10, 4, initializer=tf.random_uniform_initializer(-0.5, 0.25))
    features = from_tensorflow(
        {
            "query": embedding.FeatureConfig(words),
            "ad": {"title": embedding.FeatureConfig(words), "user": embedding.FeatureConfig(other, name="who")},
        },
        embedding.Adagrad(0.1, 0.2),
    )
    table = TableSpec("words", 100, 8, SGD(0.5), "sum", Normal(0.0, 1 / math.sqrt(8)))
    anonymous = TableSpec("table_1", 10, 4, Adagrad(0.1, 0.2), "mean", Uniform(-0.5, 0.25))
    assert features == (FeatureSpec("ad/title", table), FeatureSpec("who", anonymous), FeatureSpec("query", table))
    CpuEngine(features, seed=0)


def test_a_single_feature_and_other_initializers_convert():
    for initializer, expected in (
        (tf.zeros_initializer(), Constant(0.0)),
        (tf.ones_initializer(), Constant(1.0)),
        (tf.constant_initializer(0.5), Constant(0.5)),
        (tf.random_normal_initializer(1.0, 2.0), Normal(1.0, 2.0, truncated=False)),
    ):
        table = embedding.TableConfig(10, 4, initializer, embedding.SGD(1.0))
        (feature,) = from_tensorflow(embedding.FeatureConfig(table))
        assert feature.table.initializer == expected


def unsupported():
    def table(**settings):
        return embedding.TableConfig(10, 4, **{"optimizer": embedding.SGD(1.0), **settings})

    feature = embedding.FeatureConfig
    yield "combiner", feature(table(combiner="sqrtn"))
    yield "max_sequence_length", feature(table(), max_sequence_length=3)
    yield "output_shape", feature(table(), output_shape=[2, 3])
    yield "optimizer", feature(table(optimizer=embedding.Adam(0.1)))
    yield "optimizer", feature(table(optimizer=None))
    yield "learning_rate", feature(table(optimizer=embedding.SGD(lambda: 0.1)))
    yield "use_gradient_accumulation", feature(table(optimizer=embedding.SGD(1.0, use_gradient_accumulation=False)))
    yield "clip_weight_min", feature(table(optimizer=embedding.Adagrad(1.0, clip_weight_min=-1.0)))
    yield "clip_gradient", feature(table(optimizer=embedding.Adagrad(1.0, clipvalue=1.0)))
    yield "weight_decay_factor", feature(table(optimizer=embedding.SGD(1.0, weight_decay_factor=0.1)))
    yield "quantization_config", feature(table(quantization_config=embedding.QuantizationConfig(8, -1.0, 1.0)))
    yield "dtype", feature(table(dtype=tf.int32))
    yield "initializer", feature(table(initializer=tf.keras.initializers.Orthogonal()))
    yield "value", "not a feature"


def test_unsupported_settings_are_refused_by_name():
    for setting, config in unsupported():
        with pytest.raises(UnsupportedSetting, match=setting):
            from_tensorflow({"f": config})


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
