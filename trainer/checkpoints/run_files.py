"""The files of a run's checkpoints: a local folder, or a prefix of a bucket."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from trainer.checkpoints.array_files import NewFiles

T = TypeVar("T")

#: The folder of a run's checkpoints within its run directory.
CHECKPOINTS = "checkpoints"
#: Bytes that are read at once where a file is not needed whole.
CHUNK_BYTES = 8 << 20
#: The folder of the plans of a run in a bucket.
PLANS = "plans"

_NAME = re.compile("epoch-([0-9]{6,18})")


@dataclass(frozen=True, slots=True)
class Entries:
    """What is directly in a folder: the names of its folders, ascending, hidden ones included, and the sizes of its files by name."""

    folders: tuple[str, ...]
    sizes: Mapping[str, int]


class RunFiles(Protocol):
    """The files of a run's checkpoints, or of a chain of links. Paths are relative to their folder."""

    @property
    def is_remote(self) -> bool:
        """Whether each read is a request over a network."""

    def place(self, path: str) -> str:
        """A path as errors and screens show it."""

    def names(self) -> list[str]:
        """The names in the folder of checkpoints, ascending, without hidden ones."""

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder, ascending, hidden ones included; none if it is absent."""

    def entries(self, folder: str) -> Entries:
        """What is directly in a folder; nothing if it is absent."""

    def read_small(self, path: str, most_bytes: int) -> bytes:
        """The bytes of a file that must be small: one of more bytes is not read. Raises as :meth:`read`."""

    def read(self, path: str, *, expected_bytes: int | None = None) -> bytes:
        """A file's bytes. Raises :class:`TornCheckpoint` if it is absent, no file, or of another size."""

    def chunks(self, path: str, expected_bytes: int, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """The bytes of :meth:`read` one after another, without the whole file in memory."""

    def sizes(self, folder: str) -> dict[str, int]:
        """The names and sizes of the files of a folder; none if it is absent."""

    def written_secs(self, path: str) -> float:
        """When a file was written, in epoch seconds; 0 if it is absent."""

    def write_folder(self, folder: str, write: Callable[[NewFiles], T]) -> T:
        """Write a folder; its last file makes it whole. A local folder of this name is replaced, a file in a bucket never is."""

    def create(self, folder: str, name: str, data: bytes) -> bool:
        """Create a file atomically, with its folder; False if it exists. A local folder is created with one file only."""

    def settle(self, folder: str) -> None:
        """Make a folder durable that a killed process may have created just before."""

    def put(self, path: str, data: bytes) -> None:
        """Write or replace a file atomically."""

    def remove(self, folder: str) -> None:
        """Remove a folder or a file; it disappears at once. One that is absent is no error."""

    def remove_unfinished(self, folder: str) -> None:
        """Remove what killed processes have left in a folder."""


def commit_name(epochs_done: int) -> str:
    """The name of the checkpoint after so many epochs."""
    return f"epoch-{epochs_done:06d}"


def is_commit_name(name: str) -> bool:
    """Whether it is the name of a checkpoint."""
    matched = _NAME.fullmatch(name)
    return matched is not None and commit_name(int(matched[1])) == name


def epochs_of(name: str) -> int:
    """The epochs of the name of a checkpoint."""
    return int(name.removeprefix("epoch-"))


def newest_first(files: RunFiles) -> list[str]:
    """The names of the checkpoints of a run, newest first."""
    return sorted(filter(is_commit_name, files.folders("")), key=epochs_of, reverse=True)
