"""Put a folder in the place of another at once, which two renames cannot: between them there would be none."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

from transforms.errors import StorageError
from warehouse.storage.durable_files import sync_path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.EXDEV, errno.EOPNOTSUPP, errno.ENOTSUP})


def exchange_folders(one: Path, other: Path) -> None:
    """Exchange the names of two folders of one parent, durably, by one operation of the file system.

    Raises :class:`StorageError` where the system or the file system has no such operation, and :class:`OSError`; nothing is changed then.
    """
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # Linux with glibc from 2.28 on, or musl
    if function is None:
        raise _unsupported(other)
    names = os.fsencode(one), os.fsencode(other)
    if function(_AT_FDCWD, names[0], _AT_FDCWD, names[1], ctypes.c_uint(_RENAME_EXCHANGE)) != 0:
        code = ctypes.get_errno()
        if code in _UNSUPPORTED:
            raise _unsupported(other)
        raise OSError(code, os.strerror(code), str(other))
    sync_path(other.parent)


def _unsupported(place: Path) -> StorageError:
    return StorageError("a file system must exchange two folders at once, this one does not", where=str(place),
                        next_step="give --output with a new folder")  # fmt: skip
