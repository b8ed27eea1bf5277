"""The files of an Iceberg table in a folder, read by Headrace's storage."""

from __future__ import annotations

from io import UnsupportedOperation
from typing import Any

from pyiceberg.io import FileIO, InputFile, OutputFile

from warehouse.storage.object_reader import ObjectFile
from warehouse.storage.storage import Storage


class FolderFiles(FileIO):  # type: ignore[misc]
    """Files by their paths where the table was written, found where its folder is now. Read-only.

    Args:
        storage: the storage.
        here: the folder now.
    """

    def __init__(self, storage: Storage, here: str) -> None:
        super().__init__()
        self._storage, self._here = storage, here
        self.written = here

    def new_input(self, location: str) -> InputFile:
        """The file, for reading."""
        inside = location.startswith(f"{self.written}/")
        return _StoredFile(self._storage, f"{self._here}{location.removeprefix(self.written)}" if inside else location)

    def new_output(self, location: str) -> OutputFile:
        """Refused: lakes are read-only."""
        raise UnsupportedOperation(f"a lake must not be written, got {location}")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Refused: lakes are read-only."""
        raise UnsupportedOperation(f"a lake must not be written, got {location}")


class _StoredFile(InputFile):  # type: ignore[misc]
    def __init__(self, storage: Storage, location: str) -> None:
        super().__init__(location)
        self._storage = storage

    def __len__(self) -> int:
        with self._storage.open_input(self.location) as file:
            return int(file.size())

    def exists(self) -> bool:
        return self._storage.exists(self.location)

    def open(self, seekable: bool = True) -> Any:
        file = self._storage.open_input(self.location)
        if isinstance(file, ObjectFile):
            # pyiceberg reads all of a file, column after column: over a network each would be a round trip.
            file.read_ahead([(0, file.size())])
        return file
