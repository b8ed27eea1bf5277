"""Floats rounded to bfloat16: the nearest, within the stated error, equal to TensorFlow's, and refused in other arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from trainer.errors import BadBatch
from trainer.tables.wire import bfloat16

ANY_BITS = arrays.arrays(np.uint32, st.integers(0, 50), elements=st.integers(0, 2**32 - 1))


def rounded(values):
    found = np.empty_like(values)
    bfloat16.decode(bfloat16.encode(values), found)
    return found


@given(ANY_BITS)
def test_all_floats_are_rounded_to_the_nearest_and_stay_there(words):
    values = words.view(np.float32)
    found = rounded(values)
    assert rounded(found).tobytes() == found.tobytes()
    assert bfloat16.encode(values).nbytes == bfloat16.encoded_bytes(len(values))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(values))
    np.testing.assert_array_equal(np.signbit(found), np.signbit(values))
    normal = np.isfinite(values) & np.isfinite(found) & (np.abs(values) >= np.finfo(np.float32).tiny)
    exact = values[normal].astype(np.float64)
    assert (np.abs(found[normal] - exact) <= bfloat16.RELATIVE_ERROR * np.abs(exact)).all()
    largest = np.float32(np.uint32(0x7F7F0000).view(np.float32))
    assert (np.isfinite(found) | ~np.isfinite(values) | (np.abs(values) > largest)).all()


def test_ties_go_to_the_even_one():
    words = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x80000000, 0x7F800000, 0x7F800001], np.uint32)
    found = rounded(words.view(np.float32)).view(np.uint32) >> 16
    assert found.tolist() == [0x3F80, 0x3F82, 0x3F81, 0x3F80, 0x8000, 0x7F80, 0x7FC0]


def test_values_are_those_of_tensorflow():
    tf = pytest.importorskip("tensorflow")
    rng = np.random.default_rng(3)
    values = (rng.standard_normal(5000) * 10.0 ** rng.integers(-38, 38, 5000)).astype(np.float32)
    expected = tf.cast(tf.cast(values, tf.bfloat16), tf.float32).numpy()
    usual = np.abs(values) > np.finfo(np.float32).tiny  # TensorFlow may flush others
    np.testing.assert_array_equal(rounded(values)[usual], expected[usual])


@pytest.mark.parametrize("values", [np.zeros(3), np.zeros((2, 2), np.float32), np.zeros(6, np.float32)[::2]])
def test_other_arrays_are_refused(values):
    with pytest.raises(BadBatch):
        bfloat16.encode(values)
    with pytest.raises(BadBatch):
        bfloat16.decode(np.zeros(6, np.uint8), values)


@pytest.mark.parametrize("buffer", [np.zeros(5, np.uint8), np.zeros(7, np.uint8), np.zeros(3, np.uint16)])
def test_other_messages_are_refused(buffer):
    with pytest.raises(BadBatch, match="3 values"):
        bfloat16.decode(buffer, np.zeros(3, np.float32))
