"""The random numbers are those of TensorFlow, and so are the first weights of a network."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.model.compiled.stateless_random import normal, uniform

keras = pytest.importorskip("keras")
tf = pytest.importorskip("tensorflow")

SEEDS = st.integers(0, 2**31 - 1)


@settings(max_examples=50)
@given(SEEDS, st.integers(0, 40))
def test_uniform_numbers_are_those_of_keras(seed, count):
    found = uniform((seed, 0), count)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.array(keras.random.uniform((count,), seed=seed)))


@settings(max_examples=20)
@given(SEEDS, st.integers(0, 2**40))
def test_a_state_that_has_gone_on_gives_the_numbers_of_its_step(seed, steps):
    generator = keras.random.SeedGenerator(seed)
    generator.state.assign(np.array([seed, steps]))
    np.testing.assert_array_equal(uniform((seed, steps), 9), np.array(keras.random.uniform((9,), seed=generator)))


@settings(max_examples=50)
@given(SEEDS, st.integers(0, 40))
def test_normal_numbers_are_those_of_keras_but_for_rounding(seed, count):
    np.testing.assert_allclose(
        normal((seed, 0), count), np.array(keras.random.normal((count,), seed=seed)), rtol=0, atol=3e-6
    )
