"""The one definition of what a text means as a value of each type, for cells of every format.

Each value is a function of its own text and the column's declaration alone (docs/importing.md lists the forms):
the cast runs over a whole column; only when it fails is the column searched for the cells that are at fault, by
halving, so that clean logs pay nothing and dirty ones pay for their dirt. The line-by-line reader of JSON converts its
texts here too, and what Arrow converts by itself in JSON is held equal to it by tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.log_schema import LogColumn
from transforms.types import ARROW_ELEMENT, DType, arrow_type

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Cast = Callable[[pa.Array], pa.Array]

_TEXT = pa.string()
_MICROSECONDS = pa.timestamp("us", tz="UTC")
_PER_UNIT_US = {"s": 1_000_000, "ms": 1_000, "us": 1}
# Year 1 to year 9999: what every consumer of a timestamp can print.
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
_ONE_BY_ONE = 16
_INFINITY = "^[+-]?(?i:inf|infinity)$"


def text_cells(raw: pa.Array) -> tuple[pa.Array, Mask]:
    """Binary cells as text, and which rows are not UTF-8 (their cells become null)."""
    return cast_where_possible(raw, lambda cells: cells.cast(_TEXT), _TEXT)


def null_spellings(text: pa.Array, spellings: Sequence[str]) -> pa.Array:
    """``text`` with every cell that is one of ``spellings`` made null."""
    if not spellings:
        return text
    missing = pc.is_in(text, value_set=pa.array(spellings, _TEXT))
    return pc.if_else(missing, pa.scalar(None, _TEXT), text)


def typed_cells(text: pa.Array, column: LogColumn) -> tuple[pa.Array, Mask]:
    """Text cells as the column's Arrow type, and which rows could not be cast (their cells become null)."""
    if column.separator is not None:
        return cast_where_possible(text, lambda cells: _list_cells(cells, column), arrow_type(column.type))
    return cast_where_possible(text, scalar_cast(column), ARROW_ELEMENT[column.dtype])


def scalar_cast(column: LogColumn) -> Cast:
    """The cast of one text column without nulls of its own making: it raises ``pa.ArrowInvalid`` on a bad cell."""
    if column.dtype is DType.TIMESTAMP:
        if column.unit == "iso8601":
            return _iso8601_cells
        return lambda text: epoch_times(text.cast(pa.int64()), str(column.unit))
    if column.dtype is DType.STRING:
        return lambda text: text
    target = ARROW_ELEMENT[column.dtype]
    if column.dtype in (DType.FLOAT32, DType.FLOAT64):
        return lambda text: _float_cells(text, target)
    return lambda text: text.cast(target)


def _float_cells(text: pa.Array, target: pa.DataType) -> pa.Array:
    """The nearest float of each decimal; only what spells infinity is infinite."""
    array = text.cast(target)
    if has_infinity(array):
        spelled = text.filter(pc.fill_null(pc.is_inf(array), False))
        if not pc.all(pc.match_substring_regex(spelled, _INFINITY)).as_py():
            raise pa.ArrowInvalid("a number too large for its type")
    return array


def has_infinity(array: pa.Array) -> bool:
    """Whether any value of a float array is infinite."""
    return bool(pc.any(pc.is_inf(array), min_count=0).as_py())


def epoch_times(counts: pa.Array, unit: str) -> pa.Array:
    """int64 counts since 1970 as UTC microseconds. Raises ``pa.ArrowInvalid`` outside the years 1 to 9999."""
    per_unit = _PER_UNIT_US[unit]
    low, high = -(-_FIRST_US // per_unit), _LAST_US // per_unit
    inside = pc.all(pc.and_(pc.greater_equal(counts, low), pc.less_equal(counts, high)), min_count=0)
    if not inside.as_py():
        raise pa.ArrowInvalid("a time outside the years 1 to 9999")
    return pc.multiply(counts, per_unit).cast(_MICROSECONDS)


def _iso8601_cells(text: pa.Array) -> pa.Array:
    # Arrow casts either cells that all carry an offset or cells that all lack one; a mixed column meets both casts
    # through the search by halving.
    try:
        times = text.cast(_MICROSECONDS)
    except pa.ArrowInvalid:
        times = text.cast(pa.timestamp("us")).cast(_MICROSECONDS)
    epoch_times(times.cast(pa.int64()), "us")  # an offset reaches the year 0 and the year 10000
    return times


def cast_where_possible(cells: pa.Array, cast: Cast, target: pa.DataType) -> tuple[pa.Array, Mask]:
    """``cast(cells)`` with null in place of every cell that cannot be cast, and the mask of those cells."""
    bad = np.zeros(len(cells), np.bool_)
    pieces: list[pa.Array] = []
    _cast_halves(cells, 0, cast, target, bad, pieces)
    return (pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)), bad


def _cast_halves(
    cells: pa.Array, start: int, cast: Cast, target: pa.DataType, bad: Mask, pieces: list[pa.Array]
) -> None:
    try:
        pieces.append(cast(cells))
    except pa.ArrowInvalid:
        if len(cells) == 1:
            bad[start] = True
            pieces.append(pa.nulls(1, target))
            return
        middle = len(cells) // 2 if len(cells) > _ONE_BY_ONE else 1
        _cast_halves(cells.slice(0, middle), start, cast, target, bad, pieces)
        _cast_halves(cells.slice(middle), start + middle, cast, target, bad, pieces)


def _list_cells(text: pa.Array, column: LogColumn) -> pa.Array:
    """Each cell's items; a missing or empty cell has none. Raises ``pa.ArrowInvalid`` for an item of another type."""
    text = pc.fill_null(text, "")
    lists = pc.split_pattern(text, column.separator)
    empty = np.asarray(pc.equal(pc.binary_length(text), 0))
    bounds: np.ndarray[Any, np.dtype[np.int64]] = np.asarray(lists.offsets).astype(np.int64)
    lengths = bounds[1:] - bounds[:-1]
    items = pc.list_flatten(lists)
    items = items.filter(pa.array(np.repeat(~empty, lengths))) if empty.any() else items
    offsets = np.concatenate([[0], np.cumsum(np.where(empty, 0, lengths))]).astype(np.int32)
    values = scalar_cast(LogColumn(column.name, column.dtype))(items)
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=arrow_type(column.type))
