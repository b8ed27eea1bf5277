"""The bytes of a log file as blocks of whole lines, gunzipped by suffix, with the line numbers kept.

Memory is bounded by the block size, not by the file. A gzip stream that stops short is an error that says how much
could be read: half a log must not pass for a whole one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pipelines.errors import NoLogFiles, TruncatedLog

BLOCK_BYTES = 16 << 20
_PIECE_BYTES = 1 << 20
_GZIP_WINDOW_BITS = 31


@dataclass(frozen=True, slots=True)
class LineBlock:
    """``data``: whole lines (the last one of a file may lack its line feed); ``first_line`` counts from 1."""

    first_line: int
    data: bytes

    @property
    def lines(self) -> int:
        """How many lines there are, blank ones included."""
        return self.data.count(b"\n") + (not self.data.endswith(b"\n") and bool(self.data))

    def halves(self) -> tuple[LineBlock, LineBlock]:
        """The block cut at a line's end near its middle; the second part is empty if it is one line."""
        last = len(self.data) - 1
        cut = self.data.find(b"\n", len(self.data) // 2, last) + 1 or self.data.rfind(b"\n", 0, last) + 1 or last + 1
        first = self.data[:cut]
        return LineBlock(self.first_line, first), LineBlock(self.first_line + first.count(b"\n"), self.data[cut:])


def read_blocks(path: str, block_bytes: int = BLOCK_BYTES) -> Iterator[LineBlock]:
    """The file's lines in blocks of about ``block_bytes``.

    Raises :class:`TruncatedLog` when a gzip file ends early or is damaged, after the blocks that could be read,
    and :class:`NoLogFiles` when there is no such file.
    """
    line, held, held_bytes = 1, [], 0
    for piece in _pieces(path, min(block_bytes, _PIECE_BYTES)):
        held.append(piece)
        held_bytes += len(piece)
        if held_bytes >= block_bytes and b"\n" in piece:
            data, rest = _split_at_last_line_feed(b"".join(held))
            yield LineBlock(line, data)
            line += data.count(b"\n")
            held, held_bytes = [rest], len(rest)
    if held_bytes:
        yield LineBlock(line, b"".join(held))


def _split_at_last_line_feed(data: bytes) -> tuple[bytes, bytes]:
    cut = data.rindex(b"\n") + 1
    return data[:cut], data[cut:]


def _pieces(path: str, piece_bytes: int) -> Iterator[bytes]:
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - closed by the with below
    except (FileNotFoundError, IsADirectoryError):
        raise NoLogFiles("there is no log file here", where=path) from None
    with file:
        yield from (
            _gunzip(file, path, piece_bytes) if path.endswith(".gz") else iter(lambda: file.read(piece_bytes), b"")
        )


def _gunzip(file: IO[bytes], path: str, piece_bytes: int) -> Iterator[bytes]:
    """Every member of a gzip file, decompressed into pieces of at most ``piece_bytes``."""
    stream, fresh, out_bytes, lines = zlib.decompressobj(_GZIP_WINDOW_BITS), True, 0, 0
    while chunk := file.read(piece_bytes):
        while chunk:
            if stream.eof:
                stream, fresh = zlib.decompressobj(_GZIP_WINDOW_BITS), True
                chunk = chunk.lstrip(b"\0")  # tape and block padding between members
                if not chunk:
                    break
            try:
                data = stream.decompress(chunk, piece_bytes)
            except zlib.error as error:
                raise _truncated("the gzip data is damaged", path, out_bytes, lines, str(error)) from error
            chunk, fresh = stream.unused_data if stream.eof else stream.unconsumed_tail, False
            out_bytes, lines = out_bytes + len(data), lines + data.count(b"\n")
            yield data
    if not stream.eof and not (fresh and out_bytes):
        raise _truncated("the gzip file ends before its end-of-stream marker", path, out_bytes, lines, None)


def _truncated(what: str, path: str, out_bytes: int, lines: int, value: str | None) -> TruncatedLog:
    return TruncatedLog(
        what,
        where=path,
        value=value or f"{lines} whole lines ({out_bytes} bytes) could be read",
        allowed=f"a complete gzip file; {lines} whole lines ({out_bytes} bytes) could be read",
        next_step="fetch the file again; nothing of it was imported",
    )
