"""Find the records of a quoted log, whose quoted values may hold line breaks (RFC 4180).

A record ends at the first line end outside quotes. A value's closing quote must precede a delimiter or a line end.
Otherwise, or if it does not come within the longest line or the file, the line that opens the value is a bad record by
itself and the next record begins on the next line: a stray quote costs one line, not the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from pipelines.parsing.blocks import LineBlock, LongLine, line_ends
from pipelines.parsing.delimited_lines import Positions, closing_quote, quoted_plainly

_OPEN, _BROKEN = -1, -2


def whole_records(
    blocks: Iterable[LineBlock | LongLine], delimiter: str, longest_bytes: int
) -> Iterator[LineBlock | LongLine]:
    """Blocks of whole lines as blocks of whole records; an unfinished record is joined with the next block."""
    held: LineBlock | None = None
    for block in blocks:
        if isinstance(block, LongLine):
            if held is not None:
                yield from _cut(held, delimiter, longest_bytes, last=True)[0]
                held = None
            yield block
            continue
        if held is not None:
            block = LineBlock(held.first_line, held.data + block.data)
        whole, held = _cut(block, delimiter, longest_bytes, last=False)
        yield from whole
    if held is not None:
        yield from _cut(held, delimiter, longest_bytes, last=True)[0]


def _cut(
    block: LineBlock, delimiter: str, longest_bytes: int, *, last: bool
) -> tuple[list[LineBlock], LineBlock | None]:
    """The records that end in ``block``, and its rest; ``last``: whether the file ends with the block."""
    data = block.data
    if b'"' not in data:
        return [block], None
    cut = _plain_starts(data, delimiter, longest_bytes)
    plain = cut is not None
    starts, end = cut if cut is not None else _careful_starts(data, delimiter, longest_bytes, last)
    if last and end < len(data):
        plain = False
        starts, end = _careful_starts(data, delimiter, longest_bytes, last)
    lines_before = data.count(b"\n", 0, end)
    rest = LineBlock(block.first_line + lines_before, data[end:]) if end < len(data) else None
    if not len(starts):
        return [], rest
    many = len(starts) < lines_before + (not data[:end].endswith(b"\n"))
    return [LineBlock(block.first_line, data[:end], starts if many else None, plain)], rest


def _plain_starts(data: bytes, delimiter: str, longest_bytes: int) -> tuple[Positions, int] | None:
    """The records of a block whose quotes all open or close a cell or are doubled inside one; None for other blocks."""
    if data.count(b"\r") != data.count(b"\r\n"):
        return None
    ends = line_ends(data)
    quotes = np.flatnonzero(np.frombuffer(data, np.uint8) == ord('"'))
    ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
    if not len(ends):
        return None
    end = min(int(ends[-1]) + 1, len(data))
    if len(data) - end > longest_bytes or not quoted_plainly(data[:end], delimiter, ends):
        return None
    starts = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64)
    if (ends - starts > longest_bytes).any():
        return None
    return starts, end


def _careful_starts(data: bytes, delimiter: str, longest_bytes: int, last: bool) -> tuple[Positions, int]:
    """The records of any block, one by one."""
    ends = line_ends(data)
    starts: list[int] = []
    at = 0
    for line_end in ends.tolist():
        if line_end < at:
            continue  # inside a record
        found = line_end
        if data.find(b'"', at, line_end) >= 0:
            found = _record_end(data, at, delimiter.encode())
            if found == _OPEN and not last and len(data) - at <= longest_bytes:
                return np.array(starts, np.int64), at
            if found < 0 or found - at > longest_bytes:
                found = line_end
        starts.append(at)
        at = found + 1
    return np.array(starts, np.int64), min(at, len(data))


def _record_end(data: bytes, at: int, delimiter: bytes) -> int:
    """The position of the line end of the record at ``at``; ``_OPEN`` or ``_BROKEN`` if its quotes do not close."""
    while True:
        if data.startswith(b'"', at):
            quote = closing_quote(data, at + 1)
            if quote < 0:
                return _OPEN
            at = quote + 1
            if at == len(data) or data.startswith(b"\n", at):
                return at
            if data.startswith(b"\r\n", at) or data[at:] == b"\r":
                return at + 1
            if not data.startswith(delimiter, at):
                return _BROKEN
            at += 1
        else:
            line_end = data.find(b"\n", at)
            line_end = len(data) if line_end < 0 else line_end
            next_cell = data.find(delimiter, at, line_end)
            if next_cell < 0:
                return line_end
            at = next_cell + 1
