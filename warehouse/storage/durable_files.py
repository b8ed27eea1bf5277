"""Local files and folders that survive a power failure once the call returns. Errors are :class:`OSError`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
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


def sync_paths(paths: Iterable[AnyPath]) -> None:
    """:func:`sync_path` of each; several at a time, which the disk can commit together."""
    every = list(paths)
    if len(every) <= 1:
        for path in every:
            sync_path(path)
        return
    with ThreadPoolExecutor(min(len(every), _SYNCED_AT_ONCE)) as syncing:
        list(syncing.map(sync_path, every))


def sync_folder(folder: Path) -> None:
    """Make a folder with all that it holds durable."""
    paths = list(folder.rglob("*"))
    sync_paths(path for path in paths if not path.is_dir())
    sync_paths([*(path for path in paths if path.is_dir()), folder])


def make_folders(*folders: AnyPath) -> None:
    """Create folders and their parents, and sync every parent that gained an entry."""
    gained = dict.fromkeys(parent for folder in folders for parent in _make_folder(os.fspath(folder)))
    sync_paths(gained)


def _make_folder(folder: str) -> list[str]:
    """Create a folder and its parents; return the parents that gained an entry."""
    missing = []
    path = folder
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for new in reversed(missing):
        try:
            os.mkdir(new)
        except FileExistsError:
            if not os.path.isdir(new):
                raise
    return [os.path.dirname(new) or "." for new in reversed(missing)]


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
