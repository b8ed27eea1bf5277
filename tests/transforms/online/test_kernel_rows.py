"""Columns of a block as kernels read them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from transforms.online.kernel_rows import KernelRows
from transforms.online.row_block import RowBlock


@pytest.mark.parametrize("offset", [0, 3, 8, 13])
def test_a_slice_is_read_where_it_begins(offset):
    draw = np.random.default_rng(offset)
    size = 40
    truths = pa.array(draw.random(size) < 0.5, mask=draw.random(size) < 0.3)
    floats = pa.array(draw.random(size).astype(np.float32), mask=draw.random(size) < 0.3)
    whole = RowBlock(np.arange(size), {"truths": truths, "floats": floats, "times": pa.array(np.arange(size)).cast(pa.timestamp("us", "UTC"))}, {})  # fmt: skip
    rows = KernelRows(whole.part(offset, size))

    def bits(given: np.ndarray) -> list[bool]:
        return np.unpackbits(given, count=size - offset, bitorder="little").astype(bool).tolist()

    kept = truths.slice(offset)
    assert bits(rows.used("truths")) == kept.fill_null(False).to_pylist()
    assert bits(rows.values("truths").valid) == kept.is_valid().to_pylist()
    assert [one for one, valid in zip(bits(rows.values("truths").truths), kept.is_valid().to_pylist(), strict=True) if valid] == kept.drop_null().to_pylist()  # fmt: skip
    numbers = rows.values("floats").whole.view(np.float64)
    assert [one for one, valid in zip(numbers.tolist(), floats.slice(offset).is_valid().to_pylist(), strict=True) if valid] == floats.slice(offset).drop_null().to_pylist()  # fmt: skip
    assert rows.values("times").whole.tolist() == list(range(offset, size))
