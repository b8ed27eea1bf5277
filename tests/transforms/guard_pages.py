"""Buffers at the border of a protected page: an access beyond them is a segmentation fault."""

from __future__ import annotations

import ctypes
import mmap

import pyarrow as pa

_PAGE = mmap.PAGESIZE
_NONE, _READ = 0, 1
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def guarded(content: bytes, *, at_end: bool) -> pa.Buffer:
    """``content``, read-only, right before a page that cannot be touched, or (not ``at_end``) right behind one."""
    held = max(1, -(-len(content) // _PAGE)) * _PAGE
    region = mmap.mmap(-1, held + 2 * _PAGE)
    begin = _PAGE + (held - len(content) if at_end else 0)
    region[begin : begin + len(content)] = content
    pinned = ctypes.c_char.from_buffer(region)
    address = ctypes.addressof(pinned)
    _protect(address, _PAGE, _NONE)
    _protect(address + _PAGE, held, _READ)
    _protect(address + _PAGE + held, _PAGE, _NONE)
    return pa.foreign_buffer(address + begin, len(content), base=pinned)


def _protect(address: int, size: int, protection: int) -> None:
    if _libc.mprotect(address, size, protection):
        raise OSError(ctypes.get_errno(), "mprotect")
