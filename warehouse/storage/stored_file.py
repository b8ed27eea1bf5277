"""The interface of local disks and buckets, and the names of unfinished files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, Protocol

_TEMPORARY = ".tmp"

#: Writes content to a file.
Writer = Callable[[IO[bytes]], None]


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file in a listing; ``mtime_ns`` in nanoseconds since the epoch."""

    path: str
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Walk:
    """The files under a folder of the home, by paths relative to the home.

    Attributes:
        files: ordinary files, including unfinished writes, by path.
        others: links, which are not followed, and all that is neither file nor folder.
    """

    files: tuple[ListedFile, ...]
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entries:
    """What is directly in a folder.

    Attributes:
        folders: the names of its folders, ascending.
        files: its files, by path.
    """

    folders: tuple[str, ...]
    files: tuple[ListedFile, ...]


class Files(Protocol):
    """Files of a disk or an object store, by absolute paths; see :class:`warehouse.storage.storage.Storage`."""

    def read_bytes(self, path: str) -> bytes:
        """The whole file."""

    def open_input(self, path: str) -> Any:
        """The file, opened for random reads."""

    def exists(self, path: str) -> bool:
        """Whether the file exists."""

    def folder_exists(self, path: str) -> bool:
        """Whether the folder exists."""

    def files(self, folder: str) -> Iterator[ListedFile]:
        """Every file under a folder, at any depth, including unfinished ones."""

    def folders(self, folder: str) -> Iterator[str]:
        """Every folder under a folder, at any depth."""

    def entries(self, folder: str) -> Entries:
        """The folders and files directly in a folder, including unfinished files."""

    def walk(self, root: str, folder: str) -> Walk:
        """All under ``folder`` of ``root``, at any depth, by paths relative to ``root``; links are not followed."""

    def delete_inner(self, root: str, path: str) -> bool:
        """Delete the ordinary file ``path`` of ``root``, through no link; False if it does not exist."""

    def publish(self, path: str, write: Writer, synced: bool = True) -> int:
        """Write or replace a file and return its size in bytes; see :meth:`Storage.write_atomic`."""

    def create(self, path: str, write: Writer) -> bool:
        """Write a file unless it exists."""

    def upload(self, path: str, source: IO[bytes]) -> bool:
        """Write the content of an open file unless ``path`` exists."""


def is_inside(path: str) -> bool:
    """Whether a path is relative and normalized, without ``..`` and NUL."""
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


def entries_among(folder: str, files: Iterable[ListedFile]) -> Entries:
    """What is directly in a folder, of all files at any depth below it."""
    start = len(folder.rstrip("/")) + 1
    direct, folders = [], set()
    for file in files:
        first, separator, _ = file.path[start:].partition("/")
        if separator:
            folders.add(first)
        else:
            direct.append(file)
    return Entries(tuple(sorted(folders)), tuple(sorted(direct, key=lambda file: file.path)))


def copy_of(source: IO[bytes]) -> Writer:
    """Writes the content of an open file."""

    def write(file: IO[bytes]) -> None:
        source.seek(0)
        shutil.copyfileobj(source, file)

    return write


def temporary_name(name: str, unique: str) -> str:
    """The name of a file while it is written."""
    return f".{name}.{unique}{_TEMPORARY}"


def is_unfinished(path: str) -> bool:
    """Whether a path is that of an unfinished file."""
    name = path.rsplit("/", 1)[-1]
    return name.startswith(".") and name.endswith(_TEMPORARY)
