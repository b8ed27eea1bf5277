"""The bytes of a log file, decompressed by the first bytes of the file and not by its name.

gzip, bzip2, xz, zstd and LZ4 frames are read, each also as several members or frames one after the other. Memory is bounded
by the size of a piece. A truncated or damaged file is an error that states how much could be read.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Protocol

import pyarrow as pa

from pipelines.errors import NoLogFiles, TruncatedLog
from pipelines.log_schemas.file_names import named_compression
from pipelines.parsing.file_kinds import START_BYTES, refuse_other_kinds
from warehouse.storage.errors import storage_error

#: Compressed bytes read at once: zlib copies the rest of them after each member, and a member may have 20 bytes.
_CHUNK_BYTES = 1 << 16
_GZIP_WINDOW_BITS = 31
#: The largest preset of xz takes 65 MiB.
_XZ_MEMORY_BYTES = 256 << 20
_LONGEST_START = 10
#: The first bytes of each compression. A text cannot begin with them: bzip2's ten bytes include its block marker.
_STARTS = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "bzip2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
    "lz4": re.compile(rb"\x04\x22\x4d\x18"),
}
#: Beginnings of the first bytes, for files that end before the others.
_MAGIC = {
    "gzip": b"\x1f\x8b",
    "bzip2": b"BZh",
    "xz": b"\xfd7zXZ\x00",
    "zstd": b"\x28\xb5\x2f\xfd",
    "lz4": b"\x04\x22\x4d\x18",
}


class _Damage(Exception):
    """The compressed bytes end too early, or cannot be decompressed; raised as :class:`TruncatedLog`."""


def compression_of(start: bytes) -> str | None:
    """The compression of a file with these first bytes; None for a file that is not compressed."""
    return next((name for name, form in _STARTS.items() if form.match(start)), None)


def log_pieces(path: str, piece_bytes: int) -> Iterator[bytes]:
    """The bytes of the file in pieces of at most ``piece_bytes``.

    Raises :class:`NoLogFiles` for a missing file, :class:`TruncatedLog` for a truncated or damaged one after the pieces that
    could be read, :class:`~pipelines.errors.UnknownFormat` for a file of another kind than a log, and
    :class:`~transforms.errors.StorageError`.
    """
    try:
        with Path(path).open("rb") as file:
            yield from open_pieces(file, path, piece_bytes)
    except (FileNotFoundError, IsADirectoryError):
        raise NoLogFiles("the log file must exist", where=path, next_step="check the path") from None
    except OSError as error:
        raise storage_error(error, path, "read") from error


def open_pieces(file: IO[bytes], path: str, piece_bytes: int) -> Iterator[bytes]:
    """The same for a file that is open at its start; raises ``OSError`` if it cannot be read."""
    compression = stored_compression(file, path)
    pieces = (
        iter(lambda: file.read(piece_bytes), b"")
        if compression is None
        else _unpacked(file, path, compression, piece_bytes)
    )
    start, held = b"", list[bytes]()
    try:
        for piece in pieces:
            held.append(piece)
            start += piece
            if len(start) >= START_BYTES:
                break
    except TruncatedLog:
        yield from held
        raise
    refuse_other_kinds(start, path)
    yield from held
    yield from pieces


def stored_compression(file: IO[bytes], path: str) -> str | None:
    """The compression of a file that is open at its start; None if it is not compressed.

    Raises :class:`TruncatedLog` for a file that its name calls compressed and that ends within the first bytes.
    """
    start = file.read(_LONGEST_START)
    file.seek(0)
    found, named = compression_of(start), named_compression(os.path.basename(path))
    if found is None and named is not None and _MAGIC[named].startswith(start):
        raise _truncated(named, path, 0, 0, f"{len(start)} bytes")
    return found


def _unpacked(file: IO[bytes], path: str, compression: str, piece_bytes: int) -> Iterator[bytes]:
    out_bytes, lines = 0, 0
    try:
        for data in _READERS[compression](file, piece_bytes):
            out_bytes, lines = out_bytes + len(data), lines + data.count(b"\n")
            yield data
    except _Damage as error:
        raise _truncated(compression, path, lines, out_bytes, str(error)) from error


def _truncated(compression: str, path: str, lines: int, out_bytes: int, value: str) -> TruncatedLog:
    return TruncatedLog(
        f"a {compression} file must be complete and intact",
        where=path,
        value=value,
        allowed=f"a complete {compression} file; {lines} whole lines ({out_bytes} bytes) could be read",
        next_step="fetch the file again; nothing of it was imported",
    )


def _gzip_pieces(file: IO[bytes], piece_bytes: int) -> Iterator[bytes]:
    stream, fresh, members = zlib.decompressobj(_GZIP_WINDOW_BITS), True, 0
    while chunk := file.read(_CHUNK_BYTES):
        while chunk:
            if stream.eof:
                stream, fresh, members = zlib.decompressobj(_GZIP_WINDOW_BITS), True, members + 1
            if fresh and members and not (chunk := chunk.lstrip(b"\0")):  # tape and block padding between members
                break
            try:
                data = stream.decompress(chunk, piece_bytes)
            except zlib.error as error:
                raise _Damage(str(error)) from error
            chunk, fresh = stream.unused_data if stream.eof else stream.unconsumed_tail, False
            if data:
                yield data
    if not stream.eof and not (fresh and members):
        raise _Damage("it ends before its end-of-stream marker")


def _xz_pieces(file: IO[bytes], piece_bytes: int) -> Iterator[bytes]:
    import lzma

    return _stream_pieces(file, piece_bytes, lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES))


def _bzip2_pieces(file: IO[bytes], piece_bytes: int) -> Iterator[bytes]:
    import bz2  # Arrow's reader stops at an empty stream, which parallel writers leave

    return _stream_pieces(file, piece_bytes, bz2.BZ2Decompressor)


class _Stream(Protocol):
    """What :mod:`bz2` and :mod:`lzma` offer for one stream."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


def _stream_pieces(file: IO[bytes], piece_bytes: int, new_stream: Callable[[], _Stream]) -> Iterator[bytes]:
    stream, fresh, streams = new_stream(), True, 0
    while chunk := file.read(_CHUNK_BYTES):
        while chunk or not (fresh or stream.needs_input):
            if fresh and streams and not (chunk := chunk.lstrip(b"\0")):  # padding between streams
                break
            try:
                data = stream.decompress(chunk, piece_bytes)
            except Exception as error:  # an OSError, EOFError or LZMAError: the file itself is read above
                raise _Damage(str(error)) from error
            chunk, fresh = b"", False
            if data:
                yield data
            if stream.eof:
                chunk, stream, fresh, streams = stream.unused_data, new_stream(), True, streams + 1
    if not (fresh and streams):
        raise _Damage("it ends before its end-of-stream marker")


def _arrow_pieces(name: str) -> Callable[[IO[bytes], int], Iterator[bytes]]:
    def pieces(file: IO[bytes], piece_bytes: int) -> Iterator[bytes]:
        stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), name)
        while True:
            try:
                data = stream.read(piece_bytes)
            except pa.ArrowInvalid as error:
                raise _Damage(str(error)) from error
            except OSError as error:
                if error.errno is not None:  # an error of the file itself
                    raise
                raise _Damage(str(error)) from error
            if not data:
                return
            yield data

    return pieces


_READERS: dict[str, Callable[[IO[bytes], int], Iterator[bytes]]] = {
    "gzip": _gzip_pieces, "xz": _xz_pieces, "bzip2": _bzip2_pieces, "zstd": _arrow_pieces("zstd"),
    "lz4": _arrow_pieces("lz4"),
}  # fmt: skip
