"""NaNs with payloads and signs, as other programs write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

_BITS: dict[pa.DataType, tuple[Any, int]] = {
    pa.float32(): (np.uint32, 0xFF << 23),
    pa.float64(): (np.uint64, 0x7FF << 52),
}


def with_odd_nans(array: pa.Array) -> pa.Array:
    """The same values, every NaN with another payload: some negative, some signalling."""
    if array.type in _BITS:
        unsigned, quiet = _BITS[array.type]
        values = array.fill_null(0.0).to_numpy(zero_copy_only=False).copy()
        bits, width = values.view(unsigned), 8 * values.itemsize
        for count, at in enumerate(np.flatnonzero(np.isnan(values))):
            bits[at] = quiet | (count + 1) | ((count % 2) << (width - 1))
        return pa.array(values, array.type, mask=np.asarray(array.is_null()))
    if pa.types.is_struct(array.type):
        return pa.StructArray.from_arrays(
            [with_odd_nans(part) for part in array.flatten()], fields=list(array.type.fields)
        )
    if pa.types.is_fixed_size_list(array.type):
        return pa.FixedSizeListArray.from_arrays(with_odd_nans(array.flatten()), type=array.type)
    if pa.types.is_list(array.type):
        offsets = array.offsets.to_numpy()
        return pa.ListArray.from_arrays(pa.array(offsets - offsets[0]), with_odd_nans(array.flatten()), type=array.type)
    return array


def nans(array: pa.Array | pa.ChunkedArray) -> set[int]:
    """The bits of the NaNs of an array, lists and pairs taken apart; null slots are left out."""
    if isinstance(array, pa.ChunkedArray):
        return {bits for chunk in array.chunks for bits in nans(chunk)}
    if array.type in _BITS:
        values = array.drop_null().to_numpy(zero_copy_only=False)
        return {int(bits) for bits in values.view(_BITS[array.type][0])[np.isnan(values)]}
    if pa.types.is_struct(array.type):
        return {bits for part in array.flatten() for bits in nans(part)}
    return nans(array.flatten()) if pa.types.is_nested(array.type) else set()


#: The one NaN, as float32 and as float64.
QUIET = frozenset({0x7FC00000, 0x7FF8000000000000})
