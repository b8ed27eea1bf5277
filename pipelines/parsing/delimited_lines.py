"""Split a record of a TSV or CSV log into cells, as a function of its bytes alone.

The delimiter ends a cell. Where cells may be quoted, a cell that begins with a quote ends at its closing quote, with
doubled quotes for quotes inside; a quote inside any other cell is a plain character. Outside quotes a carriage return
belongs to the line's end or makes the record bad. :mod:`pipelines.parsing.quoted_records` finds the ends of records.

:func:`split_line` is the definition. :func:`quoted_plainly` finds blocks that Arrow's reader splits equally, and
:func:`good_lines` rewrites all other records into a form that it splits equally.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.parsing.blocks import LineBlock, line_ends
from pipelines.parsing.rejects import Reject

Positions = np.ndarray[Any, np.dtype[np.int64]]


def _one_of(characters: bytes) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.isin(np.arange(256), np.frombuffer(characters, np.uint8))


@dataclass(frozen=True, slots=True)
class Layout:
    """The number of cells per row of a delimited file, and the positions of the schema's columns."""

    delimiter: str
    quoted: bool
    width: int
    positions: tuple[int, ...]


def split_line(record: bytes, delimiter: str, quoted: bool) -> list[bytes] | None:
    """The cells of a record without its line end; None if text follows a closing quote or the quote is missing."""
    if not quoted or b'"' not in record:
        return record.split(delimiter.encode())
    found = _split_quoted(record, delimiter.encode())
    return None if found is None else [cell for cell, _ in found]


def _split_quoted(record: bytes, delimiter: bytes) -> list[tuple[bytes, bool]] | None:
    """Each cell, and whether it was quoted."""
    cells: list[tuple[bytes, bool]] = []
    at = 0
    while True:
        if record.startswith(b'"', at):
            end = closing_quote(record, at + 1)
            if end < 0 or record[end + 1 : end + 2] not in (b"", delimiter):
                return None
            cells.append((record[at + 1 : end].replace(b'""', b'"'), True))
            at = end + 1
        else:
            end = record.find(delimiter, at)
            end = len(record) if end < 0 else end
            cells.append((record[at:end], False))
            at = end
        if at == len(record):
            return cells
        at += 1


def closing_quote(text: bytes, at: int) -> int:
    """The position of the closing quote of the value that begins at ``at``; -1 if it has none."""
    while (at := text.find(b'"', at)) >= 0 and text.startswith(b'"', at + 1):
        at += 2
    return at


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

    Blank lines are neither good nor bad.
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


def numbered_lines(block: LineBlock) -> Iterator[tuple[int, bytes]]:
    """All records with the number of their first line, without the line feed and one carriage return before it."""
    for number, record in zip(block.numbers.tolist(), block.each(), strict=True):
        yield number, record.removesuffix(b"\r")


def _plain_row(number: int, record: bytes, layout: Layout) -> bytes | Reject:
    delimiter = layout.delimiter.encode()
    if not layout.quoted or b'"' not in record:
        cells = [(cell, False) for cell in record.split(delimiter)]
    else:
        found = _split_quoted(record, delimiter)
        if found is None:
            return Reject(number, "a quoted value does not end", record,
                          expected="a closing quote before the delimiter or the line's end; quotes inside doubled")  # fmt: skip
        cells = found
    if b"\r" in record and any(b"\r" in cell for cell, quoted in cells if not quoted):
        return Reject(number, "a carriage return inside the line", record, expected="one row a line")
    if len(cells) != layout.width:
        return Reject(number, "wrong number of columns", record, value=str(len(cells)), expected=str(layout.width))
    if layout.quoted and b'"' in record:
        return delimiter.join(b'"' + cell.replace(b'"', b'""') + b'"' for cell, _ in cells)
    return record
