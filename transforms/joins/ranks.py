"""Values as whole numbers in their order, and back."""

from __future__ import annotations

import math
import struct
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array

#: The rank of a null among those that order rows, and of NaN where the least value is found.
LEAST: Final = -(1 << 63)
_MAGNITUDE: Final = (1 << 63) - 1
_WHOLE, _FLOAT = struct.Struct("<q"), struct.Struct("<d")


def ranks(values: pa.Array) -> Array:
    """Numbers in the order of values: nulls first, then by bytes of texts and by numbers; -0.0 before 0.0, NaN last."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        whole = values.cast(pa.binary() if pa.types.is_string(values.type) else pa.large_binary())
        return np.asarray(pc.rank(whole, sort_keys=[("", "ascending", "at_start")], tiebreaker="dense")).astype(
            np.int64
        )
    return np.where(np.asarray(values.is_valid(), bool), number_ranks(values), LEAST)


def number_ranks(values: pa.Array) -> Array:
    """As :func:`ranks` of numbers, booleans and timestamps; of a null any number."""
    if pa.types.is_floating(values.type):
        return _turned(np.asarray(values.cast(pa.float64()).fill_null(0.0)).view(np.int64))
    return np.asarray(pc.fill_null(values.cast(pa.int64()), 0))


def values_of(found: Array, is_null: Array, kind: pa.DataType) -> pa.Array:
    """The values of ranks."""
    if pa.types.is_floating(kind):
        numbers = np.where(found == LEAST, np.nan, _turned(found).view(np.float64))
        return pa.array(numbers, pa.float64(), mask=is_null).cast(kind)
    whole = pa.array(found, pa.int64(), mask=is_null)
    return whole if pa.types.is_int64(kind) else whole.cast(kind)


def float_of(rank: int) -> float:
    """As :func:`values_of`, of one float64."""
    number: float = math.nan if rank == LEAST else _FLOAT.unpack(_WHOLE.pack(_turned(rank)))[0]
    return number


_T = TypeVar("_T", int, Array)


def _turned(bits: _T) -> _T:
    """The bits of floats as numbers in their order; its own inverse."""
    turned: _T = bits ^ ((bits >> 63) & _MAGNITUDE)
    return turned
