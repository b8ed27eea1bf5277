"""Sample a log file: its beginning and later pieces, in bounded time and memory."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pipelines.errors import NoLogFiles
from warehouse.storage.errors import storage_error

HEAD_BYTES = 1 << 20
PIECE_BYTES = 1 << 17
PIECES = 6
#: Bytes of a gzip file that are decompressed, since it cannot be read from the middle.
_UNPACKED_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 16
_GZIP_WINDOW_BITS = 31


@dataclass(frozen=True, slots=True)
class Sample:
    """Parts of one file.

    Attributes:
        path: the file.
        head: its first bytes.
        pieces: later bytes, each with arbitrary bounds.
        is_whole: whether ``head`` is the whole file.
        size_bytes: the stored size of the file.
        packed: whether the file is gzipped.
    """

    path: str
    head: bytes
    pieces: tuple[bytes, ...]
    is_whole: bool
    size_bytes: int
    packed: bool


def read_sample(path: str) -> Sample:
    """A sample of the file. Raises :class:`NoLogFiles` and :class:`~transforms.errors.StorageError`.

    A truncated or damaged gzip file is sampled up to the damage.
    """
    try:
        with Path(path).open("rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            if path.endswith(".gz"):
                return _packed_sample(path, file, size_bytes)
            head = file.read(HEAD_BYTES)
            return Sample(path, head, tuple(_pieces(file, size_bytes)), len(head) >= size_bytes, size_bytes, False)
    except (FileNotFoundError, IsADirectoryError):
        raise NoLogFiles("the log file must exist", where=path, next_step="check the path") from None
    except OSError as error:
        raise storage_error(error, path, "read") from error


def _pieces(file: IO[bytes], size_bytes: int) -> Iterator[bytes]:
    left = size_bytes - HEAD_BYTES
    if left <= 0:
        return
    starts = {HEAD_BYTES + left * piece // PIECES for piece in range(PIECES - 1)}
    for start in sorted({*starts, max(HEAD_BYTES, size_bytes - PIECE_BYTES)}):
        # An even place: UTF-16 has two bytes per character.
        file.seek(start + (start & 1))
        yield file.read(PIECE_BYTES)


def _packed_sample(path: str, file: IO[bytes], size_bytes: int) -> Sample:
    held: list[bytes] = []
    pieces: list[bytes] = []
    total, next_piece, step = 0, HEAD_BYTES, _UNPACKED_BYTES // PIECES
    for data in _unpacked(file):
        if total < HEAD_BYTES:
            held.append(data)
        elif total >= next_piece and len(pieces) < PIECES:
            pieces.append(data)
            next_piece = total + step
        total += len(data)
        if total >= _UNPACKED_BYTES:
            break
    head = b"".join(held)
    return Sample(path, head[:HEAD_BYTES], tuple(pieces), total <= HEAD_BYTES, size_bytes, True)


def _unpacked(file: IO[bytes]) -> Iterator[bytes]:
    """The members of a gzip file in pieces, up to the first damage."""
    stream = zlib.decompressobj(_GZIP_WINDOW_BITS)
    while chunk := file.read(_CHUNK_BYTES):
        while chunk:
            if stream.eof:
                stream = zlib.decompressobj(_GZIP_WINDOW_BITS)
                chunk = chunk.lstrip(b"\0")
                if not chunk:
                    break
            try:
                data = stream.decompress(chunk, PIECE_BYTES)
            except zlib.error:
                return
            chunk = stream.unused_data if stream.eof else stream.unconsumed_tail
            yield data
