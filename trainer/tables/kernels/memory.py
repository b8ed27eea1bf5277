"""Memory of tables: zeros, in pages whose size depends on the table's.

It is the process's own, which the system commits as rows are touched, or shared memory in files, which outlives the process. Files have space
for every byte before it is written: a process that writes to a page for which a full folder has no space is killed by SIGBUS.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from trainer.errors import MemoryFull
from transforms.arrays import Array

#: The float32 values of a cache line.
LINE_FLOATS = 16
#: The largest table in huge pages. They make random rows faster, but one row of a table commits 2 MB of it.
_HUGE_PAGES_BYTES = 64 << 20
#: Arrays that grow are reserved in steps of this size, where the folder has space for it.
_STEP_BYTES = 4 << 20
#: The errors of a file system that has no space for a file, or allows none of this size.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class TableMemory(Protocol):
    """Where the arrays of an engine's tables are."""

    def array(
        self, name: str, starts: Array, sizes: Array, dtype: type, *, is_fresh: bool, is_reserved: bool = True, in_place: bool = False
    ) -> Array:  # fmt: skip
        """An array for tables that begin at ``starts`` and have ``sizes`` items, together all of it; it begins a page.

        Args:
            name: of the array.
            starts: where each table begins, in items.
            sizes: of each table, in items.
            dtype: of the items.
            is_fresh: zeros, in place of what the memory has under this name.
            is_reserved: all of it may be written. Else :meth:`reserve` makes space for its first bytes before they are written.
            in_place: a fresh array may be the one before, whose values become zeros: the memory need not have space for both.

        Raises MemoryError where the system refuses memory of this size, and :class:`~trainer.errors.MemoryFull` for a folder without space.
        """

    def reserve(self, name: str, size_bytes: int) -> None:
        """Make space for the first bytes of an array. Raises :class:`~trainer.errors.MemoryFull`; nothing is changed then."""


class PrivateMemory:
    """Memory of the process, which ends with it: all arrays are fresh, and the system commits what is written."""

    def array(
        self, name: str, starts: Array, sizes: Array, dtype: type, *, is_fresh: bool, is_reserved: bool = True, in_place: bool = False
    ) -> Array:  # fmt: skip
        """See :class:`TableMemory`."""
        return anonymous_array(starts, sizes, dtype)[0]

    def reserve(self, name: str, size_bytes: int) -> None:
        """See :class:`TableMemory`: the system commits what is written."""


