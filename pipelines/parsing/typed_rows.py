"""Convert columns of texts of any format to a typed table and rejects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.cells.time_advice import fitting_entries
from pipelines.cells.typed_cells import typed_cells
from pipelines.log_schemas.columns import LogColumn
from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing.rejects import Reject
from transforms.types import Dense, DType

NOT_ITS_TYPE = "a value cannot be read as its type"
MISSING = "a required value is missing"
OUT_OF_RANGE = "the event time is outside the plausible times"

Positions = np.ndarray[Any, np.dtype[np.int64]]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ParsedBlock:
    """The rows and rejects of a block.

    Attributes:
        table: the rows, with the schema's columns in order.
        rejects: the other rows of the block.
        notes: counts of changed values, by the change.
        places: the places in the block, from 0, of the rows of ``table``; None for all of them.
    """

    table: pa.Table
    rejects: tuple[Reject, ...]
    notes: Mapping[str, int] = field(default_factory=dict)
    places: Positions | None = None


@dataclass(frozen=True, slots=True)
class TextColumn:
    """One column of a block before conversion.

    Attributes:
        text: a string or a list of strings per row, null for a missing value.
        unread: reasons, by row, why a value is no text of this column; its text is null.
        spell: the text of a row's value for a reject.
        reread: the text of a row's value if the column were another one; no text for a value that it does not take.
    """

    text: pa.Array
    unread: Mapping[int, str]
    spell: Callable[[int], str]
    reread: Callable[[int, LogColumn], object]


@dataclass(frozen=True, slots=True)
class RowLines:
    """The line number and the bytes of each row of a block."""

    number: Callable[[int], int]
    raw: Callable[[int], bytes]


def typed_rows(columns: Sequence[TextColumn], schema: LogSchema, lines: RowLines) -> ParsedBlock:
    """The rows whose columns all convert, in order; other rows are rejected for their first bad column."""
    faults: dict[int, Reject] = {}
    arrays = []
    notes: Counter[str] = Counter()
    rows = len(columns[0].text)
    for cells, column in zip(columns, schema.columns, strict=True):
        seen: Counter[str] = Counter()
        array, not_typed = typed_cells(cells.text, column, seen)
        notes.update({f"{column.name}: {what}": count for what, count in seen.items()})
        arrays.append(array)
        missing = np.asarray(cells.text.is_null()) if column.required else np.zeros(rows, np.bool_)
        for row, what in _faults(cells.unread, np.flatnonzero(missing), np.flatnonzero(not_typed)):
            if row not in faults:
                faults[row] = _reject(row, what, cells, column, schema, lines)
        for row in implausible(array, column, schema):
            if row not in faults:
                faults[row] = _reject(row, OUT_OF_RANGE, cells, column, schema, lines)
    table = pa.Table.from_arrays(arrays, schema=schema.read_schema)
    if not faults:
        return ParsedBlock(table, (), dict(notes))
    keep = np.ones(rows, np.bool_)
    keep[list(faults)] = False
    rejects = tuple(faults[row] for row in sorted(faults))
    return ParsedBlock(table.filter(pa.array(keep)), rejects, dict(notes), np.flatnonzero(keep))


def implausible(array: pa.Array, column: LogColumn, schema: LogSchema) -> list[int]:
    """The rows whose event time lies outside the schema's range; none for other columns."""
    bounds = None if schema.time is None or schema.time.column != column.name else schema.time.range_us
    if bounds is None or schema.time is None or schema.time.made_up is not None or not len(array):
        return []
    counts = array.cast(pa.int64())
    ends = pc.min_max(counts).as_py()
    if ends["min"] is None or bounds[0] <= ends["min"] <= ends["max"] < bounds[1]:
        return []
    late = pc.or_(pc.less(counts, bounds[0]), pc.greater_equal(counts, bounds[1]))
    rows: list[int] = np.flatnonzero(np.asarray(pc.fill_null(late, False))).tolist()
    return rows


def plausible(schema: LogSchema) -> str:
    """The text of the plausible event times for a reject."""
    first, end = (schema.time.range_us if schema.time else None) or (0, 0)
    return f'from {_shown(first)} until {_shown(end)}, which "from" and "until" of the schema\'s time set'


def _shown(microseconds: int) -> str:
    return (_EPOCH + timedelta(microseconds=microseconds)).isoformat().replace("+00:00", "Z")


def _faults(
    unread: Mapping[int, str], missing: np.ndarray[tuple[int], np.dtype[np.int64]],
    not_typed: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> Iterator[tuple[int, str]]:  # fmt: skip
    yield from unread.items()
    yield from ((row, MISSING) for row in missing.tolist() if row not in unread)
    yield from ((row, NOT_ITS_TYPE) for row in not_typed.tolist())


def _reject(row: int, what: str, cells: TextColumn, column: LogColumn, schema: LogSchema, lines: RowLines) -> Reject:
    expected = plausible(schema) if what == OUT_OF_RANGE else column.expected
    if what in (NOT_ITS_TYPE, OUT_OF_RANGE) and column.dtype is DType.TIMESTAMP and column.type == Dense(column.dtype):
        is_event = schema.time is not None and schema.time.made_up is None and schema.time.column == column.name
        bounds = schema.time.range_us if is_event and schema.time is not None else None
        fitting = fitting_entries(column, lambda other: cells.reread(row, other), bounds)
        expected += f"; {' or '.join(fitting)} would fit" if fitting else ""
    return Reject(lines.number(row), what, lines.raw(row), column.name, cells.spell(row), expected)
