from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import keras
import tensorflow as tf

from trainer.model.interaction import SelfInteraction

ROWS, DIM, UNITS = 5, 3, 4


def layer_of(inputs, *, bias=True, seed=1):
    tf.random.set_seed(0)  # determinism, which other tests of the process may ask for, needs a seed
    layer = keras.layers.Dense(UNITS, "relu", use_bias=bias, kernel_initializer=keras.initializers.GlorotUniform(seed))
    layer.build((None, inputs))
    return layer


def gathered(layer, stacked, beside):
    """The gather form: the pairs are taken from the products, then the layer is applied."""
    products = tf.reshape(tf.matmul(stacked, stacked, transpose_b=True), [ROWS, -1])
    rows, columns = np.tril_indices(stacked.shape[1], -1)
    pairs = tf.gather(products, rows * stacked.shape[1] + columns, axis=1)
    return layer(pairs if beside is None else tf.concat([beside, pairs], axis=1))


def inputs_of(count, with_beside, seed=0):
    rng = np.random.default_rng(seed)
    vectors = [tf.constant(rng.normal(size=(ROWS, DIM)).astype(np.float32)) for _ in range(count)]
    return vectors, tf.constant(rng.normal(size=(ROWS, 2)).astype(np.float32)) if with_beside else None


@pytest.mark.parametrize("count", [2, 3, 9])
@pytest.mark.parametrize("with_beside", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_the_masked_form_has_the_values_and_the_gradients_of_the_gather_form(count, with_beside, bias):
    vectors, beside = inputs_of(count, with_beside)
    interaction = SelfInteraction(count)
    layer = layer_of(interaction.pairs + 2 * with_beside, bias=bias)
    weights = tf.constant(np.random.default_rng(2).normal(size=(ROWS, UNITS)).astype(np.float32))
    sources = [*vectors, *([beside] if with_beside else []), *(v.value for v in layer.trainable_variables)]
    found = []
    for form in (interaction.apply, gathered):
        with tf.GradientTape() as tape:
            tape.watch(sources)
            values = form(layer, tf.stack(vectors, axis=1), beside)
            loss = tf.reduce_sum(values * weights)
        found.append((values, tape.gradient(loss, sources)))
    (masked, masked_gradients), (expected, gradients) = found
    np.testing.assert_allclose(masked, expected, rtol=1e-5, atol=1e-6)
    for one, other in zip(masked_gradients, gradients, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def compiled_text(form, layer, count):
    def step(vectors, beside):
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            loss = tf.reduce_sum(form(layer, tf.stack(vectors, axis=1), beside))
        return tape.gradient(loss, [*vectors, layer.kernel.value])

    return tf.function(step, jit_compile=True, autograph=False).experimental_get_compiler_ir(*inputs_of(count, True))()


def test_the_compiled_step_has_no_gather():
    layer = layer_of(SelfInteraction(6).pairs + 2)
    text = compiled_text(SelfInteraction(6).apply, layer, 6)
    assert "dot(" in text
    assert "gather(" not in text
    assert "scatter(" not in text
    assert "gather(" in compiled_text(gathered, layer, 6)  # what the test looks for
