"""Arrays as raw little-endian files: written some rows at a time while they are hashed, and read so while they are verified."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from trainer.checkpoints.run_files import CHUNK_BYTES, RunFiles
from trainer.errors import TornCheckpoint
from transforms.arrays import Array

#: Bytes that are read at once from a file of a disk, and at least from an object: a request takes about as long as to receive some megabytes.
_LEAST_BYTES = 1 << 18


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

    Args:
        files: of a folder or a bucket.
        path: of the file in ``files``.
        window_bytes: about so many bytes of an object are in memory at once.
    """

    def __init__(
        self,
        files: RunFiles,
        path: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        sha256: str,
        *,
        window_bytes: int = CHUNK_BYTES,
    ) -> None:
        self.place, self.left = files.place(path), shape[0]
        self._dtype, self._row_shape, self._expected = dtype, shape[1:], sha256
        chunk_bytes = max(_LEAST_BYTES, min(window_bytes, CHUNK_BYTES)) if files.is_remote else _LEAST_BYTES
        self._sha256 = hashlib.sha256()
        self._chunks = files.chunks(path, math.prod(shape) * dtype.itemsize, chunk_bytes)
        self._chunk = memoryview(b"")

    def read(self, most_rows: int) -> Array:
        """The next rows, at most so many; none at the end.

        Raises :class:`TornCheckpoint` for a file that is absent or of another size, before memory is taken.
        """
        rows = min(most_rows, self.left)
        if rows and math.prod(self._row_shape) and not len(self._chunk):
            self._next_chunk()
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
        self._chunk = memoryview(b"")  # its memory is free before more is read
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


def read_array(files: RunFiles, path: str, dtype: np.dtype[Any], shape: tuple[int, ...], sha256: str) -> Array:
    """A whole array, verified. Raises :class:`TornCheckpoint`."""
    reader = RawReader(files, path, dtype, (1, *shape), sha256)
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
