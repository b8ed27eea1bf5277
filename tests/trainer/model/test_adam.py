from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import keras
import tensorflow as tf

from trainer.model.optimizers.adam import FusedAdam


def test_the_fused_adam_follows_that_of_keras():
    draw = np.random.default_rng(0)
    start = draw.normal(size=(5, 3)).astype(np.float32)
    sides = []
    for kind in (keras.optimizers.Adam, FusedAdam):
        weights = keras.Variable(start)
        optimizer = kind(learning_rate=0.01)
        optimizer.build([weights])
        sides.append((optimizer, weights))

    @tf.function
    def step(gradient):
        for optimizer, weights in sides:
            optimizer.apply([gradient], [weights])

    for number in range(30):
        step(tf.constant(draw.normal(size=start.shape).astype(np.float32) * 10.0 ** -(number % 5)))
        (_, theirs), (_, ours) = sides
        np.testing.assert_allclose(ours.value.numpy(), theirs.value.numpy(), rtol=1e-5, atol=1e-6)
    theirs, ours = ([value.value.numpy() for value in optimizer.variables] for optimizer, _ in sides)
    assert [value.shape for value in ours] == [value.shape for value in theirs]
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-9)
