"""Split a record of a TSV or CSV log into cells, as a function of its bytes alone.

The delimiter ends a cell. Where cells may be quoted, a cell that begins with a quote ends at its closing quote, with
doubled quotes for quotes inside; a quote inside any other cell is a plain character. Outside quotes a carriage return
belongs to the line's end or makes the record bad. A delimiter may follow the last cell if the schema says so.
:mod:`pipelines.parsing.cell_syntax` has the rules of escapes, :mod:`pipelines.parsing.quoted_records` finds the ends of records.

:func:`split_line` is the definition. :func:`quoted_plainly` finds blocks that Arrow's reader splits equally, and
:func:`good_lines` rewrites all other records into a form that it splits equally.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipelines.parsing.blocks import LineBlock, line_ends
from pipelines.parsing.cell_syntax import Syntax, cell_ends, closing_quote, unescaped
from pipelines.parsing.rejects import Reject

Positions = np.ndarray[Any, np.dtype[np.int64]]


def _one_of(characters: bytes) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.isin(np.arange(256), np.frombuffer(characters, np.uint8))


@dataclass(frozen=True, slots=True)
class Layout:
    """The cells of a row of a delimited file.

    Attributes:
        syntax: how a record is split into cells.
        width: the number of cells.
        positions: the positions of the schema's columns.
        trailing: whether a delimiter may follow the last cell.
    """

    syntax: Syntax
    width: int
    positions: tuple[int, ...]
    trailing: bool = False


def split_line(record: bytes, syntax: Syntax) -> list[bytes] | None:
    """The cells of a record without its line end; None if text follows a closing quote or the quote is missing."""
    found = _marked_cells(record, syntax)
    return None if found is None else [cell for cell, _ in found]


def _marked_cells(record: bytes, syntax: Syntax) -> list[tuple[bytes, bool]] | None:
    """Each cell, and whether it was quoted or held an escaped character."""
    delimiter = syntax.delimiter.encode()
    if not syntax.may_span_lines(record):
        return [(cell, False) for cell in record.split(delimiter)]
    cells: list[tuple[bytes, bool]] = []
    at = 0
    while True:
        if syntax.quoted and record.startswith(b'"', at):
            end = closing_quote(record, at + 1, syntax)
            if end < 0 or record[end + 1 : end + 2] not in (b"", delimiter):
                return None
            cells.append((unescaped(record[at + 1 : end], syntax, quoted=True), True))
            at = end + 1
        else:
            end = next(cell_ends(record, at, syntax), len(record))
            cell = unescaped(record[at:end], syntax, quoted=False)
            cells.append((cell, len(cell) < end - at))
            at = end
        if at == len(record):
            return cells
        at += 1


def quoted_plainly(data: bytes, delimiter: str = ",", ends: Positions | None = None) -> bool:
    """Whether every quote opens or closes a whole cell, or is doubled inside one.

    ``ends``: the ends of the records; without it each line is a record.
    """
    if b'"' not in data:
        return True
    ends = line_ends(data) if ends is None else ends
    padded = np.frombuffer(b"\n" + data + b"\n", np.uint8)
    quotes = np.flatnonzero(padded[1:-1] == ord('"'))
    before = np.searchsorted(quotes, np.concatenate([[0], ends]))  # quotes before the start of each record
    in_record = np.diff(before)
    if (in_record % 2).any():
        return False
    rank = np.arange(len(quotes)) - np.repeat(before[:-1], in_record)
    # The first quote of a pair follows a cell's start or the quote that it doubles, the second precedes an end or its double.
    first = _one_of(delimiter.encode() + b'\n"')[padded[quotes]]
    second = _one_of(delimiter.encode() + b'\n\r"')[padded[quotes + 2]]
    return bool(np.where(rank % 2 == 0, first, second).all())


def good_lines(block: LineBlock, layout: Layout) -> tuple[Positions, bytes, list[Reject]]:
    """The good records: their places in the block, their bytes for Arrow's reader, and a reject for each bad record.

    The bytes have no escapes and no delimiters after the last cell: :func:`rewritten` is their layout. Blank lines are neither
    good nor bad.
    """
    places: list[int] = []
    kept: list[bytes] = []
    rejects: list[Reject] = []
    for place, (number, record) in enumerate(numbered_lines(block)):
        if not record:
            continue
        row = _plain_row(number, record, layout)
        if isinstance(row, Reject):
            rejects.append(row)
            continue
        places.append(place)
        kept.append(row)
    return np.array(places, np.int64), b"".join(row + b"\n" for row in kept), rejects


def rewritten(layout: Layout) -> Layout:
    """The layout of the bytes of :func:`good_lines`: every cell is quoted if there are escapes or trailing delimiters."""
    syntax = layout.syntax
    quoted = syntax.quoted or bool(syntax.escape) or layout.trailing
    return replace(layout, syntax=Syntax(syntax.delimiter, quoted), trailing=False)


def numbered_lines(block: LineBlock) -> Iterator[tuple[int, bytes]]:
    """All records with the number of their first line, without the line feed and one carriage return before it."""
    for number, record in zip(block.numbers.tolist(), block.each(), strict=True):
        yield number, record.removesuffix(b"\r")


def _plain_row(number: int, record: bytes, layout: Layout) -> bytes | Reject:
    syntax = layout.syntax
    cells = _marked_cells(record, syntax)
    if cells is None:
        return Reject(number, "a quoted value does not end", record,
                      expected="a closing quote before the delimiter or the line's end; quotes inside doubled"
                      + _escape_advice(record, layout))  # fmt: skip
    if b"\r" in record and any(b"\r" in cell for cell, marked in cells if not marked):
        return Reject(number, "a carriage return inside the line", record, expected="one row a line")
    if layout.trailing and len(cells) == layout.width + 1 and not cells[-1][0]:
        cells = cells[:-1]
    if len(cells) != layout.width:
        advice = '; "trailing_delimiter": true would fit'
        fits = len(cells) == layout.width + 1 and not cells[-1][0]
        return Reject(number, "wrong number of columns", record, value=str(len(cells)),
                      expected=f"{layout.width}{advice if fits else _escape_advice(record, layout)}")  # fmt: skip
    if syntax.escape or layout.trailing or (syntax.quoted and b'"' in record):
        return syntax.delimiter.encode().join(b'"' + cell.replace(b'"', b'""') + b'"' for cell, _ in cells)
    return record


def _escape_advice(record: bytes, layout: Layout) -> str:
    """The entry with which the record would have the right number of cells, tried on it; empty if there is none."""
    if layout.syntax.escape or b"\\" not in record:
        return ""
    cells = split_line(record, replace(layout.syntax, escape="\\"))
    return '; "escape": "\\\\" would fit' if cells is not None and len(cells) == layout.width else ""
