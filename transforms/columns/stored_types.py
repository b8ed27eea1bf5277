"""The stored Arrow types that each element type can read, and the casts, which lose nothing.

A cast is listed only if the stored value follows from the declared one: a day becomes its midnight in UTC, a decimal of
at most 15 digits the nearest float64, which no other such decimal has. A value that does not fit (a uint64 from 2**63 on,
bytes that are not UTF-8) is refused when it is read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.columns.arrays import valid_of
from transforms.columns.arrow_types import ARROW_ELEMENT
from transforms.errors import DataError
from transforms.types import DType

#: All decimals of this many digits are different float64 numbers.
FLOAT64_DIGITS = 15
#: Every decimal of this many digits fits int64.
INT64_DIGITS = 18


def reads_as(stored: pa.DataType, dtype: DType) -> bool:
    """Whether a stored type, not a list or dictionary, can be read as ``dtype`` without loss."""
    match dtype:
        case DType.BOOL:
            return bool(pa.types.is_boolean(stored))
        case DType.INT64:
            return bool(pa.types.is_integer(stored)) or _is_whole_decimal(stored)
        case DType.FLOAT32:
            return bool(pa.types.is_float16(stored) or pa.types.is_float32(stored))
        case DType.FLOAT64:
            return bool(pa.types.is_floating(stored)) or _is_short_decimal(stored)
        case DType.STRING:
            return _is_text(stored) or _is_bytes(stored)
        case DType.TIMESTAMP:
            return bool(pa.types.is_timestamp(stored) or pa.types.is_date(stored))


def cast_stored(array: pa.Array, dtype: DType) -> pa.Array:
    """``array``, of a type that :func:`reads_as` ``dtype``, as the Arrow type of ``dtype``.

    Raises :class:`DataError`, with the first such value, for one that ``dtype`` cannot hold.
    """
    target = ARROW_ELEMENT[dtype]
    if pa.types.is_decimal(array.type):
        return _decimals(array, dtype)
    finer = pa.types.is_timestamp(array.type) and array.type.unit == "ns"
    if pa.types.is_date(array.type):
        target = pa.timestamp("us")  # Arrow gives a day no zone in one step
    try:
        return array.cast(target, safe=not finer).cast(ARROW_ELEMENT[dtype])
    except pa.ArrowInvalid as error:
        value = _first_unfit(array, target)
        if value is None:
            raise
        raise DataError(f"a value must fit into {dtype}", value=value, allowed=_allowed(array.type, dtype),
                        next_step=f"store the column as it can be read: {_advice(array.type)}") from error  # fmt: skip


def fits(array: pa.Array | pa.ChunkedArray) -> bool:
    """Whether every value of a uint64 or binary array, plain or as a dictionary, can be read as int64 or text."""
    if isinstance(array, pa.ChunkedArray):
        return all(fits(chunk) for chunk in array.chunks)
    if pa.types.is_dictionary(array.type):
        return fits(array.dictionary)
    if pa.types.is_uint64(array.type):
        largest = pc.max(array).as_py()
        return largest is None or largest < 2**63
    if _is_bytes(array.type):
        try:
            array.cast(pa.string() if not pa.types.is_large_binary(array.type) else pa.large_string())
        except pa.ArrowInvalid:
            return False
    return True


def _is_text(stored: pa.DataType) -> bool:
    return bool(pa.types.is_string(stored) or pa.types.is_large_string(stored) or pa.types.is_string_view(stored))


def _is_bytes(stored: pa.DataType) -> bool:
    return bool(pa.types.is_binary(stored) or pa.types.is_large_binary(stored) or pa.types.is_binary_view(stored))


def _is_whole_decimal(stored: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(stored) and stored.scale == 0 and stored.precision <= INT64_DIGITS)


def _is_short_decimal(stored: pa.DataType) -> bool:
    return bool(
        pa.types.is_decimal(stored) and stored.precision <= FLOAT64_DIGITS and 0 <= stored.scale <= FLOAT64_DIGITS
    )


def _decimals(array: pa.Array, dtype: DType) -> pa.Array:
    """The unscaled integers divided by a power of ten. Both are exact in float64, so the quotient is rounded once."""
    width = array.type.bit_width // 8
    unscaled = _lowest_bytes(array, width)
    mask = ~valid_of(array) if array.null_count else None
    if dtype is DType.INT64:
        return pa.array(unscaled, pa.int64(), mask=mask)
    return pa.array(unscaled.astype(np.float64) / 10.0**array.type.scale, pa.float64(), mask=mask)


def _lowest_bytes(array: pa.Array, width: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The unscaled value of each decimal, of at most 18 digits; zero where it is null."""
    if not len(array):
        return np.zeros(0, np.int64)
    raw = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * width : (array.offset + len(array)) * width]
    low = np.ascontiguousarray(raw.reshape(len(array), width)[:, : min(width, 8)])
    values = low.view("<i4" if width == 4 else "<i8").reshape(-1).astype(np.int64)
    return np.where(valid_of(array), values, 0) if array.null_count else values


def _first_unfit(array: pa.Array, target: pa.DataType) -> object:
    """The first value that cannot be cast, found by bisection; None if the cast fails for another reason."""
    while len(array) > 1:
        half = array.slice(0, len(array) // 2)
        array = half if not _casts(half, target) else array.slice(len(array) // 2)
    if not len(array) or _casts(array, target):
        return None
    if pa.types.is_temporal(array.type):  # Python's dates end with the year 9999
        return str(array.cast(pa.int32() if pa.types.is_date32(array.type) else pa.int64())[0])
    return array[0].as_py()


def _casts(array: pa.Array, target: pa.DataType) -> bool:
    try:
        array.cast(target)
    except pa.ArrowInvalid:
        return False
    return True


def _allowed(stored: pa.DataType, dtype: DType) -> str:
    if dtype is DType.INT64:
        return "0 to 9223372036854775807"
    return "bytes that are UTF-8 text" if _is_bytes(stored) else "a time that microseconds since 1970 can count"


def _advice(stored: pa.DataType) -> str:
    if pa.types.is_uint64(stored):
        return 'an id as text, table["COLUMN"].cast(pa.string())'
    if _is_bytes(stored):
        return 'hexadecimal text, pa.array([v and v.hex() for v in table["COLUMN"].to_pylist()], pa.string())'
    return "null for a time that is not known"
