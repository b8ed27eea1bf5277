"""The definition of what a text means as a value of each type, for cells of every format.

A value depends on its text and the column's declaration alone (docs/importing.md lists the forms). The cast runs over a
whole column; only if it fails, the column is bisected to find the bad cells, so that clean logs cost nothing extra. The
line-by-line reader of JSON uses these casts too; tests compare Arrow's own conversions of JSON with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.cells.numbers import number_cells
from pipelines.cells.times import time_cells
from pipelines.log_schemas.columns import LogColumn
from transforms.arrays import Bools, Ints
from transforms.columns.arrow_types import ARROW_ELEMENT, arrow_type
from transforms.types import DType

Cast = Callable[[pa.Array], pa.Array]

_TEXT = pa.string()
_ONE_BY_ONE = 16
#: Surrounding spaces, including the tab and the no-break spaces.
SPACES = " \t\u00a0\u202f"


def text_cells(raw: pa.Array) -> tuple[pa.Array, Bools]:
    """Binary cells as text, and which rows are not UTF-8 (their cells become null)."""
    return cast_where_possible(raw, lambda cells: cells.cast(_TEXT), _TEXT)


def null_spellings(text: pa.Array, spellings: Sequence[str], *, trim: bool = False) -> pa.Array:
    """``text`` with null for every cell in ``spellings``, without surrounding spaces if ``trim`` is set."""
    if trim:
        text = pc.utf8_trim(text, SPACES)
    if not spellings:
        return text
    missing = pc.is_in(text, value_set=pa.array(spellings, _TEXT))
    return pc.if_else(missing, pa.scalar(None, _TEXT), text)


def typed_cells(text: pa.Array, column: LogColumn, notes: Counter[str] | None = None) -> tuple[pa.Array, Bools]:
    """Text cells as the column's Arrow type, and which rows could not be cast (their cells become null).

    The cells of a list column are lists of texts. ``notes`` counts changed values: skipped local times, dropped digits.
    """
    notes = Counter() if notes is None else notes
    if column.is_list:
        return cast_where_possible(text, lambda cells: _item_cells(cells, column, notes), arrow_type(column.type))
    if column.separator is not None:
        return cast_where_possible(text, lambda cells: _list_cells(cells, column, notes), arrow_type(column.type))
    if column.dtype is DType.TIMESTAMP:
        return time_cells(text, column, notes)
    return cast_where_possible(text, lambda cells: scalar_cells(cells, column, notes), ARROW_ELEMENT[column.dtype])


def scalar_cells(text: pa.Array, column: LogColumn, notes: Counter[str]) -> pa.Array:
    """Texts as values, or items, of the column. Raises ``pa.ArrowInvalid`` for a text that does not parse."""
    if column.dtype is DType.TIMESTAMP:
        seen: Counter[str] = Counter()
        times, bad = time_cells(text, column, seen)
        if bad.any():
            raise pa.ArrowInvalid("a text that is no time of this column")
        notes.update(seen)
        return times
    if column.dtype is DType.STRING:
        return text
    if column.dtype is DType.BOOL:
        return text.cast(pa.bool_())
    return number_cells(text, column)


def cast_where_possible(cells: pa.Array, cast: Cast, target: pa.DataType) -> tuple[pa.Array, Bools]:
    """``cast(cells)`` with null in place of every cell that cannot be cast, and the mask of those cells."""
    bad = np.zeros(len(cells), np.bool_)
    pieces: list[pa.Array] = []
    _cast_halves(cells, 0, cast, target, bad, pieces)
    return (pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)), bad


def _cast_halves(
    cells: pa.Array, start: int, cast: Cast, target: pa.DataType, bad: Bools, pieces: list[pa.Array]
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


def _list_cells(text: pa.Array, column: LogColumn, notes: Counter[str]) -> pa.Array:
    """The items of each cell; a missing or empty cell has none. Raises ``pa.ArrowInvalid`` for a bad item."""
    text = pc.fill_null(text, "")
    lists = pc.split_pattern(text, column.separator)
    empty = np.asarray(pc.equal(pc.binary_length(text), 0))
    bounds: Ints = np.asarray(lists.offsets).astype(np.int64)
    lengths = bounds[1:] - bounds[:-1]
    items = pc.list_flatten(lists)
    items = items.filter(pa.array(np.repeat(~empty, lengths))) if empty.any() else items
    if column.trim:
        items = pc.utf8_trim(items, SPACES)
    values = scalar_cells(items, column, notes)
    return list_array(np.where(empty, 0, lengths), values, column)


def _item_cells(cells: pa.Array, column: LogColumn, notes: Counter[str]) -> pa.Array:
    """Lists of texts as lists of values; a missing list has none."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(cells), 0)).astype(np.int64)
    return list_array(lengths, scalar_cells(pc.list_flatten(cells), column, notes), column)


def list_array(lengths: Ints, values: pa.Array, column: LogColumn) -> pa.Array:
    """An array of lists with ``lengths`` items each, taken from ``values`` in order."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=arrow_type(column.type))
