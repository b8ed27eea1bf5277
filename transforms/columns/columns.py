"""Columns as flat numpy buffers for the kernels, and their conversion from Arrow.

``Numbers`` holds bool, int64, float32, float64, and timestamps as int64 microseconds. ``Strings`` holds *spans*
over one byte buffer, so that splitting or filtering text moves offsets and never bytes. ``RaggedItems`` holds row
offsets over one of the two, ``WeightedItems`` a weight beside each item, ``Vectors`` as many items for every row; items
are never null. ``Constants`` is what an artifact holds: the same items for every row. Buffers are read-only by
convention: a kernel allocates its output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array
from transforms.columns.arrays import numpy_of, one_array, valid_of
from transforms.columns.arrow_types import arrow_type
from transforms.columns.nans import with_one_nan
from transforms.columns.positions import as_positions, check_positions
from transforms.columns.stored_types import cast_stored, reads_as
from transforms.errors import DataError
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, Weighted

NUMPY_ELEMENT: dict[DType, np.dtype[Any]] = {
    DType.BOOL: np.dtype(np.bool_),
    DType.INT64: np.dtype(np.int64),
    DType.FLOAT32: np.dtype(np.float32),
    DType.FLOAT64: np.dtype(np.float64),
    DType.TIMESTAMP: np.dtype(np.int64),
}


@dataclass(frozen=True, slots=True)
class Numbers:
    """``values``: one element per row; ``valid``: a bool per row, or None without nulls. Null slots hold zero."""

    values: Array
    valid: Array | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Strings:
    """Row i is ``data[starts[i]:ends[i]]``, UTF-8; ``starts`` and ``ends`` are int32 or int64; null slots are empty."""

    data: Array
    starts: Array
    ends: Array
    valid: Array | None = None

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True, slots=True)
class RaggedItems:
    """Row i is ``items[offsets[i]:offsets[i + 1]]``; ``offsets`` is int32 or int64 with ``rows + 1`` entries."""

    offsets: Array
    items: Numbers | Strings

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True)
class WeightedItems:
    """Row i is the pairs of ``items`` and float32 ``weights`` from ``offsets[i]`` to ``offsets[i + 1]``."""

    offsets: Array
    items: Numbers | Strings
    weights: Array

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True)
class Vectors:
    """Row i is ``items[i * size:(i + 1) * size]``."""

    items: Numbers | Strings
    size: int

    def __len__(self) -> int:
        return len(self.items) // self.size


@dataclass(frozen=True, slots=True)
class Constants:
    """Values that all rows share, such as the terms of a vocabulary. Its length is not a number of rows."""

    items: Numbers | Strings

    def __len__(self) -> int:
        return len(self.items)


Column = Numbers | Strings | RaggedItems | WeightedItems | Vectors | Constants


def from_arrow(array: pa.Array | pa.ChunkedArray, column_type: ColumnType) -> Column:
    """A kernel column over an Arrow array that already has ``arrow_type(column_type)`` (see :func:`cast_to_layout`).

    Zero-copy for strings and for numbers without nulls; sliced and offset arrays are handled. Raises
    :class:`DataError` for another type and for chunks that together exceed 32-bit positions.
    """
    if array.type != arrow_type(column_type):
        raise DataError(
            "an array must have the type of its column", value=str(array.type), allowed=str(arrow_type(column_type))
        )
    array = one_array(array)
    if isinstance(column_type, Dense):
        return _dense_from_arrow(array, column_type.dtype)
    if isinstance(column_type, Ragged):
        return _ragged_from_arrow(array, column_type.dtype)
    if isinstance(column_type, Weighted):
        return _weighted_from_arrow(array, column_type.dtype)
    return _vectors_from_arrow(array, column_type)


def _valid_of(array: pa.Array) -> Array | None:
    if array.null_count == 0:
        return None
    return valid_of(array)


def _dense_from_arrow(array: pa.Array, dtype: DType) -> Numbers | Strings:
    valid = _valid_of(array)
    if dtype is DType.STRING:
        return _strings_from_arrow(array, valid)
    if dtype is DType.TIMESTAMP:
        array = array.cast(pa.int64())
    if valid is not None:
        array = pc.fill_null(array, pa.scalar(False if dtype is DType.BOOL else 0, array.type))
    return Numbers(numpy_of(array), valid)


def _strings_from_arrow(array: pa.Array, valid: Array | None) -> Strings:
    _, offsets_buffer, data_buffer = array.buffers()
    if len(array) == 0 or offsets_buffer is None:
        empty = np.zeros(0, np.int32)
        return Strings(np.zeros(0, np.uint8), empty, empty, valid)
    offsets = np.frombuffer(offsets_buffer, np.int32, array.offset + len(array) + 1)[array.offset :]
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    starts, ends = offsets[:-1], offsets[1:]
    if valid is not None:
        ends = np.where(valid, ends, starts)
    return Strings(data, starts, ends, valid)


def _ragged_from_arrow(array: pa.Array, dtype: DType) -> RaggedItems:
    offsets, values = _lists_of(array)
    return RaggedItems(offsets, _dense_from_arrow(values, dtype))


def _weighted_from_arrow(array: pa.Array, dtype: DType) -> WeightedItems:
    offsets, pairs = _lists_of(array)
    items, weights = pairs.flatten()  # not .field(): that leaves out the offset of a sliced struct
    return WeightedItems(offsets, _dense_from_arrow(items, dtype), numpy_of(weights))


def _vectors_from_arrow(array: pa.Array, column_type: Vector) -> Vectors:
    if array.null_count:
        raise DataError("a vector must not be null", value=f"{array.null_count} null rows", allowed=str(column_type),
                        next_step="fill the missing vectors before they are registered")  # fmt: skip
    values = array.values.slice(array.offset * column_type.size, len(array) * column_type.size)
    return Vectors(_dense_from_arrow(values, column_type.dtype), column_type.size)


def _lists_of(array: pa.Array) -> tuple[Array, pa.Array]:
    """(offsets from 0 on, the items that they span); a null list becomes empty."""
    if len(array) == 0:  # its offsets may be anything
        return np.zeros(1, np.int32), array.values.slice(0, 0)
    offsets = numpy_of(array.offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    offsets, items = (offsets if first == 0 else offsets - first), array.values.slice(first, last - first)
    if array.null_count:
        keep = np.repeat(valid_of(array), np.diff(offsets))
        if not keep.all():
            return as_positions(_kept(offsets, keep), "items"), items.filter(pa.array(keep))
    return offsets, items


def cast_to_layout(array: pa.Array | pa.ChunkedArray, column_type: ColumnType) -> pa.Array | pa.ChunkedArray:
    """Cast ``array`` to the layout of ``column_type`` without loss; null items of lists are dropped.

    :mod:`transforms.columns.stored_types` has the casts; a dictionary is cast as its values are, timestamps become microseconds
    in UTC (a finer unit is truncated), every NaN becomes the quiet one. Raises :class:`DataError` otherwise.
    """
    target = arrow_type(column_type)
    if isinstance(array, pa.ChunkedArray):
        if not is_castable(array.type, column_type):
            raise _unlike(array.type, target)
        return pa.chunked_array([cast_to_layout(chunk, column_type) for chunk in array.chunks], target)
    if array.type == target and not _has_null_items(array):
        return with_one_nan(array)
    if not is_castable(array.type, column_type):
        raise _unlike(array.type, target)
    if len(array) == 0:  # Arrow's functions follow offsets that an empty array need not have
        return pa.array([], target)
    if isinstance(column_type, Ragged):
        return _conform_ragged(array, column_type)
    if isinstance(column_type, Weighted):
        return _conform_weighted(array, column_type)
    if isinstance(column_type, Vector):
        return _conform_vector(array, column_type)
    if pa.types.is_dictionary(array.type):
        return cast_to_layout(_without_codes(array), column_type)
    return with_one_nan(cast_stored(array, column_type.dtype))


def _unlike(stored: pa.DataType, target: pa.DataType) -> DataError:
    return DataError("the stored type must conform to the declared type", value=str(stored), allowed=str(target))


def _has_null_items(array: pa.Array) -> bool:
    """Whether a list holds null items, whatever its type declares."""
    if pa.types.is_struct(array.type):
        return bool(array.null_count) or any(array.field(i).null_count for i in range(array.type.num_fields))
    return pa.types.is_nested(array.type) and bool(array.values.null_count or _has_null_items(array.values))


def _conform_ragged(array: pa.Array, column_type: Ragged) -> pa.Array:
    if pa.types.is_fixed_size_list(array.type):
        check_positions(len(array) * array.type.list_size, "items")
        array = array.cast(pa.list_(array.type.value_field))
    offsets, items = _lists_of(array)
    items = _without_codes(items)
    if items.null_count:
        offsets, items = _kept(offsets, valid_of(items)), items.drop_null()
    items = cast_to_layout(items, Dense(column_type.dtype))
    return pa.ListArray.from_arrays(pa.array(as_positions(offsets, "items")), items, type=arrow_type(column_type))


def _conform_weighted(array: pa.Array, column_type: Weighted) -> pa.Array:
    target = arrow_type(column_type)
    offsets, pairs = _lists_of(array)
    parts = dict(zip((field.name for field in pairs.type), pairs.flatten(), strict=True))
    ids, weights = _without_codes(parts["id"]), parts["weight"]
    whole = pc.and_(ids.is_valid(), weights.is_valid())
    if not pc.all(whole, min_count=0).as_py():
        offsets, ids, weights = _kept(offsets, np.asarray(whole)), ids.filter(whole), weights.filter(whole)
    ids, weights = cast_to_layout(ids, Dense(column_type.dtype)), cast_to_layout(weights, Dense(DType.FLOAT32))
    pairs = pa.StructArray.from_arrays([ids, weights], fields=list(target.value_type.fields))
    return pa.ListArray.from_arrays(pa.array(as_positions(offsets, "items")), pairs, type=target)


def _conform_vector(array: pa.Array, column_type: Vector) -> pa.Array:
    lengths = pc.list_value_length(array)
    items = _without_codes(array.flatten())
    wrong = len(array) - pc.sum(pc.equal(lengths, column_type.size), min_count=0).as_py()
    if wrong or items.null_count:
        raise DataError("vectors must have the declared size and no null items", value=f"{wrong} such rows",
                        allowed=str(column_type), next_step="read it as a ragged column and pad it")  # fmt: skip
    return pa.FixedSizeListArray.from_arrays(
        cast_to_layout(items, Dense(column_type.dtype)), type=arrow_type(column_type)
    )


def _kept(offsets: Array, keep: Array) -> Array:
    """The offsets of the same lists when only the items of ``keep`` remain."""
    kept: Array = np.concatenate([[0], np.cumsum(keep)])[offsets]
    return kept


def decoded_dictionary(array: pa.DictionaryArray) -> pa.Array:
    """Each row's value of a dictionary. Raises :class:`DataError` for text beyond 32-bit offsets, which Arrow would wrap."""
    codes, values = array.indices, array.dictionary
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        check_positions(pc.sum(pc.binary_length(values).cast(pa.int64()).take(codes)).as_py() or 0, "bytes of text")
    return array.dictionary_decode()


