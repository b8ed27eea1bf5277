"""The dense updates of a lowered step are Keras's."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from trainer.model.optimizers import optimizer_slots

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
dense_updates = pytest.importorskip("trainer.model.optimizers.dense_updates")
large_batch = pytest.importorskip("trainer.model.optimizers.large_batch")
DiagonalNewton = pytest.importorskip("trainer.model.optimizers.newton").DiagonalNewton


@pytest.mark.parametrize(
    ("kind", "theirs"),
    [
        ("sgd", keras.optimizers.SGD),
        ("adagrad", keras.optimizers.Adagrad),
        ("adam", keras.optimizers.Adam),
        ("lamb", keras.optimizers.Lamb),
        ("lamb", large_batch.Lamb),
        ("lars", partial(large_batch.Lars, initial_accumulator_value=0.0)),
        ("newton", partial(DiagonalNewton, initial_accumulator_value=5.0)),
    ],
)
def test_updates_equal_those_of_keras(kind, theirs):
    source = np.random.default_rng(0)
    first = source.normal(size=(3, 4)).astype(np.float32)
    variable, optimizer = keras.Variable(first), theirs(learning_rate=0.1)
    optimizer.build([variable])
    weight, slots = tf.constant(first), [tf.fill([3, 4], start) for start in optimizer_slots.SLOTS[kind]]
    for step in range(4):
        gradient = tf.constant(source.normal(size=(3, 4)).astype(np.float32))
        optimizer.apply([gradient], [variable])
        weight, *slots = dense_updates.updated(kind, 0.1, weight, gradient, slots, float(step))
        np.testing.assert_allclose(weight.numpy(), variable.numpy(), rtol=1e-5, atol=1e-6)


def test_a_step_of_lars_is_a_share_of_each_matrix():
    """With a rate of 0.01 the first step moves it by a hundredth of its norm, whatever the gradient; a bias moves by its gradient."""
    source = np.random.default_rng(1)
    weight, bias = source.normal(size=(5, 3)).astype(np.float32), source.normal(size=3).astype(np.float32)
    for size in (1e-6, 1.0, 1e6):
        gradient = tf.constant((size * source.normal(size=(5, 3))).astype(np.float32))
        after, _ = dense_updates.updated("lars", 0.01, tf.constant(weight), gradient, [tf.zeros([5, 3])], 0.0)
        assert np.linalg.norm(after.numpy() - weight) == pytest.approx(0.01 * np.linalg.norm(weight), rel=1e-3)
    after, _ = dense_updates.updated("lars", 0.01, tf.constant(bias), tf.constant(bias), [tf.zeros([3])], 0.0)
    np.testing.assert_allclose(after.numpy(), 0.99 * bias, rtol=1e-6)


@pytest.mark.parametrize("kind", ["lamb", "lars"])
def test_a_matrix_of_zeros_and_one_without_a_gradient_have_finite_steps(kind):
    slots = [tf.zeros([2, 2])] * len(optimizer_slots.SLOTS[kind])
    for weight, gradient in ((0.0, 1.0), (1.0, 0.0), (0.0, 0.0)):
        after, *_ = dense_updates.updated(kind, 0.1, tf.fill([2, 2], weight), tf.fill([2, 2], gradient), slots, 0.0)
        assert np.isfinite(after.numpy()).all()
        assert bool((after.numpy() == weight).all()) == (gradient == 0.0)
