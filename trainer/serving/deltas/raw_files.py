"""Arrays as raw little-endian files: written some rows at a time while they are hashed, and read so while they are verified."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from trainer.checkpoints.local_run import read_chunks, wrong_size
from trainer.errors import TornCheckpoint
from transforms.arrays import Array

#: Bytes that are read from a file at once.
CHUNK_BYTES = 1 << 18


class RawWriter:
    """A new file. It is durable after :func:`~warehouse.storage.durable_files.sync_folder` of its folder."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115
        self._sha256 = hashlib.sha256()
        self.size_bytes = 0

    def append(self, rows: Array) -> None:
        """Write rows after those before."""
        if not rows.size:
            return
        left = memoryview(np.ascontiguousarray(rows).data).cast("B")
        self._sha256.update(left)
        self.size_bytes += len(left)
        while left:
            left = left[self._file.write(left) :]

    def finish(self) -> str:
        """Close the file, and return its SHA-256."""
        self._file.close()
        return self._sha256.hexdigest()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class RawReader:
    """An array of ``shape`` in a file, read from its first row to its last.

    Raises :class:`TornCheckpoint` for a file of another size, before memory is taken.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], sha256: str) -> None:
        self.place, self.left = str(path), shape[0]
        self._dtype, self._row_shape, self._expected = dtype, shape[1:], sha256
        size_bytes = math.prod(shape) * dtype.itemsize
        _check_size(path, size_bytes)
        self._sha256 = hashlib.sha256()
        self._chunks = read_chunks(path, size_bytes, CHUNK_BYTES)
        self._chunk = memoryview(b"")

    def read(self, most_rows: int) -> Array:
        """The next rows, at most so many; none at the end."""
        rows = min(most_rows, self.left)
        self.left -= rows
        found = np.empty((rows, *self._row_shape), self._dtype)
        if not found.size:
            return found
        bytes_out, at = memoryview(found.data).cast("B"), 0
        while at < len(bytes_out):
            if not len(self._chunk) and not self._next_chunk():
                raise TornCheckpoint(
                    "a file must have the size that the manifest records, got a shorter one", where=self.place
                )
            piece = self._chunk[: len(bytes_out) - at]
            bytes_out[at : at + len(piece)] = piece
            self._chunk, at = self._chunk[len(piece) :], at + len(piece)
        return found

    def _next_chunk(self) -> bool:
        chunk = next(self._chunks, b"")
        self._sha256.update(chunk)
        self._chunk = memoryview(chunk)
        return bool(chunk)

    def finish(self) -> None:
        """Raise :class:`TornCheckpoint` unless all bytes were read, and were those that the manifest records."""
        while self._next_chunk():
            pass
        if self.left or self._sha256.hexdigest() != self._expected:
            raise TornCheckpoint("a file must have the bytes that the manifest records, got others", where=self.place,
                                 value=self._sha256.hexdigest(), allowed=self._expected)  # fmt: skip


def _check_size(path: Path, size_bytes: int) -> None:
    try:
        found = path.stat().st_size
    except OSError:
        return  # reading names the problem
    if found != size_bytes:
        raise wrong_size(str(path), found, size_bytes)


def read_array(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], sha256: str) -> Array:
    """A whole array, verified. Raises :class:`TornCheckpoint`."""
    reader = RawReader(path, dtype, (1, *shape), sha256)
    if not path.is_file():
        reader.finish()  # raises, before memory is taken
    found = reader.read(1)
    reader.finish()
    whole: Array = found.reshape(shape)
    return whole


def read_pieces(readers: list[RawReader], rows_at_once: int) -> Iterator[tuple[Array, ...]]:
    """The next rows of several arrays of equally many rows, until the end; each file is verified then."""
    while readers[0].left:
        yield tuple(one.read(rows_at_once) for one in readers)
    for one in readers:
        one.finish()
