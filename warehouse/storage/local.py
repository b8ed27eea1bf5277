"""Files of a local disk.

A file appears whole or not at all: it is written under a hidden temporary name in the same folder, synced, renamed (or
linked, if it must not replace a file), and the folder is synced.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import IO, TYPE_CHECKING, Any

from warehouse.storage.durable_files import make_folders, sync_path, write_new_file
from warehouse.storage.errors import translated_os_errors
from warehouse.storage.stored_file import (
    Entries,
    ListedFile,
    Walk,
    Writer,
    copy_of,
    entries_among,
    temporary_name,
)

if TYPE_CHECKING:
    from pyarrow.fs import LocalFileSystem


@cache
def _system() -> LocalFileSystem:
    from pyarrow.fs import LocalFileSystem  # not loaded by commands that read the catalog alone

    return LocalFileSystem()


class LocalFiles:
    """Files by absolute path."""

    def read_bytes(self, path: str) -> bytes:
        """The whole file."""
        with translated_os_errors(path, "read"), open(path, "rb") as file:
            return file.read()

    def open_input(self, path: str) -> Any:
        """The file, opened for random reads."""
        with translated_os_errors(path, "read"):
            return _system().open_input_file(path)

    def exists(self, path: str) -> bool:
        """Whether the file exists."""
        return stat.S_ISREG(self._mode(path))

    def folder_exists(self, path: str) -> bool:
        """Whether the folder exists."""
        return stat.S_ISDIR(self._mode(path))

    def _mode(self, path: str) -> int:
        """The mode of what is at a path; 0 if nothing is."""
        with translated_os_errors(path, "look for"):
            try:
                return os.stat(path).st_mode
            except (FileNotFoundError, NotADirectoryError):
                return 0

    def files(self, folder: str) -> Iterator[ListedFile]:
        """Every file under a folder, at any depth."""
        for path, status in self._all_under(folder):
            if stat.S_ISREG(status.st_mode):
                yield ListedFile(path, status.st_size, status.st_mtime_ns)

    def folders(self, folder: str) -> Iterator[str]:
        """Every folder under a folder, at any depth."""
        return (path for path, status in self._all_under(folder) if stat.S_ISDIR(status.st_mode))

    def _all_under(self, folder: str) -> list[tuple[str, os.stat_result]]:
        """Everything under a folder by path, links followed; none for a folder that does not exist.

        Links that lead nowhere, or in a circle, and what disappears meanwhile are left out.
        """
        found: list[tuple[str, os.stat_result]] = []
        waiting = [folder.rstrip("/")]
        with translated_os_errors(folder, "list"):
            if os.path.lexists(folder) and not os.path.isdir(folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
            while waiting:
                here = waiting.pop()
                for entry in _entries(here or "/"):
                    status = _status(entry)
                    if status is None:
                        continue
                    found.append((f"{here}/{entry.name}", status))
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append(f"{here}/{entry.name}")
        return found

    def entries(self, folder: str) -> Entries:
        """The folders and files directly in a folder."""
        return entries_among(folder, self.files(folder))

    def walk(self, root: str, folder: str) -> Walk:
        """All under a folder. Links are listed but not followed; files that disappear meanwhile are left out."""
        files: list[ListedFile] = []
        others: list[str] = []
        with translated_os_errors(f"{root}/{folder}", "list"), _opened_folder(root, folder.split("/")) as opened:
            if opened is None:
                return Walk((), (folder,) if os.path.lexists(f"{root}/{folder}") else ())
            waiting = [folder]
            while waiting:
                here = waiting.pop()
                for entry in _entries(f"{root}/{here}"):
                    path = f"{here}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(path)
                    elif entry.is_file(follow_symlinks=False):
                        with contextlib.suppress(FileNotFoundError):
                            found = entry.stat(follow_symlinks=False)
                            files.append(ListedFile(path, found.st_size, found.st_mtime_ns))
                    else:
                        others.append(path)
        return Walk(tuple(sorted(files, key=lambda file: file.path)), tuple(sorted(others)))

    def delete_inner(self, root: str, path: str) -> bool:
        """Delete an ordinary file; False if it does not exist, or only through a link.

        Each folder of the path is opened within its parent and must not be a link, so no link can be inserted meanwhile.
        """
        *folders, name = path.split("/")
        with translated_os_errors(f"{root}/{path}", "delete"), _opened_folder(root, folders) as folder:
            if folder is None:
                return False
            try:
                if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    return False
                os.unlink(name, dir_fd=folder)
            except FileNotFoundError:
                return False
        return True

    def publish(self, path: str, write: Writer, synced: bool = True) -> int:
        """Write or replace a file and return its size in bytes."""
        return _publish(path, write, os.replace, synced)

    def create(self, path: str, write: Writer) -> bool:
        """Write a file unless it exists."""
        try:
            with translated_os_errors(path, "look for"):
                if os.path.lexists(path):
                    return False
            _publish(path, write, _link)
        except _AlreadyExists:
            return False
        return True

    def upload(self, path: str, source: IO[bytes]) -> bool:
        """Write the content of an open file unless ``path`` exists."""
        return self.create(path, copy_of(source))


@contextlib.contextmanager
def _opened_folder(root: str, folders: Sequence[str]) -> Iterator[int | None]:
    """A descriptor of the folder; None if it does not exist or a part of its path below ``root`` is a link."""
    opened: list[int] = []
    try:
        with contextlib.suppress(FileNotFoundError):
            opened.append(os.open(root or "/", os.O_RDONLY | os.O_DIRECTORY))
            for name in folders:
                inner = _inner_folder(opened[-1], name)
                if inner is None:
                    break
                opened.append(inner)
        yield opened[-1] if len(opened) == len(folders) + 1 else None
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _inner_folder(outer: int, name: str) -> int | None:
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=outer)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=outer, follow_symlinks=False).st_mode):
            return None
        raise


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []  # it was removed or replaced meanwhile


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """What an entry, or the link that it is, leads to; None for nothing."""
    try:
        return entry.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise


class _AlreadyExists(Exception):
    pass


def _link(temporary: str, path: str) -> None:
    """Link, which fails for an existing file, unlike a rename."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise _AlreadyExists from None
    os.unlink(temporary)


def _publish(path: str, write: Writer, put: Callable[[str, str], None], synced: bool = True) -> int:
    folder, name = os.path.split(path)
    unique = f"{os.getpid()}-{threading.get_ident()}-{uuid.uuid4().hex[:8]}"
    temporary = os.path.join(folder, temporary_name(name, unique))
    with translated_os_errors(path, "write"):
        make_folders(folder)
        try:
            size_bytes = write_new_file(temporary, write, synced=synced)
            put(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        if synced:
            sync_path(folder)
    return size_bytes
