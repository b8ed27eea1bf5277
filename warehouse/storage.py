"""Bytes under names, over :mod:`pyarrow.fs`: a local folder or an object store.

A file appears whole or not at all. Locally it is written beside its place under a hidden temporary name, synced,
renamed, and the folder synced; on an object store a write becomes visible when it is closed.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa
import pyarrow.fs as pafs

from transforms.errors import DataError, StorageError

_TEMPORARY = ".tmp"
Writer = Callable[[IO[bytes]], None]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as a listing shows it: full path, size in bytes, modification time in nanoseconds since the epoch."""

    path: str
    size_bytes: int
    mtime_ns: int


class Storage:
    """Files under ``home``. A relative path is taken from ``home``; an absolute path or a URI is used as it is."""

    def __init__(self, home: str) -> None:
        self.home = home if "://" in home else os.path.abspath(home)

    def locate(self, path: str) -> tuple[pafs.FileSystem, str]:
        """The file system and the path in it. Raises :class:`StorageError` for a scheme that nothing serves."""
        full = path if "://" in path or os.path.isabs(path) else f"{self.home.rstrip('/')}/{path}"
        if "://" not in full:
            return pafs.LocalFileSystem(), full
        try:
            found: tuple[pafs.FileSystem, str] = pafs.FileSystem.from_uri(full)
        except (OSError, pa.ArrowException) as error:
            raise StorageError("no file system serves this location", value=full, allowed=str(error)) from error
        return found

    def read_bytes(self, path: str) -> bytes:
        """The whole file. Raises :class:`DataError` when it is missing, :class:`StorageError` when it cannot be read."""
        with self.open_input(path) as file, _explained(path, "read"):
            content: bytes = file.read()
            return content

    def open_input(self, path: str) -> Any:
        """The file opened for random reads (a ``pyarrow.NativeFile``). Errors as for :meth:`read_bytes`."""
        system, full = self.locate(path)
        with _explained(full, "read"):
            return system.open_input_file(full)

    def exists(self, path: str) -> bool:
        """Whether a file of this name is there, whole."""
        system, full = self.locate(path)
        with _explained(full, "look for"):
            return bool(system.get_file_info(full).type == pafs.FileType.File)

    def list(self, path: str, *, temporaries: bool = False) -> tuple[StoredFile, ...]:
        """Every file under ``path``, at any depth, by path; an absent folder is empty.

        Unfinished writes are left out, or, with ``temporaries``, are all that is listed.
        """
        system, full = self.locate(path)
        with _explained(full, "list"):
            infos = system.get_file_info(pafs.FileSelector(full, allow_not_found=True, recursive=True))
        files = (info for info in infos if info.type == pafs.FileType.File and _unfinished(info.path) == temporaries)
        listed = (StoredFile(_respelled(info.path, path), info.size, info.mtime_ns or 0) for info in files)
        return tuple(sorted(listed, key=lambda file: file.path))

    def folders(self, path: str) -> tuple[str, ...]:
        """Every folder under ``path``, at any depth, by path."""
        system, full = self.locate(path)
        with _explained(full, "list"):
            infos = system.get_file_info(pafs.FileSelector(full, allow_not_found=True, recursive=True))
        return tuple(sorted(_respelled(info.path, path) for info in infos if info.type == pafs.FileType.Directory))

    def folder_exists(self, path: str) -> bool:
        """Whether there is a folder of this name."""
        system, full = self.locate(self.absolute(path))
        with _explained(full, "look for"):
            return bool(system.get_file_info(full).type == pafs.FileType.Directory)

    @staticmethod
    def absolute(path: str) -> str:
        """A path given by a person, from the working folder; URIs are absolute already."""
        return path if "://" in path else os.path.abspath(path)

    def delete(self, path: str) -> bool:
        """Remove the file; False if it was not there."""
        system, full = self.locate(path)
        try:
            with _explained(full, "delete"):
                system.delete_file(full)
        except DataError:
            return False
        return True

    def write_atomic(self, path: str, content: bytes | Writer) -> int:
        """Publish a file: all of it, or nothing. Replaces a file of the same name. Returns its size in bytes.

        ``content`` is the bytes, or a function that writes them to the file it is given. Raises
        :class:`StorageError`, with the path, when the disk is full or refuses; nothing is left behind then.
        """
        system, full = self.locate(path)
        write = content if callable(content) else _writer_of(content)
        if isinstance(system, pafs.LocalFileSystem):
            return _publish_local(full, write)
        buffer = io.BytesIO()
        write(buffer)
        with _explained(full, "write"), system.open_output_stream(full) as stream:
            stream.write(buffer.getbuffer())
        return buffer.tell()


def _writer_of(content: bytes) -> Writer:
    def write(file: IO[bytes]) -> None:
        file.write(content)

    return write


def _respelled(found: str, asked: str) -> str:
    """A path that a file system reported, with the scheme of the location that was asked for."""
    scheme, separator, _ = asked.rpartition("://")
    return f"{scheme}{separator}{found}"


def _unfinished(path: str) -> bool:
    name = path.rsplit("/", 1)[-1]
    return name.startswith(".") and name.endswith(_TEMPORARY)


def _publish_local(full: str, write: Writer) -> int:
    folder, name = os.path.split(full)
    temporary = os.path.join(
        folder, f".{name}.{os.getpid()}-{threading.get_ident()}-{uuid.uuid4().hex[:8]}{_TEMPORARY}"
    )
    with _explained(full, "write"):
        _make_folders(folder)
        try:
            with open(temporary, "xb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
                size_bytes = os.fstat(file.fileno()).st_size
            os.replace(temporary, full)
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


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def _explained(path: str, verb: str) -> Iterator[None]:
    """Turn what the file system says into an error of ours that names the path."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"cannot {verb} a file that is not there", where=path,
                        next_step="restore it, or register the table again if it was moved") from error  # fmt: skip
    except OSError as error:
        raise storage_error(error, path, verb) from error


def storage_error(error: OSError, path: str, verb: str) -> StorageError:
    """What the operating system refused, with the path; a full disk says so."""
    if error.errno in _FULL or "No space left" in str(error):
        return StorageError(f"cannot {verb}: the disk is full", where=path, value=str(error),
                            next_step="free space or move the warehouse; nothing was left half written")  # fmt: skip
    return StorageError(f"cannot {verb} the file", where=path, value=str(error),
                        next_step="check the path, its permissions and the device")  # fmt: skip
