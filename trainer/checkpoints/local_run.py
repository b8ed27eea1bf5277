"""The checkpoints of a run in a local folder.

A folder appears by one rename, after all of its files are synced, and disappears by one rename before it is deleted.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import IO, TypeVar

from trainer.checkpoints.array_files import NewFiles
from trainer.checkpoints.run_files import CHUNK_BYTES, Entries
from trainer.errors import TornCheckpoint
from transforms.errors import StorageError
from warehouse.storage.durable_files import make_folders, sync_folder, sync_path, write_new_file

T = TypeVar("T")

#: The beginning of the names of unfinished folders.
TEMPORARY = ".tmp-"
#: Errors of a file that is absent, of another kind or damaged on its disk.
_TORN_ERRNOS = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EIO, errno.ENXIO})


#: A file of this size is synced when it is written, since the disk would rest until the end.
_LARGE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class LocalFolder(NewFiles):
    """A folder that is being written.

    Attributes:
        path: of the folder.
        syncs_later: smaller files are synced with the whole folder: one by one, hundreds of them wait for the disk each.
    """

    path: Path
    syncs_later: bool = False

    def write(self, name: str, content: Callable[[IO[bytes]], object]) -> int:
        """Write a file and return its size in bytes. It is durable, unless it is synced later."""
        place = self.path / name
        size_bytes = write_new_file(place, content, synced=not self.syncs_later, permissions=0o644)
        if self.syncs_later and size_bytes >= _LARGE_BYTES:
            sync_path(place)
        return size_bytes


@dataclass(frozen=True, slots=True)
class LocalRun:
    """The checkpoints in the folder ``root``; see :class:`trainer.checkpoints.run_files.RunFiles`. Writing raises :class:`OSError`."""

    root: Path

    @property
    def is_remote(self) -> bool:
        """False."""
        return False

    def place(self, path: str) -> str:
        """A path as errors and screens show it."""
        return str(self.root / path)

    def names(self) -> list[str]:
        """The names in the folder of checkpoints, ascending, without hidden ones."""
        return sorted(path.name for path in self.root.glob("*") if not path.name.startswith("."))

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder, ascending; none if it is absent."""
        return sorted(path.name for path in (self.root / folder).glob("*") if path.is_dir())

    def entries(self, folder: str) -> Entries:
        """What is directly in a folder; nothing if it is absent."""
        return Entries(tuple(self.folders(folder)), self.sizes(folder))

    def read_small(self, path: str, most_bytes: int) -> bytes:
        """The bytes of a small file; see :func:`read_file`."""
        place = self.root / path
        with _translated_read_errors(place), _opened(place, None) as file:
            if os.fstat(file.fileno()).st_size > most_bytes:
                raise not_small(str(place), most_bytes)
            return file.readall()

    def read(self, path: str, *, expected_bytes: int | None = None) -> bytes:
        """A file's bytes; see :func:`read_file`."""
        return read_file(self.root / path, expected_bytes=expected_bytes)

    def chunks(self, path: str, expected_bytes: int, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """A file's bytes one after another; see :func:`read_file`."""
        return read_chunks(self.root / path, expected_bytes, chunk_bytes)

    def sizes(self, folder: str) -> dict[str, int]:
        """The names and sizes of the files of a folder; none if it is absent."""
        found = {}
        for path in (self.root / folder).glob("*"):
            try:
                status = path.lstat()
            except FileNotFoundError:  # its writer has renamed or removed it since it was listed
                continue
            if stat.S_ISREG(status.st_mode):
                found[path.name] = status.st_size
        return found

    def written_secs(self, path: str) -> float:
        """When a file was written, in epoch seconds; 0 if it is absent."""
        try:
            return (self.root / path).stat().st_mtime
        except OSError:
            return 0.0

    def write_folder(self, folder: str, write: Callable[[NewFiles], T]) -> T:
        """Write a folder under a hidden name, then rename it. A folder of this name is replaced."""
        place = self.root / folder
        temporary = place.with_name(f"{TEMPORARY}{place.name}-{os.getpid()}")
        make_folders(place.parent)
        _clear(temporary)
        try:
            temporary.mkdir()
            written = write(LocalFolder(temporary, syncs_later=True))
            sync_folder(temporary)
            _rename(temporary, place)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return written

    def create(self, folder: str, name: str, data: bytes) -> bool:
        """Create a folder with one file; False if it exists."""
        place = self.root / folder
        temporary = place.with_name(f"{TEMPORARY}{place.name}-{os.getpid()}")
        make_folders(place.parent)
        _clear(temporary)
        try:
            temporary.mkdir()
            LocalFolder(temporary).write(name, lambda file: file.write(data))
            sync_path(temporary)
            try:
                os.rename(temporary, place)  # fails for a folder that holds a file, unlike for an empty one
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
                shutil.rmtree(temporary)
                return False
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_path(place.parent)
        return True

    def settle(self, folder: str) -> None:
        """Sync the entry of a folder."""
        sync_path((self.root / folder).parent)

    def put(self, path: str, data: bytes) -> None:
        """Write or replace a file atomically."""
        place = self.root / path
        temporary = place.with_name(f"{TEMPORARY}{place.name}-{os.getpid()}")
        _clear(temporary)
        LocalFolder(temporary.parent).write(temporary.name, lambda file: file.write(data))
        os.replace(temporary, place)
        sync_path(place.parent)

    def remove(self, folder: str) -> None:
        """Remove a folder or a file: renamed first, so that one that is partly deleted is never found under its name."""
        place = self.root / folder
        doomed = place.with_name(f"{TEMPORARY}old-{place.name}-{os.getpid()}")
        try:
            os.rename(place, doomed)
        except FileNotFoundError:
            return
        delete(doomed)

    def remove_unfinished(self, folder: str) -> None:
        """Remove what killed processes have left in a folder."""
        for path in (self.root / folder).glob(f"{TEMPORARY}*"):
            delete(path)


def _clear(temporary: Path) -> None:
    """Delete what a killed process of the same number has left."""
    if temporary.exists():
        delete(temporary)


def _rename(temporary: Path, place: Path) -> None:
    """Rename into place, replacing what is there."""
    if place.exists() or place.is_symlink():
        replaced = place.with_name(f"{TEMPORARY}replaced-{place.name}-{os.getpid()}")
        os.rename(place, replaced)
        os.rename(temporary, place)
        delete(replaced)
    else:
        os.rename(temporary, place)
    sync_path(place.parent)


def delete(path: Path) -> None:
    """Delete a folder with its content, a file, or a symbolic link without its target."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def read_file(path: Path, *, expected_bytes: int | None = None) -> bytes:
    """A file's bytes. A file of another size than ``expected_bytes`` is not read.

    Raises :class:`TornCheckpoint` for a file that is absent, damaged or of another kind, :class:`StorageError` if it cannot be
    read.
    """
    with _translated_read_errors(path), _opened(path, expected_bytes) as file:
        return file.readall()


def read_chunks(path: Path, expected_bytes: int, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The bytes of :func:`read_file` one after another."""
    with _translated_read_errors(path), _opened(path, expected_bytes) as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(
                file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL
            )  # more is read ahead: several files take turns
        while chunk := file.read(chunk_bytes):
            yield chunk


@contextmanager
def _opened(path: Path, expected_bytes: int | None) -> Iterator[FileIO]:
    with open(path, "rb", buffering=0, opener=_open_now) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise TornCheckpoint("a checkpoint must consist of regular files", where=str(path))
        if expected_bytes is not None and found.st_size != expected_bytes:
            raise wrong_size(str(path), found.st_size, expected_bytes)
        yield file


@contextmanager
def _translated_read_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise missing(str(path)) from error
    except OSError as error:
        if error.errno in _TORN_ERRNOS:
            raise TornCheckpoint("a file cannot be read", where=str(path), value=error.strerror) from error
        raise StorageError("a checkpoint cannot be read", where=str(path), value=error.strerror,
                           next_step="make the file readable, then run the same command again") from error  # fmt: skip


def _open_now(path: str, flags: int) -> int:
    """Open a file without blocking on a named pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def missing(where: str) -> TornCheckpoint:
    """The error for a file that is absent."""
    return TornCheckpoint("a file of a checkpoint must exist", where=where)


def not_small(where: str, most_bytes: int) -> TornCheckpoint:
    """The error for a file of more bytes than it can have."""
    return TornCheckpoint("a file must have a possible size, got more bytes", where=where, allowed=f"at most {most_bytes:,} bytes")  # fmt: skip


def wrong_size(where: str, found: int, expected: int) -> TornCheckpoint:
    """The error for a file of another size."""
    return TornCheckpoint("a file must have the size that the manifest records, got another size",
                          where=where, value=found, allowed=str(expected))  # fmt: skip
