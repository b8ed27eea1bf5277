"""The folder of a home with files of batches: found by the digest of what is in them, written whole or not at all, in a limit of bytes.

A file is written under a hidden name, synced and renamed, so a process that is killed leaves an unfinished write, which ``headrace gc``
deletes. Two processes that write the same file write the same bytes, and the later one takes the place of the other's. A file that is
removed while another process reads it stays readable there.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

from transforms.errors import StorageError
from warehouse.storage.durable_files import make_folders, sync_path
from warehouse.storage.errors import translated_os_errors
from warehouse.storage.layout import BATCH_SUFFIX, BATCHES
from warehouse.storage.stored_file import ListedFile, is_unfinished, temporary_name

#: The bytes that a writer may add before the folder is listed again.
_LISTED_EACH_BYTES = 64 << 20


def evictions(
    files: Iterable[ListedFile], needed_bytes: int, most_bytes: int, since_ns: int
) -> list[ListedFile] | None:
    """The files to remove so that others of ``needed_bytes`` fit beside the rest; None if that is impossible.

    Those that were not used since ``since_ns`` may go, the one first that was not used for the longest time; unfinished ones stay.
    """
    listed = list(files)
    over = sum(one.size_bytes for one in listed) + needed_bytes - most_bytes
    old = [one for one in listed if one.mtime_ns < since_ns and not is_unfinished(one.path)]
    found: list[ListedFile] = []
    for one in sorted(old, key=lambda one: (one.mtime_ns, one.path)):
        if over <= 0:
            break
        found.append(one)
        over -= one.size_bytes
    return found if over <= 0 else None


class BatchFolder:
    """The files of batches of a local home.

    Args:
        root: the home's folder.
        most_bytes: of all files together; 0: none are written.
        clock: seconds since the epoch; a file that was used after the folder was opened is not removed for another.
    """

    def __init__(self, root: str | Path, most_bytes: int, clock: Callable[[], float] = time.time) -> None:
        self._folder, self.most_bytes = Path(root) / BATCHES, most_bytes
        self._since_ns = int(clock() * 1e9)
        self._clock = clock

    def path(self, table: str, digest: str) -> Path:
        """Where the file of a table with this digest is, or would be."""
        return self._folder / table / f"{digest}.{BATCH_SUFFIX}"

    def find(self, table: str, digest: str) -> Path | None:
        """The file with this digest, from now on used; None if there is none."""
        path = self.path(table, digest)
        now = int(self._clock() * 1e9)
        try:
            os.utime(path, ns=(now, now))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError("a file of batches must be usable", where=str(path), value=str(error)) from error
        return path

    def remove(self, path: Path) -> None:
        """Remove a file; none is as good as removed."""
        with translated_os_errors(str(path), "delete"), contextlib.suppress(FileNotFoundError):
            path.unlink()

    def files(self) -> list[ListedFile]:
        """All files, unfinished ones too; those that disappear meanwhile are left out."""
        found = []
        for path in self._folder.glob("*/*") if self._folder.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                found.append(ListedFile(str(path), status.st_size, status.st_mtime_ns))
        return found

    def begin(self, table: str, digest: str) -> UnfinishedBatches:
        """Begin to write a file. Raises :class:`StorageError`."""
        return UnfinishedBatches(self, self.path(table, digest))

    def make_space(self, needed_bytes: int) -> bool:
        """Remove files that were not used lately, so that so many more bytes fit; whether they do."""
        gone = evictions(self.files(), needed_bytes, self.most_bytes, self._since_ns)
        for one in gone or ():
            self.remove(Path(one.path))
        return gone is not None


class UnfinishedBatches:
    """A file that is being written: :meth:`publish` makes it visible, :meth:`discard` removes it."""

    def __init__(self, folder: BatchFolder, path: Path) -> None:
        self._folder, self.path = folder, path
        unique = f"{os.getpid()}-{threading.get_ident()}-{uuid.uuid4().hex[:8]}"
        self._temporary = path.with_name(temporary_name(path.name, unique))
        self._granted_bytes = self.size_bytes = 0
        with translated_os_errors(str(path), "write"):
            make_folders(path.parent)
            self._file: IO[bytes] = self._temporary.open("xb")

    def write(self, content: bytes | memoryview) -> None:
        """Add bytes. Raises :class:`StorageError` if the folder or the disk has no space for them."""
        size = len(content)
        if self.size_bytes + size > self._granted_bytes:
            self._granted_bytes = self.size_bytes + self._grant(size)
        with translated_os_errors(str(self.path), "write"):
            self._file.write(content)
        self.size_bytes += size

    def _grant(self, size: int) -> int:
        """How many bytes may be written, ``size`` or more. Raises :class:`StorageError`."""
        with translated_os_errors(str(self.path), "write"):
            self._file.flush()  # a listing shows what is written
        for more in (max(size, _LISTED_EACH_BYTES), size):
            if self._folder.make_space(more):
                return more
        raise StorageError("files of batches must stay in their limit", where=str(self.path.parent.parent),
                           value=f"{size:,} bytes more", allowed=f"{self._folder.most_bytes:,} bytes in all",
                           next_step="give --batch-files more, or remove stale ones: headrace gc")  # fmt: skip

    def publish(self) -> None:
        """Make the file durable and visible. Raises :class:`StorageError`; nothing is left of it then."""
        try:
            with translated_os_errors(str(self.path), "write"), self._file:
                self._file.flush()
                os.fsync(self._file.fileno())
                os.replace(self._temporary, self.path)
                sync_path(self.path.parent)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Remove what was written; after :meth:`publish` nothing."""
        with translated_os_errors(str(self.path), "delete"), contextlib.suppress(FileNotFoundError):
            self._file.close()
            self._temporary.unlink()
