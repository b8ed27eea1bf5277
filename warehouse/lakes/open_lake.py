"""Opening a version of a lake's table by its location."""

from __future__ import annotations

from transforms.errors import InputError
from warehouse.lakes.delta import open_delta
from warehouse.lakes.iceberg import SCHEME, open_iceberg
from warehouse.lakes.snapshot import LakeSnapshot
from warehouse.storage.storage import Storage
from warehouse.tables.lake_folders import lake_at, refused_lake


def is_lake(storage: Storage, location: str) -> bool:
    """Whether a location is a lake's table: a name in a catalog of Iceberg, or a folder with the log of a lake."""
    return location.startswith(SCHEME) or lake_at(storage, location) is not None


def open_lake(storage: Storage, location: str, version: str = "") -> LakeSnapshot:
    """A version of the lake's table at a location, the newest one by default.

    Raises :class:`InputError` for a location without a log and for a format that is not read,
    :class:`~transforms.errors.StorageError` without the package of the format, and :class:`~transforms.errors.DataError` for a table
    that cannot be read.
    """
    if location.startswith(SCHEME):
        return open_iceberg(storage, location, "", version)
    found = lake_at(storage, location)
    if found is None:
        raise InputError("a lake's table must have a log", where=location, value="no _delta_log and no metadata/*.metadata.json",
                         next_step="check the path")  # fmt: skip
    if found.format == "hudi":
        raise refused_lake(found, location)
    if found.format == "delta":
        return open_delta(storage, found.root, found.log, version)
    return open_iceberg(storage, found.root, found.log, version)
