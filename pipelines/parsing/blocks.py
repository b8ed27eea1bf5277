"""Read a log file as blocks of whole lines in UTF-8, with line numbers.

Memory is bounded by the block size and the longest line, not by the file. A longer line is counted and skipped; only its
first bytes are kept. :mod:`pipelines.parsing.compression` gives the file's bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from pipelines.parsing.compression import log_pieces
from pipelines.parsing.rejects import RAW_BYTES
from pipelines.parsing.text import line_feed_pieces, utf8_pieces

BLOCK_BYTES = 16 << 20
#: Lines per block. Arrow's JSON reader accepts at most 100,000; the limit also bounds the number of Python objects.
BLOCK_LINES = 1 << 16
LONGEST_LINE_BYTES = 16 << 20
_PIECE_BYTES = 1 << 20
#: Bytes are compared in parts that stay in a cache of the processor.
_LOOKED_AT_BYTES, _FEED = 1 << 18, ord("\n")


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Whole lines of a file, or whole records.

    Attributes:
        first_line: the number of the first line, from 1.
        data: the lines; the last line of a file may have no line feed.
        starts: the start of each record, if some records hold line breaks; None if each line is a record.
        plain: whether every quote is known to open or close a cell, or to be doubled inside one.
    """

    first_line: int
    data: bytes
    starts: np.ndarray[tuple[int], np.dtype[np.int64]] | None = None
    plain: bool = False

    @property
    def lines(self) -> int:
        """The number of lines, including blank ones."""
        return line_feeds(self.data) + (not self.data.endswith(b"\n") and bool(self.data))

    @property
    def records(self) -> int:
        """The number of records, including blank lines."""
        return self.lines if self.starts is None else len(self.starts)

    @property
    def numbers(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The line number of each record's start."""
        if self.starts is None:
            return np.arange(self.first_line, self.first_line + self.lines)
        return self.first_line + np.searchsorted(line_ends(self.data), self.starts)

    def each(self) -> list[bytes]:
        """All records, without their line feeds."""
        if self.starts is None:
            return self.data.split(b"\n")[: self.lines]
        bounds = [*self.starts.tolist(), len(self.data)]
        return [self.data[start:end].removesuffix(b"\n") for start, end in itertools.pairwise(bounds)]

    def after_first(self) -> tuple[bytes, LineBlock]:
        """The first record without its line feed, and the block of the other records."""
        end = self.data.find(b"\n") + 1 or len(self.data)
        starts = None
        if self.starts is not None:
            end = int(self.starts[1]) if len(self.starts) > 1 else len(self.data)
            starts = self.starts[1:] - end
        first = self.data[:end]
        rest = LineBlock(self.first_line + first.count(b"\n"), self.data[end:], starts, self.plain)
        return first.removesuffix(b"\n"), rest

    def first(self, records: int) -> LineBlock:
        """The block of at most the first ``records`` records."""
        if records >= self.records:
            return self
        starts = None if self.starts is None else self.starts[:records]
        end = int(line_ends(self.data)[records - 1]) + 1 if self.starts is None else int(self.starts[records])
        return LineBlock(self.first_line, self.data[:end], starts, self.plain)

    def pieces(self, most_lines: int) -> Iterator[LineBlock]:
        """Split the block into blocks of at most ``most_lines`` lines."""
        ends = line_ends(self.data)
        for first in range(0, len(ends), most_lines):
            last = min(first + most_lines, len(ends)) - 1
            start = int(ends[first - 1]) + 1 if first else 0
            yield LineBlock(self.first_line + first, self.data[start : int(ends[last]) + 1])


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line that exceeds the limit of bytes per line.

    Attributes:
        number: its line number, from 1.
        length_bytes: its bytes before the line feed.
        start: its first bytes.
    """

    number: int
    length_bytes: int
    start: bytes


def line_feeds(data: bytes) -> int:
    """The number of line feeds; of large data in a third of the time of ``data.count``."""
    content = np.frombuffer(data, np.uint8)
    return sum(
        int(np.count_nonzero(content[at : at + _LOOKED_AT_BYTES] == _FEED))
        for at in range(0, len(data), _LOOKED_AT_BYTES)
    )


def only_line_ends(data: bytes) -> bool:
    """Whether each carriage return is followed by a line feed."""
    return b"\r" not in data or data.count(b"\r") == data.count(b"\r\n")


def line_ends(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The position of each line feed; the length of ``data`` for a last line without one."""
    content = np.frombuffer(data, np.uint8)
    found = [
        np.flatnonzero(content[at : at + _LOOKED_AT_BYTES] == _FEED) + at
        for at in range(0, len(data), _LOOKED_AT_BYTES)
    ]
    ends = np.concatenate(found) if found else np.zeros(0, np.int64)
    return ends if data.endswith(b"\n") or not data else np.append(ends, len(data))


def read_blocks(
    path: str, block_bytes: int = BLOCK_BYTES, longest_line_bytes: int = LONGEST_LINE_BYTES, encoding: str = "utf-8"
) -> Iterator[LineBlock | LongLine]:
    """The file's lines in order; see :func:`line_blocks`. Raises what :func:`~pipelines.parsing.compression.log_pieces` raises."""
    pieces = log_pieces(path, min(block_bytes, _PIECE_BYTES))
    return line_blocks(pieces, block_bytes, longest_line_bytes, encoding)


def line_blocks(
    pieces: Iterator[bytes],
    block_bytes: int = BLOCK_BYTES,
    longest_line_bytes: int = LONGEST_LINE_BYTES,
    encoding: str = "utf-8",
) -> Iterator[LineBlock | LongLine]:
    """The lines of a file in pieces, as UTF-8 in blocks of about ``block_bytes`` and at most 65,536 lines.

    Whether a line is a :class:`LongLine` depends on the line alone, not on the bounds of blocks.
    """
    cutter = _Cutter(block_bytes, longest_line_bytes)
    for piece in line_feed_pieces(utf8_pieces(pieces, encoding)):
        for found in cutter.take(piece):
            yield from _within_limits(found, longest_line_bytes)
    for found in cutter.end():
        yield from _within_limits(found, longest_line_bytes)


@dataclass(slots=True)
class _Cutter:
    """Splits pieces of a file into blocks of whole lines; skips lines over the limit.

    ``tail_bytes``: held bytes after the last line feed. ``passed``: set inside a long line.
    """

    block_bytes: int
    longest_line_bytes: int
    line: int = 1
    held: list[bytes] = field(default_factory=list)
    held_bytes: int = 0
    tail_bytes: int = 0
    passed: LongLine | None = None

    def take(self, piece: bytes) -> Iterator[LineBlock | LongLine]:
        """Add ``piece``; return the blocks that it completes."""
        if self.passed is not None:
            end = piece.find(b"\n")
            more = piece if end < 0 else piece[:end]
            start = self.passed.start + more[: RAW_BYTES - len(self.passed.start)]
            self.passed = LongLine(self.line, self.passed.length_bytes + len(more), start)
            if end < 0:
                return
            yield self._end_passed(self.passed)
            piece = piece[end + 1 :]
        self.held.append(piece)
        self.held_bytes += len(piece)
        at = piece.rfind(b"\n")
        self.tail_bytes = self.tail_bytes + len(piece) if at < 0 else len(piece) - at - 1
        too_long = self.tail_bytes > self.longest_line_bytes
        if self.held_bytes > self.tail_bytes and (self.held_bytes >= self.block_bytes or too_long):
            yield self._cut()
        if too_long:
            tail = b"".join(self.held)
            self.passed = LongLine(self.line, len(tail), tail[:RAW_BYTES])
            self.held, self.held_bytes, self.tail_bytes = [], 0, 0

    def end(self) -> Iterator[LineBlock | LongLine]:
        """The rest at the end of the file."""
        if self.passed is not None:
            yield self._end_passed(self.passed)
        if self.held_bytes:
            yield LineBlock(self.line, b"".join(self.held))

    def _cut(self) -> LineBlock:
        data = b"".join(self.held)
        cut = len(data) - self.tail_bytes
        block = LineBlock(self.line, data[:cut])
        self.line += line_feeds(block.data)
        self.held, self.held_bytes = [data[cut:]], self.tail_bytes
        return block

    def _end_passed(self, passed: LongLine) -> LongLine:
        self.line, self.passed = self.line + 1, None
        return passed


def _within_limits(found: LineBlock | LongLine, longest_line_bytes: int) -> Iterator[LineBlock | LongLine]:
    """Split a block into its long lines and blocks of at most :data:`BLOCK_LINES` lines."""
    if isinstance(found, LongLine):
        yield found
        return
    if len(found.data) <= longest_line_bytes:
        yield from [found] if line_feeds(found.data) < BLOCK_LINES else found.pieces(BLOCK_LINES)
        return
    ends = line_ends(found.data)
    starts = np.concatenate([[0], ends[:-1] + 1])
    begin, line = 0, found.first_line
    for row in np.flatnonzero(ends - starts > longest_line_bytes).tolist():
        start, end = int(starts[row]), int(ends[row])
        yield from LineBlock(line, found.data[begin:start]).pieces(BLOCK_LINES)
        yield LongLine(found.first_line + row, end - start, found.data[start : min(end, start + RAW_BYTES)])
        begin, line = end + 1, found.first_line + row + 1
    yield from LineBlock(line, found.data[begin:]).pieces(BLOCK_LINES)
