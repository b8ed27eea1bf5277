"""Find the records of a log whose values may hold line breaks: quoted ones (RFC 4180), and escaped ones.

A record ends at the first line end outside quotes that is not escaped. A value's closing quote must precede a delimiter or a line end.
Otherwise, or if it does not come within the longest line or the file, the line that opens the value is a bad record by
itself and the next record begins on the next line: a stray quote costs one line, not the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from pipelines.parsing.blocks import LineBlock, LongLine, line_ends, only_line_ends
from pipelines.parsing.cell_syntax import Syntax, cell_ends, closing_quote, masked
from pipelines.parsing.delimited_lines import Positions, quoted_plainly

_OPEN, _BROKEN = -1, -2


def whole_records(
    blocks: Iterable[LineBlock | LongLine], syntax: Syntax, longest_bytes: int, *, is_cut: bool = False
) -> Iterator[LineBlock | LongLine]:
    """Blocks of whole lines as blocks of whole records; an unfinished record is joined with the next block.

    ``is_cut``: whether the file goes on after the blocks; an unfinished last record is then left out.
    """
    held: LineBlock | None = None
    for block in blocks:
        if isinstance(block, LongLine):
            if held is not None:
                yield from _cut(held, syntax, longest_bytes, last=True)[0]
                held = None
            yield block
            continue
        if held is not None:
            block = LineBlock(held.first_line, held.data + block.data)
        whole, held = _cut(block, syntax, longest_bytes, last=False)
        yield from whole
    if held is not None and not is_cut:
        yield from _cut(held, syntax, longest_bytes, last=True)[0]


def _cut(
    block: LineBlock, syntax: Syntax, longest_bytes: int, *, last: bool
) -> tuple[list[LineBlock], LineBlock | None]:
    """The records that end in ``block``, and its rest; ``last``: whether the file ends with the block."""
    data = block.data
    if not syntax.may_span_lines(data):
        return [block], None
    cut = _plain_starts(data, syntax, longest_bytes, last)
    plain = cut is not None
    starts, end = cut if cut is not None else _careful_starts(data, syntax, longest_bytes, last)
    if last and end < len(data):
        plain = False
        starts, end = _careful_starts(data, syntax, longest_bytes, last)
    if last and len(starts) and _ends_escaped(data, int(starts[-1]), syntax):
        data, end = data + b"\n", end + 1  # the line end of the last record, which is absent
    lines_before = data.count(b"\n", 0, end)
    rest = LineBlock(block.first_line + lines_before, data[end:]) if end < len(data) else None
    if not len(starts):
        return [], rest
    many = len(starts) < lines_before + (not data[:end].endswith(b"\n"))
    return [LineBlock(block.first_line, data[:end], starts if many else None, plain)], rest


def _plain_starts(data: bytes, syntax: Syntax, longest_bytes: int, last: bool) -> tuple[Positions, int] | None:
    """The records of a block whose quotes all open or close a cell or are doubled inside one; None for other blocks."""
    plain = masked(data, syntax)
    if plain is None or not only_line_ends(data):
        return None
    ends = line_ends(plain)
    if data.endswith(b"\n") and not plain.endswith(b"\n") and not last:
        ends = ends[:-1]  # the last line end is escaped
    if syntax.quoted:
        quotes = np.flatnonzero(np.frombuffer(plain, np.uint8) == ord('"'))
        ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
    if not len(ends):
        return None
    end = min(int(ends[-1]) + 1, len(data))
    is_plain = not syntax.quoted or quoted_plainly(plain[:end], syntax.delimiter, ends)
    if len(data) - end > longest_bytes or not is_plain:
        return None
    starts = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64)
    if (ends - starts > longest_bytes).any():
        return None
    return starts, end


def _careful_starts(data: bytes, syntax: Syntax, longest_bytes: int, last: bool) -> tuple[Positions, int]:
    """The records of any block, one by one."""
    ends = line_ends(data)
    starts: list[int] = []
    at = 0
    for line_end in ends.tolist():
        if line_end < at:
            continue  # inside a record
        found = line_end
        if syntax.may_span_lines(data[at:line_end]):
            found = _record_end(data, at, syntax, last)
            if found == _OPEN and not last and len(data) - at <= longest_bytes:
                return np.array(starts, np.int64), at
            if found < 0 or found - at > longest_bytes:
                found = line_end
        starts.append(at)
        at = found + 1
    return np.array(starts, np.int64), min(at, len(data))


def _record_end(data: bytes, at: int, syntax: Syntax, last: bool) -> int:
    """The position of the line end of the record at ``at``; ``_OPEN`` or ``_BROKEN`` if its quotes do not close."""
    delimiter = syntax.delimiter.encode()
    while True:
        if syntax.quoted and data.startswith(b'"', at):
            quote = closing_quote(data, at + 1, syntax)
            if quote < 0:
                return _OPEN
            at = quote + 1
            if at == len(data) or data.startswith(b"\n", at):
                return at
            if data.startswith(b"\r\n", at) or (at + 1 == len(data) and data.endswith(b"\r")):
                return at + 1
            if not data.startswith(delimiter, at):
                return _BROKEN
        else:
            at = next(cell_ends(data, at, syntax), len(data))
            if at == len(data) and syntax.escape and not last:
                return _OPEN
            if at == len(data) or data.startswith(b"\n", at):
                return at
        at += 1


def _ends_escaped(data: bytes, at: int, syntax: Syntax) -> bool:
    """Whether the record at ``at``, the last one, ends with a line end that is a part of its value."""
    return syntax.escapes(data[at:]) and data.endswith(b"\n") and _record_end(data, at, syntax, True) == len(data)
