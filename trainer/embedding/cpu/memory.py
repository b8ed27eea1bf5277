"""Memory of tables: zeros that the system commits as rows are touched, in pages whose size depends on the table's."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

#: The float32 values of a cache line.
LINE_FLOATS = 16
#: The largest table in huge pages. They make random rows faster, but one row of a table commits 2 MB of it.
_HUGE_PAGES_BYTES = 64 << 20


def table_zeros(starts: Array, sizes: Array, dtype: type) -> Array:
    """Zeros for tables that begin at ``starts`` and have ``sizes`` items, together all of the array; it begins a page.

    Raises MemoryError where the system refuses memory of this size.
    """
    item_bytes, total = np.dtype(dtype).itemsize, int(sizes.sum())
    if not total:
        return np.zeros(0, dtype)
    try:
        memory = mmap.mmap(-1, total * item_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(str(error)) from error
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
