"""Folders of lakes: tables whose log, not their folder, says which files and rows are live."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from transforms.errors import InputError, StorageError
from warehouse.storage.storage import Storage

LakeFormat = Literal["delta", "iceberg", "hudi"]

#: The name of each format, and the log that its tables have.
FORMAT_NAMES: dict[LakeFormat, str] = {"delta": "Delta", "iceberg": "Iceberg", "hudi": "Hudi"}
_DELTA_LOG, _HUDI_LOG, _ICEBERG_LOG = "_delta_log", ".hoodie", "metadata"
_ICEBERG_SUFFIX = ".metadata.json"


@dataclass(frozen=True, slots=True)
class LakeFolder:
    """The folder of a lake's table: its format, the folder, and the log in it."""

    format: LakeFormat
    root: str
    log: str


def lake_at(storage: Storage, folder: str) -> LakeFolder | None:
    """The lake whose table has this folder, or None."""
    root = folder.rstrip("/")
    if storage.folder_exists(f"{root}/{_DELTA_LOG}"):
        return LakeFolder("delta", root, f"{root}/{_DELTA_LOG}")
    log = f"{root}/{_ICEBERG_LOG}"
    if storage.folder_exists(log) and any(file.path.endswith(_ICEBERG_SUFFIX) for file in storage.list(log)):
        return LakeFolder("iceberg", root, log)
    if storage.folder_exists(f"{root}/{_HUDI_LOG}"):
        return LakeFolder("hudi", root, f"{root}/{_HUDI_LOG}")
    return None


def lake_above(storage: Storage, path: str) -> LakeFolder | None:
    """The lake of a folder or file: that of the folder itself, or of a folder above it that may be looked into."""
    path = storage.absolute(path).rstrip("/")
    scheme, separator, rest = path.rpartition("://")
    parts = rest.split("/")
    for end in range(len(parts), 0, -1):
        folder = f"{scheme}{separator}{'/'.join(parts[:end])}"
        try:
            found = lake_at(storage, folder) if folder else None
        except StorageError:
            if end == len(parts):
                raise
            return None  # credentials for a part of a bucket
        if found is not None:
            return found
    return None


def refuse_lakes(storage: Storage, paths: Iterable[str]) -> None:
    """Raise :class:`InputError` for a folder or file that belongs to a lake: its files hold rows that were removed."""
    seen: set[str] = set()
    for path in paths:
        folder = path.rstrip("/").rpartition("/")[0]
        if folder in seen and not storage.folder_exists(path):
            continue
        seen.add(folder)
        found = lake_above(storage, path)
        if found is not None:
            raise refused_lake(found, path)


def refused_lake(found: LakeFolder, where: str) -> InputError:
    """The error for reading the files of a lake without its log."""
    name = FORMAT_NAMES[found.format]
    step = f"headrace table add NAME {found.root} reads the live rows"
    if found.format == "hudi":
        step = "write its newest snapshot as plain Parquet, or as a Delta or Iceberg table, and add that"
    article = "an" if name[0] in "AEIOU" else "a"
    return InputError(f"the files of {article} {name} table must be read by its log: they hold rows that were removed",
                      where=where, value=found.log, next_step=step)  # fmt: skip
