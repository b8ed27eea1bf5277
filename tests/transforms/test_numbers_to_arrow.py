"""Numbers to Arrow and back without ``pyarrow.array`` and ``to_numpy``, which import pandas: the same arrays, and the same bytes in files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from transforms.columns.arrays import numpy_of, valid_of
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


FIXED = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.bool_(),
]


@settings(max_examples=scaled(200))
@given(kind=st.sampled_from(FIXED), rows=st.integers(0, 130), first=st.integers(0, 20), seed=st.integers(0, 2**32))
def test_numbers_and_validity_of_slices_are_those_of_pyarrow(kind, rows, first, seed):
    source = np.random.default_rng(seed)
    values = source.integers(0, 2, rows).astype(kind.to_pandas_dtype())
    whole = pa.array(values, kind)
    found, expected = numpy_of(whole.slice(first)), whole.slice(first).to_numpy(zero_copy_only=False)
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes()
    holed = pa.array(values, kind, mask=source.random(rows) < 0.5).slice(first)
    assert valid_of(holed).tolist() == [one.is_valid for one in holed]
