"""Blocks of 16-bit floats: the bound of the error, extreme values, and bytes that no encoder writes."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.support.examples import scaled
from tests.support.mutations import mutated
from trainer.errors import BadBatch
from trainer.tables.wire.fp16_blocks import NORM_ERROR, RELATIVE_ERROR, decode, encode, encoded_bytes
from trainer.tables.wire.scaled_blocks import BLOCK_VALUES

Array = np.ndarray[Any, np.dtype[Any]]


def _encoded(values: Array, block: int = BLOCK_VALUES) -> Array:
    out = np.full(encoded_bytes(len(values), block), 0xAA, np.uint8)
    encode(values, out, block)
    return out


def _decoded(buffer: Array, count: int, block: int = BLOCK_VALUES) -> Array:
    out = np.full(count, np.nan, np.float32)
    decode(buffer, out, block)
    return out


def _check_bound(values: Array, block: int) -> None:
    buffer = _encoded(values, block)
    back = _decoded(buffer, len(values), block)
    assert np.isfinite(back).all()
    assert (np.signbit(back) == np.signbit(values)).all()
    assert _encoded(back, block).tobytes() == buffer.tobytes()
    for first in range(0, len(values), block):
        x, y = (one[first : first + block].astype(np.float64) for one in (values, back))
        assert (np.abs(x - y) <= np.maximum(RELATIVE_ERROR * np.abs(x), NORM_ERROR * np.abs(x).max())).all()


@settings(max_examples=scaled(1000))
@given(hnp.arrays(np.float32, st.integers(0, 80), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)),
       st.sampled_from((1, 3, 16, 64, BLOCK_VALUES)))  # fmt: skip
def test_any_finite_values_keep_the_bound(values: Array, block: int) -> None:
    _check_bound(values, block)


def test_every_exponent_of_float32_keeps_the_bound() -> None:
    draw, largest = np.random.default_rng(0), float(np.finfo(np.float32).max)
    for exponent in range(-149, 128):
        ladder = (
            np.exp2(np.clip(exponent - np.arange(300), -149, 127)) * draw.uniform(1, 2, 300) * draw.choice((-1, 1), 300)
        )
        _check_bound(np.clip(ladder, -largest, largest).astype(np.float32), BLOCK_VALUES)


def test_it_is_the_rounding_of_numpy() -> None:
    draw = np.random.default_rng(0)
    patterns = draw.integers(0, 1 << 32, 1 << 18, dtype=np.uint32).view(np.float32)
    # A block of norm 2^14 has factor 1. Ties, and each float16 below 2^15, are among the values.
    halves = np.arange(0x7800, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = (halves[1:] + halves[:-1]) / 2
    values = np.concatenate([patterns[np.abs(patterns) < 2.0**14], halves, -halves, ties, -ties])
    blocks = np.full((-(-len(values) // (BLOCK_VALUES - 1)), BLOCK_VALUES), 2.0**14, np.float32)
    blocks[:, 1:].flat[: len(values)] = values
    expected = np.clip(blocks.astype(np.float16), -32752, 32752)
    got = _encoded(blocks.ravel()).view(np.uint16)
    assert (got[: len(blocks)] == 127).all()
    assert got[len(blocks) :].tobytes() == expected.tobytes()


@pytest.mark.parametrize("values", [
    np.zeros(300), -np.zeros(300), np.full(300, 1e38), np.full(300, np.finfo(np.float32).max), np.full(5, -1e38),
    np.full(130, 1e-45), np.array([np.finfo(np.float32).max, 1e-45] * 100), np.array([1e-38, -3e-39, 1e-45, 0.0]),
])  # fmt: skip
def test_extreme_values(values: Array) -> None:
    _check_bound(values.astype(np.float32), BLOCK_VALUES)


def test_values_of_a_float16_are_exact() -> None:
    values = np.arange(-1024, 1025, dtype=np.float32) / 1024
    for factor in (1.0, 2.0**-100, 2.0**100):
        assert (_decoded(_encoded(values * np.float32(factor)), len(values)) == values * np.float32(factor)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 127, 128, 299])
def test_values_that_are_not_finite_are_refused(bad: float, at: int) -> None:
    values = np.ones(300, np.float32)
    values[at] = bad
    with pytest.raises(BadBatch, match="values on the wire must be finite") as caught:
        _encoded(values)
    assert caught.value.where == f"position {at}"


def test_other_types_and_sizes_are_refused() -> None:
    values = np.ones(300, np.float32)
    size = encoded_bytes(300)
    assert size == 2 * (300 + 3)
    for wrong in (np.ones(300), values[::2], values.reshape(3, 100)):
        with pytest.raises(BadBatch, match="must be flat float32"):
            encode(wrong, np.empty(size, np.uint8))
        with pytest.raises(BadBatch, match="must be flat float32"):
            decode(_encoded(values), wrong)
    for buffer in (
        np.empty(size - 1, np.uint8),
        np.empty(size + 2, np.uint8),
        np.empty(size // 2, np.uint16),
        np.empty(2 * size, np.uint8)[::2],
    ):
        with pytest.raises(BadBatch, match="300 values on the wire must have 606 bytes"):
            encode(values, buffer)
        with pytest.raises(BadBatch, match="300 values on the wire must have 606 bytes"):
            decode(buffer, values)


def test_a_buffer_at_an_odd_address() -> None:
    values = np.linspace(-1, 1, 300, dtype=np.float32)
    shifted = np.empty(encoded_bytes(300) + 1, np.uint8)[1:]
    encode(values, shifted)
    assert shifted.tobytes() == _encoded(values).tobytes()
    assert (_decoded(shifted, 300) == _decoded(_encoded(values), 300)).all()


@pytest.mark.parametrize("scale", [0, 241, 255, 0x7F80, 0xFFFF])
def test_scales_that_no_encoder_writes_are_refused(scale: int) -> None:
    buffer = _encoded(np.ones(300, np.float32))
    buffer.view(np.uint16)[1] = scale
    with pytest.raises(BadBatch, match="scale") as caught:
        _decoded(buffer, 300)
    assert caught.value.where == "block 1"


@pytest.mark.parametrize("half", [0x7800, 0x7C00, 0x7E00, 0xF800, 0xFC00, 0xFFFF])
def test_infinite_and_too_large_values_are_refused(half: int) -> None:
    buffer = _encoded(np.ones(300, np.float32))
    buffer.view(np.uint16)[3 + 299] = half
    with pytest.raises(BadBatch, match="values that an encoder writes") as caught:
        _decoded(buffer, 300)
    assert caught.value.where == "block 2"


def test_mutated_bytes_are_refused_or_finite() -> None:
    random = Random(5)
    original = _encoded(np.random.default_rng(1).normal(0, 1, 500).astype(np.float32)).tobytes()
    refused = 0
    for _ in range(scaled(20_000)):
        content = np.frombuffer(mutated(original, random), np.uint8)
        try:
            assert np.isfinite(_decoded(content, 500)).all()
        except BadBatch:
            refused += 1
    assert refused
