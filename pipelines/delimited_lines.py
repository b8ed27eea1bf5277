"""What a line of a TSV or CSV log means: how it is cut into cells, as a function of its bytes alone.

In TSV a tab ends a cell, and no character quotes. In CSV a comma ends a cell, and a cell that begins with a quote runs
to its closing quote, with doubled quotes for quotes inside; a quote inside any other cell stands for itself. A carriage
return belongs to the line's end or makes the line bad.

:func:`split_line` is the meaning. :func:`quoted_plainly` finds whole blocks that Arrow's reader cuts alike, and
:func:`good_lines` rewrites every other line into a form that it cuts alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.log_blocks import LineBlock, line_ends
from pipelines.rejects import Reject

Positions = np.ndarray[Any, np.dtype[np.int64]]

_BESIDE_QUOTES = np.isin(np.arange(256), np.frombuffer(b',\n\r"', np.uint8))


@dataclass(frozen=True, slots=True)
class Layout:
    """How a delimited file's columns lie: the width of every row, and where each wanted column stands."""

    delimiter: str
    quoted: bool
    width: int
    positions: tuple[int, ...]


def split_line(line: bytes, delimiter: str, quoted: bool) -> list[bytes] | None:
    """The cells of a line without its line end; None where text follows a closing quote, or there is none."""
    if not quoted or b'"' not in line:
        return line.split(delimiter.encode())
    cells, at = [], 0
    while True:
        if line.startswith(b'"', at):
            end = _closing_quote(line, at + 1)
            if end < 0 or line[end + 1 : end + 2] not in (b"", b","):
                return None
            cells.append(line[at + 1 : end].replace(b'""', b'"'))
            at = end + 1
        else:
            end = line.find(b",", at)
            end = len(line) if end < 0 else end
            cells.append(line[at:end])
            at = end
        if at == len(line):
            return cells
        at += 1


def _closing_quote(line: bytes, at: int) -> int:
    """Where the quoted value that begins at ``at`` ends; -1 if it does not."""
    while (at := line.find(b'"', at)) >= 0 and line.startswith(b'"', at + 1):
        at += 2
    return at


def quoted_plainly(data: bytes) -> bool:
    """Whether every quote of a CSV block opens or closes a whole cell, or is doubled inside one, on one line."""
    if b'"' not in data:
        return True
    ends = line_ends(data)
    padded = np.frombuffer(b"\n" + data + b"\n", np.uint8)
    quotes = np.flatnonzero(padded[1:-1] == ord('"'))
    before = np.searchsorted(quotes, np.concatenate([[0], ends]))  # quotes before the start of each line
    in_line = np.diff(before)
    if (in_line % 2).any():
        return False
    rank = np.arange(len(quotes)) - np.repeat(before[:-1], in_line)
    # Of each pair the first follows a cell's start or the quote that it doubles, the second precedes an end or its double.
    neighbour = np.where(rank % 2 == 0, padded[quotes], padded[quotes + 2])
    return bool(_BESIDE_QUOTES[neighbour].all())


def good_lines(block: LineBlock, layout: Layout) -> tuple[Positions, bytes, list[Reject]]:
    """The lines that are rows: their numbers, their bytes as Arrow reads them, and a reject for each other line.

    Blank lines are neither.
    """
    numbers: list[int] = []
    kept: list[bytes] = []
    rejects: list[Reject] = []
    for number, line in numbered_lines(block):
        if not line:
            continue
        row = _plain_row(number, line, layout)
        if isinstance(row, Reject):
            rejects.append(row)
            continue
        numbers.append(number)
        kept.append(row)
    return np.array(numbers, np.int64), b"".join(row + b"\n" for row in kept), rejects


def numbered_lines(block: LineBlock) -> Iterator[tuple[int, bytes]]:
    """Every line with its number, without its line feed and one carriage return before it."""
    lines = block.data.split(b"\n")
    for number, line in enumerate(lines[: block.lines], block.first_line):
        yield number, line.removesuffix(b"\r")


def _plain_row(number: int, line: bytes, layout: Layout) -> bytes | Reject:
    if b"\r" in line:
        return Reject(number, "a carriage return inside the line", line, expected="one row a line")
    cells = split_line(line, layout.delimiter, layout.quoted)
    if cells is None:
        return Reject(number, "a quoted value does not end on its line", line, expected="doubled or closing quotes")
    if len(cells) != layout.width:
        return Reject(number, "wrong number of columns", line, value=str(len(cells)), expected=str(layout.width))
    if layout.quoted and b'"' in line:
        return b",".join(b'"' + cell.replace(b'"', b'""') + b'"' for cell in cells)
    return line
