"""Memory of tables: zeros that the system commits as rows are touched, in pages whose size depends on the table's.

It is the process's own, or shared memory in files, which outlives the process.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

#: The float32 values of a cache line.
LINE_FLOATS = 16
#: The largest table in huge pages. They make random rows faster, but one row of a table commits 2 MB of it.
_HUGE_PAGES_BYTES = 64 << 20


class TableMemory(Protocol):
    """Where the arrays of an engine's tables are."""

    def array(self, name: str, starts: Array, sizes: Array, dtype: type, *, is_fresh: bool) -> Array:
        """An array for tables that begin at ``starts`` and have ``sizes`` items, together all of it; it begins a page.

        ``is_fresh``: zeros, in place of what the memory has under this name. Raises MemoryError where the system refuses memory of this size.
        """


class PrivateMemory:
    """Memory of the process, which ends with it: all arrays are fresh."""

    def array(self, name: str, starts: Array, sizes: Array, dtype: type, *, is_fresh: bool) -> Array:
        """See :class:`TableMemory`."""
        size_bytes = int(sizes.sum()) * np.dtype(dtype).itemsize
        if not size_bytes:
            return np.zeros(0, dtype)
        try:
            memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError) as error:
            raise MemoryError(str(error)) from error
        return _in_pages(memory, starts, sizes, dtype)


class SharedMemory:
    """Arrays in files of ``folder``, such as one in ``/dev/shm``: a process that starts again finds the values of the last one.

    A fresh array is a new file, so that arrays of the old one stay as they are until they are dropped.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def array(self, name: str, starts: Array, sizes: Array, dtype: type, *, is_fresh: bool) -> Array:
        """See :class:`TableMemory`; an array of another size than the file's is fresh."""
        size_bytes = int(sizes.sum()) * np.dtype(dtype).itemsize
        if not size_bytes:
            return np.zeros(0, dtype)
        path = self._folder / name
        try:
            if is_fresh or not path.exists() or path.stat().st_size != size_bytes:
                path.unlink(missing_ok=True)
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                os.ftruncate(descriptor, size_bytes)
            else:
                descriptor = os.open(path, os.O_RDWR)
            with open(descriptor, "r+b") as file:
                memory = mmap.mmap(file.fileno(), size_bytes, flags=mmap.MAP_SHARED)
        except (OSError, OverflowError, ValueError) as error:
            raise MemoryError(str(error)) from error
        return _in_pages(memory, starts, sizes, dtype)


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
    first = -memory.ctypes.data // memory.itemsize % LINE_FLOATS
    return memory[first : first + size]