class SharedMemory:
    """Arrays in files of ``folder``, such as one in ``/dev/shm``: a process that starts again finds the values of the last one.

    A fresh array is a new file, so that arrays of the old one stay as they are until they are dropped, unless it may take its place.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reserved: dict[str, int] = {}

    def array(
        self, name: str, starts: Array, sizes: Array, dtype: type, *, is_fresh: bool, is_reserved: bool = True, in_place: bool = False
    ) -> Array:  # fmt: skip
        """See :class:`TableMemory`; an array of another size than the file's is fresh."""
        size_bytes = int(sizes.sum()) * np.dtype(dtype).itemsize
        if not size_bytes:
            return np.zeros(0, dtype)
        path = self._folder / name
        is_kept = path.exists() and path.stat().st_size == size_bytes and (in_place or not is_fresh)
        try:
            memory = self._map(path, size_bytes, is_kept=is_kept, is_reserved=is_reserved)
        except (OSError, OverflowError, ValueError) as error:
            if not is_kept:
                path.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno in _NO_ROOM:
                raise no_room(self._folder, f"array {name}", size_bytes) from None
            raise MemoryError(str(error)) from error
        found = _in_pages(memory, starts, sizes, dtype)
        if is_fresh and is_kept:
            found.view(np.uint8)[:] = 0
        return found

    def _map(self, path: Path, size_bytes: int, *, is_kept: bool, is_reserved: bool) -> mmap.mmap:
        """The memory of a file; of a new one unless it is kept."""
        self._reserved.pop(path.name, None)
        if not is_kept:
            path.unlink(missing_ok=True)
        flags = os.O_RDWR if is_kept else os.O_RDWR | os.O_CREAT | os.O_EXCL
        with open(os.open(path, flags, 0o600), "r+b") as file:
            if not is_kept:
                os.ftruncate(file.fileno(), size_bytes)
            if is_reserved:
                _allocate(file.fileno(), size_bytes)
            return mmap.mmap(file.fileno(), size_bytes, flags=mmap.MAP_SHARED)

    def reserve(self, name: str, size_bytes: int) -> None:
        """See :class:`TableMemory`."""
        if size_bytes <= self._reserved.get(name, 0):
            return
        path = self._folder / name
        with open(path, "r+b") as file:
            most_bytes = os.fstat(file.fileno()).st_size
            steps_bytes = min(-(-size_bytes // _STEP_BYTES) * _STEP_BYTES, most_bytes)
            for reserved_bytes in (steps_bytes, size_bytes):
                try:
                    _allocate(file.fileno(), reserved_bytes)
                except OSError as error:
                    if error.errno not in _NO_ROOM:
                        raise
                else:
                    self._reserved[name] = reserved_bytes
                    return
        raise no_room(self._folder, f"array {name}", size_bytes)


def anonymous_array(starts: Array, sizes: Array, dtype: type, flags: int = 0) -> tuple[Array, mmap.mmap | None]:
    """Zeros in memory of the process for tables that begin at ``starts``, and their memory, None for no bytes. Raises MemoryError.

    ``flags``: of the mapping, beside those of such memory.
    """
    size_bytes = int(sizes.sum()) * np.dtype(dtype).itemsize
    if not size_bytes:
        return np.zeros(0, dtype), None
    try:
        memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags)
    except (OSError, OverflowError) as error:
        raise MemoryError(str(error)) from error
    return _in_pages(memory, starts, sizes, dtype), memory


def _allocate(descriptor: int, size_bytes: int) -> None:
    """Let a file have space for its first bytes, which stay as they are. Raises OSError."""
    if os.fstat(descriptor).st_blocks * 512 >= size_bytes:
        return
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size_bytes)
        return
    for at in range(0, size_bytes, _STEP_BYTES):  # macOS
        os.pwrite(descriptor, os.pread(descriptor, min(_STEP_BYTES, size_bytes - at), at), at)


def free_bytes(folder: Path) -> int | None:
    """The bytes that files of a folder may take yet; None if its file system has no limit."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize if found.f_blocks else None


def no_room(folder: Path, what: str, needed_bytes: int) -> MemoryFull:
    """The error for a memory folder without space for something."""
    return MemoryFull("the memory folder of a parameter server must have space for its tables", where=f"{folder}: {what}",
                      value=f"{needed_bytes:,} bytes needed, {free_bytes(folder) or 0:,} bytes free",
                      allowed="at least as many free bytes as are needed",
                      next_step="enlarge the folder (mount -o remount,size=SIZE FOLDER; docker run --shm-size SIZE), give headrace ps serve "
                      "another --memory FOLDER, use more servers, or make the tables smaller: fewer buckets, a smaller dim")  # fmt: skip


def _in_pages(memory: mmap.mmap, starts: Array, sizes: Array, dtype: type) -> Array:
    """The array of all bytes of ``memory``, with huge pages for small tables."""
    item_bytes = np.dtype(dtype).itemsize
    if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for first, stop in small_tables(starts * item_bytes, sizes * item_bytes):
            page = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE
            if page < stop:
                memory.madvise(mmap.MADV_HUGEPAGE, page, stop - page)
    return np.frombuffer(memory, dtype)


def small_tables(starts: Array, sizes: Array) -> Iterator[tuple[int, int]]:
    """The ranges of tables that have huge pages, in bytes, ascending; neighbours are one range."""
    first, stop = 0, 0
    for t in np.argsort(starts, kind="stable"):
        if sizes[t] > _HUGE_PAGES_BYTES:
            continue
        if starts[t] != stop:
            if stop > first:
                yield first, stop
            first = int(starts[t])
        stop = int(starts[t] + sizes[t])
    if stop > first:
        yield first, stop


def aligned(memory: Array, size: int) -> Array:
    """``size`` values of a flat float32 array, which has 16 more, from the beginning of a cache line on: no vector spans two."""
    first = first_aligned(memory)
    return memory[first : first + size]


def first_aligned(memory: Array) -> int:
    """The first value of a flat float32 array that begins a cache line."""
    return int(-memory.ctypes.data // memory.itemsize % LINE_FLOATS)
