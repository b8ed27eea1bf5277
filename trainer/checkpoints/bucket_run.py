"""The checkpoints of a run in a bucket: a part is whole when its manifest is there, a commit is one object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, TypeVar

from trainer.checkpoints.array_files import NewFiles
from trainer.checkpoints.local_run import missing, not_small, wrong_size
from trainer.checkpoints.run_files import CHECKPOINTS, CHUNK_BYTES, Entries
from trainer.errors import CheckpointNotWritten
from warehouse.errors import MissingFile
from warehouse.storage.storage import Storage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BucketFolder(NewFiles):
    """A prefix in which objects are created; none is replaced, since a commit of another controller may name it."""

    storage: Storage
    path: str

    def write(self, name: str, content: Callable[[IO[bytes]], object]) -> int:
        """Create an object and return its size in bytes. Raises :class:`CheckpointNotWritten` if it exists."""
        place, size_bytes = f"{self.path}/{name}", 0

        def write(file: IO[bytes]) -> None:
            nonlocal size_bytes
            content(file)
            size_bytes = file.tell()

        if not self.storage.create(place, write):
            raise CheckpointNotWritten("a file of a part must be new in its bucket, got one of another job in its place", where=place,
                                       next_step="the epoch is trained again, under the number of a new attempt")  # fmt: skip
        return size_bytes


class BucketRun:
    """The files of a folder in a bucket; see :class:`trainer.checkpoints.run_files.RunFiles`. Writing raises :class:`StorageError`.

    Args:
        location: ``gs://bucket/path``, such as a run directory.
        folder: in it, by default that of checkpoints; "" for the location itself.
    """

    def __init__(self, location: str, folder: str = CHECKPOINTS) -> None:
        self._storage = Storage(location)
        self._root = f"{self._storage.root}/{folder}".rstrip("/")

    @property
    def is_remote(self) -> bool:
        """True."""
        return True

    def place(self, path: str) -> str:
        """A path as errors and screens show it."""
        return f"{self._root}/{path}".rstrip("/")

    def names(self) -> list[str]:
        """The names in the folder of checkpoints, ascending, without hidden ones."""
        found = self.entries("")
        return sorted(name for name in {*found.folders, *found.sizes} if not name.startswith("."))

    def folders(self, folder: str) -> list[str]:
        """The names of the prefixes in a prefix, ascending."""
        return list(self.entries(folder).folders)

    def entries(self, folder: str) -> Entries:
        """The names of the prefixes and the sizes of the objects directly in a prefix."""
        found, start = self._storage.entries(self.place(folder)), len(self.place(folder)) + 1
        return Entries(found.folders, {file.path[start:]: file.size_bytes for file in found.files})

    def read_small(self, path: str, most_bytes: int) -> bytes:
        """The bytes of a small object, of one generation."""
        place = self.place(path)
        try:
            with self._storage.open_input(place) as file:
                if file.size() > most_bytes:
                    raise not_small(place, most_bytes)
                data: bytes = file.read()
        except MissingFile as error:
            raise missing(place) from error
        return data

    def read(self, path: str, *, expected_bytes: int | None = None) -> bytes:
        """An object's bytes, of one generation."""
        try:
            data = self._storage.read_bytes(self.place(path))
        except MissingFile as error:
            raise missing(self.place(path)) from error
        if expected_bytes is not None and len(data) != expected_bytes:
            raise wrong_size(self.place(path), len(data), expected_bytes)
        return data

    def chunks(self, path: str, expected_bytes: int, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """The bytes of an object one after another."""
        try:
            with self._storage.open_input(self.place(path)) as file:
                if file.size() != expected_bytes:
                    raise wrong_size(self.place(path), file.size(), expected_bytes)
                for first in range(0, expected_bytes, chunk_bytes):
                    yield file.read(
                        min(chunk_bytes, expected_bytes - first)
                    )  # memory is taken for all bytes that are asked for
        except MissingFile as error:
            raise missing(self.place(path)) from error

    def sizes(self, folder: str) -> dict[str, int]:
        """The names and sizes of the objects of a prefix."""
        start = len(self.place(folder)) + 1
        return {file.path[start:]: file.size_bytes for file in self._storage.list(self.place(folder))}

    def written_secs(self, path: str) -> float:
        """When an object was written, in epoch seconds; 0 if it is absent."""
        folder, _, name = self.place(path).rpartition("/")
        found = [file for file in self._storage.list(folder) if file.path == f"{folder}/{name}"]
        return found[0].mtime_ns / 1e9 if found else 0.0

    def write_folder(self, folder: str, write: Callable[[NewFiles], T]) -> T:
        """Create objects; the last one makes the folder whole."""
        return write(BucketFolder(self._storage, self.place(folder)))

    def create(self, folder: str, name: str, data: bytes) -> bool:
        """Create an object unless it exists: exactly one of several writers gets True."""
        return self._storage.create(f"{self.place(folder)}/{name}", data)

    def settle(self, folder: str) -> None:
        """An object is durable once it is visible."""

    def put(self, path: str, data: bytes) -> None:
        """Write or replace an object."""
        self._storage.write_atomic(self.place(path), data)

    def remove(self, folder: str) -> None:
        """Remove an object and all objects of a prefix, the manifest first: without it the others are not read."""
        self._storage.delete(self.place(folder))
        paths = self._below(self.place(folder))
        for path in sorted(paths, key=lambda path: (not path.endswith("manifest.json"), path)):
            self._storage.delete(f"{self.place(folder)}/{path}")

    def remove_unfinished(self, folder: str) -> None:
        """An object that was not written whole does not exist."""

    def _below(self, prefix: str) -> list[str]:
        return [file.path[len(prefix) + 1 :] for file in self._storage.list(prefix)]
