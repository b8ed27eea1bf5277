"""A file of batches: a head with their origin, the batches, and a directory of them with checksums.

The end of the file (int64 numbers) is the directory, a row for each batch of its first byte, its bytes and its checksum (xxh3, 64 bits), then the number of
batches, the checksum of the directory and the digest, the digest of what is in the file, and the magic number. Batches begin at multiples
of 8 bytes, one after the other.

A file is mapped. The pages of a batch are read in before any code looks at them, by a call that fails where they cannot be: a file that
was cut meanwhile, or a disk that fails, is an error and no signal.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import numpy as np
import xxhash

from trainer.errors import DamagedBatches
from trainer.run.batch_files.packed_batches import BatchLayout, BatchPacker, unpack_batch
from trainer.run.reading.batches import Batch
from transforms.arrays import Array
from transforms.errors import DataError, StorageError
from warehouse.files.batch_files.folder import UnfinishedBatches
from warehouse.files.batch_files.origin import BatchOrigin, read_origin

_MAGIC = b"HRBEND\x00\x01"
#: The number of batches, the checksum of the directory and the digest, the digest, the magic number.
_TAIL = struct.Struct("<QQ32s8s")
#: The fields of a row of the directory.
_ROW = 3
#: Linux's MADV_POPULATE_READ.
_POPULATE_READ = 22
_NEXT_STEP = "the file is removed, and its batches are made from their fragments again"


class BatchFileWriter:
    """Writes batches into a file that is visible once it is :meth:`published <publish>`."""

    def __init__(self, file: UnfinishedBatches, origin: BatchOrigin, digest: str, layout: BatchLayout) -> None:
        """Raises :class:`StorageError`, as all methods do."""
        self._file, self._digest, self._pack = file, bytes.fromhex(digest), BatchPacker(layout)
        self._directory: list[tuple[int, int, int]] = []
        file.write(origin.to_bytes())

    @property
    def size_bytes(self) -> int:
        """What is written."""
        return self._file.size_bytes

    def add(self, batch: Batch) -> None:
        """Add the next batch."""
        content = self._pack(batch)
        self._directory.append((self._file.size_bytes, len(content), _checksum(content)))
        self._file.write(content.data)

    def publish(self) -> None:
        """End the file, and make it durable and visible."""
        directory = np.array(self._directory, np.uint64).reshape(-1, _ROW).tobytes()
        checksum = _checksum_of_end(directory, self._digest)
        self._file.write(directory + _TAIL.pack(len(self._directory), checksum, self._digest, _MAGIC))
        self._file.publish()

    def discard(self) -> None:
        """Remove what was written."""
        self._file.discard()


def _checksum(content: Array) -> int:
    return xxhash.xxh3_64_intdigest(content.data)


def _checksum_of_end(directory: bytes, digest: bytes) -> int:
    return xxhash.xxh3_64_intdigest(directory + digest)


class BatchFile:
    """A file of batches, opened for reading. Use it in a ``with`` statement.

    Raises :class:`DamagedBatches` for other bytes than were written, here and where a batch is read, and :class:`StorageError`.
    """

    def __init__(self, path: Path, digest: str) -> None:
        self.path = path
        try:
            self._file = path.open("rb", buffering=0)
        except OSError as error:
            raise StorageError("a file of batches must be readable", where=str(path), value=str(error)) from error
        try:
            self.size_bytes = os.fstat(self._file.fileno()).st_size
            self._map = self._mapped()
            self._content = np.frombuffer(self._map, np.uint8)
            self._directory = self._read_directory(digest)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> BatchFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()  # the map ends with the last array over it

    def __len__(self) -> int:
        return len(self._directory)

    def batches(self, layout: BatchLayout, first: int = 0) -> Iterator[Batch]:
        """The batches from number ``first`` on, in order, with arrays of their own."""
        for begin, size, checksum in self._directory[first:]:
            self._read_in(begin, size)
            content = self._content[begin : begin + size]
            if _checksum(content) != checksum:
                raise self._damaged("have the checksum of its directory", f"batch at byte {begin:,}")
            try:
                yield unpack_batch(content, layout)
            except DamagedBatches as error:
                raise self._damaged(error.what, error.value) from error

    def _mapped(self) -> mmap.mmap:
        if self.size_bytes < _TAIL.size:
            raise self._damaged("have an end", f"{self.size_bytes:,} bytes")
        try:
            return mmap.mmap(self._file.fileno(), self.size_bytes, prot=mmap.PROT_READ)
        except (OSError, ValueError) as error:
            raise StorageError("a file of batches must be mapped", where=str(self.path), value=str(error)) from error

    def _read_directory(self, digest: str) -> list[tuple[int, int, int]]:
        try:
            _, begin = read_origin(self._file)
        except DataError as error:
            raise self._damaged(error.what, error.value) from error
        end = self.size_bytes - _TAIL.size
        self._read_in(end, _TAIL.size)
        count, checksum, found, magic = _TAIL.unpack(self._content[end:].tobytes())
        if magic != _MAGIC or count > end // (8 * _ROW):
            raise self._damaged("have an end", magic.hex())
        first = end - 8 * _ROW * count
        self._read_in(first, end - first)
        rows = self._content[first:end].tobytes()
        if _checksum_of_end(rows, found) != checksum or found.hex() != digest:
            raise self._damaged("have the directory and the digest of its name", found.hex())
        found_rows = np.frombuffer(rows, np.uint64).reshape(-1, _ROW).tolist()
        directory = [(start, size, own) for start, size, own in found_rows]
        for start, size, _ in directory:
            if start != begin or size % 8 or begin + size > first:
                raise self._damaged("have batches one after the other", f"{size:,} bytes from {start:,} on")
            begin += size
        if begin != first:
            raise self._damaged("have its directory after its batches", f"{first - begin:,} bytes between them")
        return directory

    def _read_in(self, begin: int, size: int) -> None:
        """Read pages into memory; raises where that fails, which a look at them would answer with a signal."""
        page = begin // mmap.PAGESIZE * mmap.PAGESIZE
        if self.size_bytes != (now := os.fstat(self._file.fileno()).st_size):
            raise self._damaged("keep its length", f"{now:,} bytes, were {self.size_bytes:,}")
        try:
            self._map.madvise(_POPULATE_READ, page, begin + size - page)
        except OSError as error:
            if error.errno != errno.EINVAL:  # an earlier Linux reads pages in when they are looked at
                raise self._damaged("be read from its disk", str(error)) from error

    def _damaged(self, rule: str, value: object) -> DamagedBatches:
        rule = rule.removeprefix("a batch of a file must ").removeprefix("a file of batches must ")
        return DamagedBatches(f"a file of batches must {rule}", where=str(self.path), value=value, next_step=_NEXT_STEP)
