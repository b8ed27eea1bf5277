"""Row numbers of a fetch come back, in fewer bytes, and hostile bytes and numbers are refused."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.mutations import mutated
from trainer.errors import BadBatch
from trainer.tables.wire.row_numbers import decode, encode, most_bytes

Array = np.ndarray[Any, np.dtype[Any]]

_ROWS = st.lists(st.integers(0, 300) | st.integers(-(2**63), 2**63 - 1), max_size=30)


def _encoded(tables: list[list[int]]) -> tuple[Array, Array, Array]:
    rows = np.array([row for table in tables for row in table], np.int64)
    counts = np.array([len(table) for table in tables], np.int64)
    out = np.empty(most_bytes(len(rows), len(counts)), np.uint8)
    return rows, counts, out[: encode(rows, counts, out)]


@settings(max_examples=scaled(500))
@given(st.lists(_ROWS | _ROWS.map(lambda rows: sorted(set(rows))), max_size=6))
def test_any_rows_come_back_in_their_order(tables: list[list[int]]) -> None:
    rows, counts, buffer = _encoded(tables)
    found = decode(buffer, counts)
    assert found.dtype == np.int64
    assert (found == rows).all()


def test_ascending_rows_take_about_a_byte_and_others_their_width() -> None:
    draw = np.random.default_rng(0)
    rows = np.unique(np.minimum(draw.zipf(1.2, 1 << 17), 10**6))
    ascending = len(_encoded([rows.tolist()])[2])
    shuffled = len(_encoded([draw.permutation(rows).tolist()])[2])
    assert ascending < 1.3 * len(rows)
    assert shuffled == 4 * len(rows) + 1
    assert len(_encoded([[2**40, 1]])[2]) == 17


@pytest.mark.parametrize("counts", [[3], [5], [2, -1, 3], [2**62, 2**62], [-1, 5]])
def test_numbers_of_rows_that_do_not_fit_are_refused(counts: list[int]) -> None:
    _, _, buffer = _encoded([[1, 2, 9, 11]])
    with pytest.raises(BadBatch):
        decode(buffer, np.array(counts, np.int64))
    with pytest.raises(BadBatch, match="must be int64, as many"):
        encode(np.arange(4), np.array(counts, np.int64), np.empty(100, np.uint8))


def test_short_buffers_and_other_types_are_refused() -> None:
    rows, counts = np.arange(4), np.array([4])
    with pytest.raises(BadBatch, match="a buffer must have space"):
        encode(rows, counts, np.empty(most_bytes(4, 1) - 1, np.uint8))
    with pytest.raises(BadBatch, match="must be int64, as many"):
        encode(rows.astype(np.int32), counts, np.empty(100, np.uint8))
    with pytest.raises(BadBatch, match="must be bytes"):
        decode(rows, counts)


@pytest.mark.parametrize("tables", [[[1, 2, 3, 9]], [[9, 1]], [[]], []])
def test_missing_and_additional_bytes_are_refused(tables: list[list[int]]) -> None:
    _, counts, buffer = _encoded(tables)
    for wrong in (buffer[:-1], np.append(buffer, np.uint8(0)), np.append(buffer, np.uint8(1))):
        if len(wrong) != len(buffer):
            with pytest.raises(BadBatch):
                decode(wrong, counts)


def test_mutated_bytes_are_refused_or_rows() -> None:
    draw = np.random.default_rng(2)
    tables = [sorted({*draw.integers(0, 5000, 100).tolist()}), draw.integers(0, 2**40, 20).tolist(), [], [7, 3]]
    _, counts, original = _encoded(tables)
    random, refused = Random(2), 0
    for _ in range(scaled(20_000)):
        content = np.frombuffer(mutated(original.tobytes(), random), np.uint8)
        try:
            assert len(decode(content, counts)) == counts.sum()
        except BadBatch:
            refused += 1
    assert refused
