"""Keeping freed memory for the next batch.

A plan frees and allocates arrays of the same sizes batch after batch. By default glibc hands such large blocks back to
the system each time, and every page of the next one is a fault: on a virtual machine up to half of a kernel's time.
"""

from __future__ import annotations

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 2**31 - 1
#: The first that the C library accepts: what it allows depends on its version.
_LARGEST_BYTES = (2**30, 2**25)


def keep_freed_memory() -> bool:
    """Tell the C library to keep what this process frees. For processes that compute, such as workers; returns whether it did.

    Only glibc has the setting; elsewhere nothing happens. Harmless to repeat. The peak of memory stays what it is.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    larger = any(libc.mallopt(_M_MMAP_THRESHOLD, size) for size in _LARGEST_BYTES)
    return larger and bool(libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))
