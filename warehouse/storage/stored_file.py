"""What every kind of storage says about files, and how unfinished ones are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any, Protocol

_TEMPORARY = ".tmp"

#: Writes a file's content to the file it is given.
Writer = Callable[[IO[bytes]], None]


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as a listing shows it: path, size in bytes, when it was written in nanoseconds since the epoch."""

    path: str
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Walk:
    """What lies under a folder of the home, by paths relative to the home.

    Attributes:
        files: Ordinary files, unfinished writes too, by path.
        others: Links, none of which was followed, and what is neither a file nor a folder.
    """

    files: tuple[ListedFile, ...]
    others: tuple[str, ...]


class Files(Protocol):
    """What a disk and an object store have in common; :class:`warehouse.storage.storage.Storage` says what each promises.

    Paths are absolute and in the kind's own spelling.
    """

    def read_bytes(self, path: str) -> bytes:
        """The whole file."""

    def open_input(self, path: str) -> Any:
        """The file, opened for random reads."""

    def exists(self, path: str) -> bool:
        """Whether a file is there."""

    def folder_exists(self, path: str) -> bool:
        """Whether a folder is there."""

    def files(self, folder: str) -> Iterator[ListedFile]:
        """Every file under a folder, at any depth, unfinished ones too."""

    def folders(self, folder: str) -> Iterator[str]:
        """Every folder under a folder, at any depth."""

    def walk(self, root: str, folder: str) -> Walk:
        """All under ``folder`` of ``root``, at any depth, by paths relative to ``root``; no link is followed."""

    def delete_inner(self, root: str, path: str) -> bool:
        """Remove the ordinary file at ``path`` of ``root``, through no link; False if there is none."""

    def publish(self, path: str, write: Writer, synced: bool = True) -> int:
        """Put a file in its place, over another one if need be; its size in bytes. See :meth:`Storage.write_atomic`."""

    def create(self, path: str, write: Writer) -> bool:
        """Put a file in its place unless one is there."""


def is_inside(path: str) -> bool:
    """Whether a path is relative, in its plainest spelling, and leads to a place under the folder it is relative to."""
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


def temporary_name(name: str, unique: str) -> str:
    """How a file is called while it is written."""
    return f".{name}.{unique}{_TEMPORARY}"


def is_unfinished(path: str) -> bool:
    """Whether a path is that of a file that was not finished."""
    name = path.rsplit("/", 1)[-1]
    return name.startswith(".") and name.endswith(_TEMPORARY)
