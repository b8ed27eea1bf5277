"""Blocks of 14-bit floats: the bound of the error, the nearest codes, extreme values, and bytes that no encoder writes."""

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
from trainer.tables.wire.fp14_blocks import NORM_ERROR, RELATIVE_ERROR, TINY_ERROR, decode, encode, encoded_bytes
from trainer.tables.wire.scaled_blocks import BLOCK_VALUES

Array = np.ndarray[Any, np.dtype[Any]]


def _encoded(values: Array) -> Array:
    out = np.full(encoded_bytes(len(values)), 0xAA, np.uint8)
    encode(values, out)
    return out


def _decoded(buffer: Array, count: int) -> Array:
    out = np.full(count, np.nan, np.float32)
    decode(buffer, out)
    return out


def _check_bound(values: Array) -> None:
    buffer = _encoded(values)
    back = _decoded(buffer, len(values))
    assert np.isfinite(back).all()
    assert (np.signbit(back) == np.signbit(values)).all()
    assert _encoded(back).tobytes() == buffer.tobytes()
    for first in range(0, len(values), BLOCK_VALUES):
        x, y = (one[first : first + BLOCK_VALUES].astype(np.float64) for one in (values, back))
        allowed = np.maximum(RELATIVE_ERROR * np.abs(x), max(NORM_ERROR * np.abs(x).max(), TINY_ERROR))
        assert (np.abs(x - y) <= allowed).all()


@settings(max_examples=scaled(1000))
@given(st.integers(0, 3), hnp.arrays(np.float32, st.integers(0, 2 * BLOCK_VALUES + 5),
       elements=st.floats(width=32, allow_nan=False, allow_infinity=False), fill=st.just(0.0)))  # fmt: skip
def test_any_finite_values_keep_the_bound(repeats: int, values: Array) -> None:
    _check_bound(np.tile(values, repeats))


def test_every_exponent_of_float32_keeps_the_bound() -> None:
    draw, largest = np.random.default_rng(0), float(np.finfo(np.float32).max)
    for exponent in range(-149, 128):
        ladder = (
            np.exp2(np.clip(exponent - np.arange(300), -149, 127)) * draw.uniform(1, 2, 300) * draw.choice((-1, 1), 300)
        )
        _check_bound(np.clip(ladder, -largest, largest).astype(np.float32))


def test_values_become_the_nearest_codes() -> None:
    # A block of norm 2^14 has factor 1: codes are multiples of 2^-9 up to 1, then 512 in each power of two.
    codes = np.concatenate([np.arange(512) / 512, *(2.0**k * (1 + np.arange(512) / 512) for k in range(14)), [2.0**14]])
    draw = np.random.default_rng(0)
    values = np.concatenate([codes, (codes[1:] + codes[:-1]) / 2, np.exp2(draw.uniform(-12, 14, 20_000))]).astype(
        np.float32
    )
    blocks = np.full((-(-len(values) // (BLOCK_VALUES - 1)), BLOCK_VALUES), 2.0**14, np.float32)
    blocks[:, 1:].flat[: len(values)] = values
    back = _decoded(_encoded(blocks.ravel()), blocks.size)
    at = np.searchsorted(codes, blocks.ravel()).clip(1)
    below, above = blocks.ravel() - codes[at - 1], codes[at] - blocks.ravel()
    even = np.where(at % 2 == 0, codes[at], codes[at - 1])
    expected = np.where(below == above, even, np.where(below < above, codes[at - 1], codes[at]))
    assert (back == expected).all()
    assert (_decoded(_encoded(-blocks.ravel()), blocks.size) == -expected).all()


@pytest.mark.parametrize("values", [
    np.zeros(300), -np.zeros(300), np.full(300, 1e38), np.full(300, np.finfo(np.float32).max), np.full(5, -1e38),
    np.full(130, 1e-45), np.array([np.finfo(np.float32).max, 1e-45] * 100), np.array([1e-38, -3e-39, 1e-45, 0.0]),
])  # fmt: skip
def test_extreme_values(values: Array) -> None:
    _check_bound(values.astype(np.float32))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 127, 128, 299])
def test_values_that_are_not_finite_are_refused(bad: float, at: int) -> None:
    values = np.ones(300, np.float32)
    values[at] = bad
    with pytest.raises(BadBatch, match="values on the wire must be finite") as caught:
        _encoded(values)
    assert caught.value.where == f"position {at}"


def test_sizes_and_types() -> None:
    values = np.ones(301, np.float32)
    assert encoded_bytes(1280) == 2 * 10 + 1280 * 14 // 8
    assert encoded_bytes(301) == 2 * 3 + 301 + 3 * 76
    with pytest.raises(BadBatch, match="301 values on the wire must have 535 bytes"):
        encode(values, np.empty(534, np.uint8))
    with pytest.raises(BadBatch, match="301 values on the wire must have 535 bytes"):
        decode(np.empty(536, np.uint8), values)
    with pytest.raises(BadBatch, match="must be flat float32"):
        decode(_encoded(values), np.ones(301))


@pytest.mark.parametrize("scale", [0, 241, 255, 0xFFFF])
def test_scales_that_no_encoder_writes_are_refused(scale: int) -> None:
    buffer = _encoded(np.ones(300, np.float32))
    buffer[2:4].view(np.uint16)[0] = scale
    with pytest.raises(BadBatch, match="scale") as caught:
        _decoded(buffer, 300)
    assert caught.value.where == "block 1"


def test_bits_without_a_value_are_zero() -> None:
    buffer = _encoded(np.ones(129, np.float32))
    buffer[-1] |= 0x80
    with pytest.raises(BadBatch, match="an encoder writes") as caught:
        _decoded(buffer, 129)
    assert caught.value.where == "block 1"


def test_mutated_bytes_are_refused_or_finite() -> None:
    random, refused = Random(5), 0
    original = _encoded(np.random.default_rng(1).normal(0, 1, 501).astype(np.float32)).tobytes()
    for _ in range(scaled(20_000)):
        content = np.frombuffer(mutated(original, random), np.uint8)
        try:
            assert np.isfinite(_decoded(content, 501)).all()
        except BadBatch:
            refused += 1
    assert refused
