"""Local files and folders that survive a power failure once the call returns. Errors are :class:`OSError`."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

AnyPath = str | Path

_SYNCED_AT_ONCE = 16


def sync_path(path: AnyPath) -> None:
    """Flush a file's content, or a folder's entries, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make a folder with all that it holds durable; several files at a time, which the disk can commit together."""
    paths = list(folder.rglob("*"))
    with ThreadPoolExecutor(_SYNCED_AT_ONCE) as syncing:
        list(syncing.map(sync_path, [path for path in paths if not path.is_dir()]))
    for path in (*(path for path in paths if path.is_dir()), folder):
        sync_path(path)


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
    """Write a file that does not exist yet and return its size in bytes.

    ``synced``: whether the content is on disk on return; the name is durable once the folder is synced. ``permissions``
    are reduced by the umask. An error leaves a partial file.
    """
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, permissions)) as file:
        write(file)
        file.flush()
        if synced:
            os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size
