"""Columns of texts to a typed table and the rows that do not fit, whatever format the texts came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipelines.cells import typed_cells
from pipelines.log_schema import LogColumn, LogSchema
from pipelines.rejects import Reject

NOT_ITS_TYPE = "a value cannot be read as its type"
MISSING = "a required value is missing"


@dataclass(frozen=True, slots=True)
class ParsedBlock:
    """``table`` has the schema's columns in order; ``rejects`` are the block's rows that are not in it."""

    table: pa.Table
    rejects: tuple[Reject, ...]


@dataclass(frozen=True, slots=True)
class TextColumn:
    """One column of a block before its types are read.

    Attributes:
        text: a string a row, null where the value is missing.
        unread: what is wrong, by row, with values that are no text of this column; their text is null.
        spell: a row's value as a reject shows it.
    """

    text: pa.Array
    unread: Mapping[int, str]
    spell: Callable[[int], str]


@dataclass(frozen=True, slots=True)
class RowLines:
    """Where each row of a block came from: its line number and its bytes."""

    number: Callable[[int], int]
    raw: Callable[[int], bytes]


def typed_rows(columns: Sequence[TextColumn], schema: LogSchema, lines: RowLines) -> ParsedBlock:
    """The rows that every column can read, in order; every other row is rejected for its first column at fault."""
    faults: dict[int, Reject] = {}
    arrays = []
    rows = len(columns[0].text)
    for cells, column in zip(columns, schema.columns, strict=True):
        array, not_typed = typed_cells(cells.text, column)
        arrays.append(array)
        missing = np.asarray(cells.text.is_null()) if column.required else np.zeros(rows, np.bool_)
        for row, what in _faults(cells.unread, np.flatnonzero(missing), np.flatnonzero(not_typed)):
            if row not in faults:
                faults[row] = _reject(row, what, cells, column, lines)
    table = pa.Table.from_arrays(arrays, schema=schema.arrow_schema)
    if not faults:
        return ParsedBlock(table, ())
    keep = np.ones(rows, np.bool_)
    keep[list(faults)] = False
    return ParsedBlock(table.filter(pa.array(keep)), tuple(faults[row] for row in sorted(faults)))


def _faults(
    unread: Mapping[int, str], missing: np.ndarray[tuple[int], np.dtype[np.int64]],
    not_typed: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> Iterator[tuple[int, str]]:  # fmt: skip
    yield from unread.items()
    yield from ((row, MISSING) for row in missing.tolist() if row not in unread)
    yield from ((row, NOT_ITS_TYPE) for row in not_typed.tolist())


def _reject(row: int, what: str, cells: TextColumn, column: LogColumn, lines: RowLines) -> Reject:
    return Reject(lines.number(row), what, lines.raw(row), column.name, cells.spell(row), column.expected)
