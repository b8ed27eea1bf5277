"""Sample a log file: its beginning and later pieces, in bounded time and memory, no byte twice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pipelines.errors import NoLogFiles, TruncatedLog
from pipelines.parsing.compression import open_pieces, stored_compression
from pipelines.parsing.file_kinds import refuse_other_kinds
from warehouse.storage.errors import storage_error

HEAD_BYTES = 1 << 20
PIECE_BYTES = 1 << 17
PIECES = 6
#: A file of at most these bytes is read whole: its beginning and its pieces would have no gaps between them.
_WHOLE_BYTES = HEAD_BYTES + PIECES * PIECE_BYTES
#: Bytes of a compressed file that are decompressed, since it cannot be read from the middle.
_UNPACKED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """Parts of one file.

    Attributes:
        path: the file.
        head: its first bytes.
        pieces: later bytes, each with arbitrary bounds.
        is_whole: whether ``head`` is the whole file.
        size_bytes: the stored size of the file.
        packed: whether the file is compressed.
    """

    path: str
    head: bytes
    pieces: tuple[bytes, ...]
    is_whole: bool
    size_bytes: int
    packed: bool


def read_sample(path: str) -> Sample:
    """A sample of the file. Raises :class:`NoLogFiles`, :class:`~pipelines.errors.UnknownFormat` and ``StorageError``.

    A truncated or damaged compressed file is sampled up to the damage.
    """
    try:
        with Path(path).open("rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            if stored_compression(file, path) is not None:
                return _packed_sample(path, file, size_bytes)
            is_whole = size_bytes <= _WHOLE_BYTES
            head = file.read(size_bytes if is_whole else HEAD_BYTES)
            refuse_other_kinds(head, path)
            return Sample(path, head, () if is_whole else tuple(_pieces(file, size_bytes)), is_whole, size_bytes, False)
    except (FileNotFoundError, IsADirectoryError):
        raise NoLogFiles("the log file must exist", where=path, next_step="check the path") from None
    except OSError as error:
        raise storage_error(error, path, "read") from error


def _pieces(file: IO[bytes], size_bytes: int) -> Iterator[bytes]:
    """Pieces of a file that is not read whole, at equal distances and the last one at its end."""
    distance = (size_bytes - HEAD_BYTES - PIECE_BYTES) / (PIECES - 1)
    for piece in range(PIECES):
        # A place divisible by four: a character of UTF-16 has two bytes, one of UTF-32 four.
        start = HEAD_BYTES + int(piece * distance) & ~3
        file.seek(start)
        yield file.read(PIECE_BYTES if piece < PIECES - 1 else size_bytes - start)


def _packed_sample(path: str, file: IO[bytes], size_bytes: int) -> Sample:
    held: list[bytes] = []
    pieces: list[bytes] = []
    total, next_piece, step = 0, _WHOLE_BYTES, _UNPACKED_BYTES // PIECES
    for data in _until_damage(open_pieces(file, path, PIECE_BYTES)):
        if total <= _WHOLE_BYTES:
            held.append(data)
        elif total >= next_piece and len(pieces) < PIECES:
            pieces.append(data)
            next_piece = total + step
        total += len(data)
        if total >= _UNPACKED_BYTES:
            break
    start, is_whole = b"".join(held), total <= _WHOLE_BYTES
    return Sample(path, start if is_whole else start[:HEAD_BYTES], tuple(pieces), is_whole, size_bytes, True)


def _until_damage(pieces: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from pieces
    except TruncatedLog:
        return
