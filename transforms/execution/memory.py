"""Keep freed memory for the next batch.

A plan frees and allocates arrays of the same sizes for each batch. By default glibc returns such large blocks to the
system each time, so that every page of the next one faults: up to half of a kernel's time on a virtual machine.
"""

from __future__ import annotations

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 2**31 - 1
#: The first value that the C library accepts is set: the limit depends on its version.
_LARGEST_BYTES = (2**30, 2**25)


def keep_freed_memory() -> bool:
    """Make the C library keep freed memory of this process; returns whether it does.

    For processes that compute or train. Only glibc has the setting. Idempotent; the peak of memory is unchanged.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    larger = any(libc.mallopt(_M_MMAP_THRESHOLD, size) for size in _LARGEST_BYTES)
    return larger and bool(libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))
