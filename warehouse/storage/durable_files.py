"""Files and folders of a local disk that survive a loss of power once the call returns. Errors are :class:`OSError`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

AnyPath = str | Path


def sync_path(path: AnyPath) -> None:
    """Wait until the disk has a file's content, or a folder's names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(folder: AnyPath) -> None:
    """Create a folder and its parents, and sync every parent that gained an entry."""
    missing = []
    path = os.fspath(folder)
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for new in reversed(missing):
        try:
            os.mkdir(new)
        except FileExistsError:
            if not os.path.isdir(new):
                raise
        sync_path(os.path.dirname(new) or ".")


def write_new_file(
    path: AnyPath, write: Callable[[IO[bytes]], object], *, synced: bool = True, permissions: int = 0o666
) -> int:
    """Write a file where none is; its size in bytes. Its name is durable once its folder is synced too.

    ``synced``: whether its content has reached the disk when this returns. ``permissions``: of the file, less what the
    umask takes. An error leaves a part of the file.
    """
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, permissions)) as file:
        write(file)
        file.flush()
        if synced:
            os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size