def _without_codes(array: pa.Array) -> pa.Array:
    """The values of an array, which may be a dictionary; a value of the dictionary may be null as well as a code."""
    return decoded_dictionary(array) if pa.types.is_dictionary(array.type) else array


def is_castable(stored: pa.DataType, column_type: ColumnType) -> bool:
    """Whether a stored Arrow type can be read as ``column_type`` without loss (see :func:`cast_to_layout`)."""
    element = Dense(column_type.dtype)
    match column_type:
        case Ragged():
            fixed = pa.types.is_fixed_size_list(stored)
            return (fixed or _is_list(stored)) and is_castable(stored.value_type, element)
        case Weighted():
            return _is_list(stored) and _are_pairs(stored.value_type, element)
        case Vector():
            fixed = pa.types.is_fixed_size_list(stored) and stored.list_size == column_type.size
            return (fixed or _is_list(stored)) and is_castable(stored.value_type, element)
    if pa.types.is_dictionary(stored):
        return is_castable(stored.value_type, column_type)
    return reads_as(stored, column_type.dtype)


def _is_list(stored: pa.DataType) -> bool:
    return bool(pa.types.is_list(stored) or pa.types.is_large_list(stored))


def _are_pairs(stored: pa.DataType, ids: Dense) -> bool:
    if not pa.types.is_struct(stored) or {field.name for field in stored} != {"id", "weight"}:
        return False
    return is_castable(stored.field("id").type, ids) and is_castable(stored.field("weight").type, Dense(DType.FLOAT32))
