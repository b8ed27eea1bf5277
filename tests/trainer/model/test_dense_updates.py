"""The dense updates of a lowered step are Keras's."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
dense_updates = pytest.importorskip("trainer.model.dense_updates")
DiagonalNewton = pytest.importorskip("trainer.model.newton").DiagonalNewton


@pytest.mark.parametrize(
    ("kind", "theirs"),
    [
        ("sgd", keras.optimizers.SGD),
        ("adagrad", keras.optimizers.Adagrad),
        ("adam", keras.optimizers.Adam),
        ("newton", partial(DiagonalNewton, initial_accumulator_value=5.0)),
    ],
)
def test_updates_equal_those_of_keras(kind, theirs):
    source = np.random.default_rng(0)
    first = source.normal(size=(3, 4)).astype(np.float32)
    variable, optimizer = keras.Variable(first), theirs(learning_rate=0.1)
    optimizer.build([variable])
    weight, slots = tf.constant(first), [tf.fill([3, 4], start) for start in dense_updates.SLOTS[kind]]
    for step in range(4):
        gradient = tf.constant(source.normal(size=(3, 4)).astype(np.float32))
        optimizer.apply([gradient], [variable])
        weight, *slots = dense_updates.updated(kind, 0.1, weight, gradient, slots, float(step))
        np.testing.assert_allclose(weight.numpy(), variable.numpy(), rtol=1e-5, atol=1e-6)
