"""Columns as codes and distinct values, as in dictionary-encoded Parquet.

An operator works on each event separately, so over a coded column it runs over the distinct values only: the result has
the same codes. Columns are decoded where columns with different codes meet, and at the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array
from transforms.columns.arrays import numpy_of, valid_of
from transforms.columns.columns import (
    Column,
    Constants,
    Numbers,
    RaggedItems,
    Strings,
    Vectors,
    WeightedItems,
    cast_to_layout,
    from_arrow,
    is_castable,
)
from transforms.types import ColumnType, Dense


@dataclass(frozen=True, slots=True)
class Coded:
    """Row i is row ``codes[i]`` of ``values``. Codes are int32."""

    codes: Array
    values: Column

    def __len__(self) -> int:
        return len(self.codes)


def coded_from_arrow(array: pa.Array | pa.ChunkedArray, column_type: ColumnType) -> Coded | None:
    """A dictionary-encoded array; None for other arrays and for too many distinct values.

    A null becomes another value, after the others. Raises :class:`~transforms.errors.DataError` or Arrow's
    errors if the distinct values hold one that ``column_type`` cannot.
    """
    if not pa.types.is_dictionary(array.type) or not isinstance(column_type, Dense):
        return None
    if not is_castable(array.type, column_type):
        return None
    if isinstance(array, pa.ChunkedArray):
        joined = array.chunk(0) if array.num_chunks == 1 else _one_dictionary(array)
        if joined is None:
            return None
        array = joined
    dictionary, indices = array.dictionary, array.indices
    if 2 * len(dictionary) > len(array):
        return None
    if indices.null_count:
        indices = pc.fill_null(indices.cast(pa.int32()), len(dictionary))
        dictionary = pa.concat_arrays([dictionary, pa.nulls(1, dictionary.type)])
    codes = numpy_of(indices.cast(pa.int32()))
    return Coded(codes, from_arrow(cast_to_layout(dictionary, column_type), column_type))


def _one_dictionary(array: pa.ChunkedArray) -> pa.DictionaryArray | None:
    """The chunks as one array; None where Arrow cannot: it does not unify dictionaries that hold a null."""
    chunks = [_with_codes_beneath_nulls(_without_last_null(chunk)) for chunk in array.chunks]
    try:
        whole = pa.chunked_array(chunks, array.type).unify_dictionaries().combine_chunks()
    except pa.ArrowInvalid:
        return None
    return None if isinstance(whole, pa.ChunkedArray) else whole


def _without_last_null(chunk: pa.DictionaryArray) -> pa.DictionaryArray:
    """The same values with null codes for the last value, if that is the null of the dictionary."""
    last = len(chunk.dictionary) - 1
    if chunk.dictionary.null_count != 1 or chunk.dictionary[last].is_valid:
        return chunk
    codes = pc.if_else(pc.equal(chunk.indices, last), pa.scalar(None, chunk.indices.type), chunk.indices)
    return pa.DictionaryArray.from_arrays(codes, chunk.dictionary.slice(0, last))


def _with_codes_beneath_nulls(chunk: pa.DictionaryArray) -> pa.DictionaryArray:
    """The same values with code 0 under each null: Arrow reads these codes when it unifies dictionaries."""
    if not chunk.null_count:
        return chunk
    valid, indices = valid_of(chunk), chunk.indices
    dtype = np.dtype(indices.type.to_pandas_dtype())
    held = np.frombuffer(indices.buffers()[1], dtype, len(indices), indices.offset * dtype.itemsize)
    codes = np.where(valid, held, dtype.type(0))
    return pa.DictionaryArray.from_arrays(pa.array(codes, indices.type, mask=~valid), chunk.dictionary)


def decoded(coded: Coded) -> Column:
    """The column with one value per event."""
    values = coded.values
    if isinstance(values, RaggedItems | WeightedItems):
        from transforms.kernels.lists import take_lists

        return take_lists(values, coded.codes)
    if isinstance(values, Vectors):
        from transforms.kernels.lists import take_vectors

        return take_vectors(values, coded.codes)
    if isinstance(values, Constants):
        return values
    valid = None if values.valid is None else values.valid[coded.codes]
    valid = None if valid is None or valid.all() else valid
    if isinstance(values, Numbers):
        from transforms.kernels.buffers import taken

        return Numbers(taken(values.values, coded.codes), valid)
    return Strings(values.data, np.take(values.starts, coded.codes), np.take(values.ends, coded.codes), valid)


def align_codes(columns: Sequence[Coded]) -> tuple[Coded, ...] | None:
    """The columns with common codes, one per occurring combination of values; None if there are too many.

    Only occurring combinations get a code, since an operator may refuse others.
    """
    distinct = list({id(column.codes): column for column in columns}.values())
    combinations = math.prod(len(column.values) for column in distinct)
    rows = len(distinct[0])
    if 2 * combinations > rows:
        return None
    from transforms.kernels.codes import combined, occurring

    codes = distinct[0].codes
    for column in distinct[1:]:
        codes = combined(codes, column.codes, len(column.values))
    codes, present = occurring(codes, combinations)
    picks: dict[int, Array] = {}
    for column in reversed(distinct):
        picks[id(column.codes)] = (present % len(column.values)).astype(np.int32)
        present = present // len(column.values)
    return tuple(Coded(codes, decoded(Coded(picks[id(column.codes)], column.values))) for column in columns)
