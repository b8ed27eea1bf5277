"""Stored weights: exact, or within the bound of their encoding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from trainer.errors import TornCheckpoint
from trainer.serving.deltas.row_digests import digest_rows
from trainer.serving.deltas.row_values import ENCODINGS, arrays_of, decode, encode, encoding_of

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
TABLES = st.tuples(st.integers(0, 7), st.integers(1, 9)).flatmap(
    lambda shape: arrays.arrays(np.float32, shape, elements=FLOATS)
)


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(weights=TABLES)
def test_served_weights_are_within_the_recorded_error(encoding, weights):
    stored, error = encode(weights, encoding, "table")
    for name, (dtype, rest) in arrays_of(encoding, weights.shape[1]).items():
        assert (stored[name].dtype, stored[name].shape) == (dtype, (len(weights), *rest))
    served = decode(stored, encoding)
    assert served.dtype == np.float32
    assert np.isfinite(served).all()
    difference = np.abs(served.astype(np.float64) - weights)
    assert difference.max(initial=0.0) == error
    if encoding == "float32":
        assert served.tobytes() == weights.tobytes()
    elif encoding == "int8":
        scales = stored["scales"].astype(np.float64)[:, np.newaxis]
        assert (difference <= 0.51 * scales + 1e-43).all()
    else:
        inside = np.abs(weights) <= 65504
        assert (difference[inside] <= np.maximum(np.abs(weights[inside]) * 2.0**-11, 2.0**-25)).all()
        assert (np.abs(served[~inside]) == 65504).all()
    again, _ = encode(weights, encoding, "table")
    assert {name: one.tobytes() for name, one in again.items()} == {name: one.tobytes() for name, one in stored.items()}


@pytest.mark.parametrize("encoding", ["float16", "int8"])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_not_quantized(encoding, odd):
    with pytest.raises(TornCheckpoint, match="must be finite"):
        encode(np.array([[1.0, odd]], np.float32), encoding, "table")


def test_narrow_tables_are_not_stored_with_scales():
    assert [encoding_of("int8", columns) for columns in (1, 4, 5)] == ["float16", "float16", "int8"]
    assert [encoding_of(quantize, 1) for quantize in ("none", "fp16")] == ["float32", "float16"]


@given(weights=TABLES, data=st.data())
def test_rows_have_equal_digests_if_and_only_if_their_bits_are_equal(weights, data):
    digests = digest_rows(weights)
    assert (digests == digest_rows(weights.copy(order="F"))).all()
    bits = [row.tobytes() for row in weights]
    assert len({one.tobytes() for one in digests}) == len(set(bits))
    if weights.size:
        changed = weights.copy()
        at = data.draw(st.integers(0, weights.size - 1))
        changed.view(np.uint32).reshape(-1)[at] ^= np.uint32(1 << data.draw(st.integers(0, 31)))
        differs = (digest_rows(changed) != digests).any(axis=1)
        assert differs.sum() == 1
        assert differs[at // weights.shape[1]]


def test_many_rows_of_few_values_have_distinct_digests():
    """Rows as after training with small changes: whatever lanes have in common would show here."""
    draw = np.random.default_rng(1)
    rows = draw.integers(0, 4, (200_000, 16)).astype(np.float32)
    digests = digest_rows(rows)
    distinct = len(np.unique(rows.view("V64").ravel()))
    assert [len(np.unique(digests[:, lane])) for lane in (0, 1)] == [distinct, distinct]


def test_digests_are_those_of_the_first_release():
    """They are kept on disk: another function would find every row changed."""
    found = digest_rows(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert [f"{one:016x}" for one in found.ravel()] == [
        "7792f37da63d4bc5",
        "0b5dfc35780ccb1e",
        "e78b8c23953c8256",
        "5ab44beb0ec655ed",
    ]
