"""Numbers as Arrow arrays without ``pyarrow.array``: the same arrays, and the same bytes in files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from transforms.kernels.arrow import numbers_to_arrow

TYPES = {
    pa.int64(): np.int64,
    pa.int32(): np.int32,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
    pa.bool_(): np.bool_,
    pa.timestamp("us", "UTC"): np.int64,
}


def stream(array: pa.Array) -> bytes:
    sink, batch = pa.BufferOutputStream(), pa.record_batch([array], ["x"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


@settings(max_examples=scaled(200))
@given(target=st.sampled_from([*TYPES]), rows=st.integers(0, 130), step=st.sampled_from([1, 2]), share=st.sampled_from([None, 0.0, 0.5, 1.0]),
       seed=st.integers(0, 2**32))  # fmt: skip
def test_arrays_and_bytes_are_those_of_pyarrow(target, rows, step, share, seed):
    source = np.random.default_rng(seed)
    values = source.integers(0, 2, rows * step).astype(TYPES[target])[::step]
    valid = None if share is None else source.random(rows) < share
    expected = pa.array(
        values, pa.int64() if pa.types.is_timestamp(target) else target, mask=None if valid is None else ~valid
    ).cast(target)
    found = numbers_to_arrow(values, target, valid)
    found.validate(full=True)
    assert found.equals(expected)
    assert found.null_count == expected.null_count
    assert stream(found) == stream(expected)


@pytest.mark.parametrize("values", [np.array([1, 2], np.int32), np.array([1.0, 2.0])])
def test_other_types_are_converted_as_pyarrow_converts_them(values):
    assert numbers_to_arrow(values, pa.int64()).equals(pa.array(values, pa.int64()))
