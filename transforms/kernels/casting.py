"""The kernel of ``cast``. A value without a counterpart in the new type is marked null."""

from __future__ import annotations

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import NUMPY_ELEMENT, Column, Numbers, Strings
from transforms.columns.positions import check_positions
from transforms.kernels.buffers import spans
from transforms.kernels.decimals import read_decimals, write_decimals
from transforms.kernels.numbers import as_float64, numbers, rounded
from transforms.kernels.spans import frozen
from transforms.types import DType


def cast(column: Column, *, dtype: str) -> Column:
    """The column as another element type; timestamps and int64 share their representation."""
    target = DType(dtype)
    if isinstance(column, Strings):
        if target is DType.STRING:
            return column
        return Numbers(*read_decimals(*spans(column)))
    values = numbers(column)
    if target is DType.STRING:
        data, offsets = write_decimals(frozen(values))
        check_positions(int(offsets[-1]), "bytes of text")
        whole = offsets.astype(np.int32)
        return Strings(data, whole[:-1], whole[1:])
    if target is DType.BOOL:
        return Numbers(values != 0)
    if target in (DType.FLOAT32, DType.FLOAT64):
        return Numbers(rounded(values.astype(np.float64), NUMPY_ELEMENT[target]))
    return _to_int64(values)


def _to_int64(values: Array) -> Numbers:
    if values.dtype in (np.int64, np.bool_):
        return Numbers(values.astype(np.int64, copy=False))
    wide = as_float64(values)
    fits = (wide >= -(2.0**63)) & (wide < 2.0**63)
    return Numbers(np.where(fits, wide, 0.0).astype(np.int64), None if fits.all() else fits)
