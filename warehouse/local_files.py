"""Files of a local disk.

A file appears whole or not at all: it is written beside its place under a hidden temporary name, synced, renamed (or
linked, where it must not replace another), and the folder synced.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow.fs as pafs

from transforms.errors import DataError
from warehouse.storage_errors import explained
from warehouse.stored_file import StoredFile, Writer, temporary_name

_SYSTEM = pafs.LocalFileSystem()


class LocalFiles:
    """Files by absolute path."""

    def read_bytes(self, path: str) -> bytes:
        """The whole file."""
        with self.open_input(path) as file, explained(path, "read"):
            content: bytes = file.read()
            return content

    def open_input(self, path: str) -> Any:
        """The file, opened for random reads."""
        with explained(path, "read"):
            return _SYSTEM.open_input_file(path)

    def exists(self, path: str) -> bool:
        """Whether a file is there."""
        return bool(self._type(path) == pafs.FileType.File)

    def folder_exists(self, path: str) -> bool:
        """Whether a folder is there."""
        return bool(self._type(path) == pafs.FileType.Directory)

    def _type(self, path: str) -> pafs.FileType:
        with explained(path, "look for"):
            return _SYSTEM.get_file_info(path).type

    def files(self, folder: str) -> Iterator[StoredFile]:
        """Every file under a folder, at any depth."""
        for info in self._infos(folder):
            if info.type == pafs.FileType.File:
                yield StoredFile(info.path, info.size, info.mtime_ns or 0)

    def folders(self, folder: str) -> Iterator[str]:
        """Every folder under a folder, at any depth."""
        return (info.path for info in self._infos(folder) if info.type == pafs.FileType.Directory)

    def _infos(self, folder: str) -> list[pafs.FileInfo]:
        with explained(folder, "list"):
            found: list[pafs.FileInfo] = _SYSTEM.get_file_info(
                pafs.FileSelector(folder, allow_not_found=True, recursive=True)
            )
            return found

    def delete(self, path: str) -> bool:
        """Remove a file; False if it was not there."""
        try:
            with explained(path, "delete"):
                _SYSTEM.delete_file(path)
        except DataError:
            return False
        return True

    def publish(self, path: str, write: Writer) -> int:
        """Put a file in its place, over another one if need be; its size in bytes."""
        return _publish(path, write, os.replace)

    def create(self, path: str, write: Writer) -> bool:
        """Put a file in its place unless one is there."""
        try:
            with explained(path, "look for"):
                if os.path.lexists(path):
                    return False
            _publish(path, write, _link)
        except _TakenMeanwhile:
            return False
        return True


class _TakenMeanwhile(Exception):
    pass


def _link(temporary: str, path: str) -> None:
    """Unlike a rename, a link fails where a file is."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise _TakenMeanwhile from None
    os.unlink(temporary)


def _publish(path: str, write: Writer, put: Callable[[str, str], None]) -> int:
    folder, name = os.path.split(path)
    unique = f"{os.getpid()}-{threading.get_ident()}-{uuid.uuid4().hex[:8]}"
    temporary = os.path.join(folder, temporary_name(name, unique))
    with explained(path, "write"):
        _make_folders(folder)
        try:
            with open(temporary, "xb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
                size_bytes = os.fstat(file.fileno()).st_size
            put(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        _sync_folder(folder)
    return size_bytes


def _make_folders(folder: str) -> None:
    """Create ``folder`` and sync every parent that gained an entry."""
    missing = []
    while folder and not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for new in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(new)
        _sync_folder(os.path.dirname(new))


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
