"""Find the Parquet files of a table's folder, by partition."""

from __future__ import annotations

import posixpath

from transforms.errors import Busy
from warehouse.errors import EmptyPartition
from warehouse.storage.storage import Storage
from warehouse.storage.stored_file import ListedFile
from warehouse.tables.partitions import is_partition_folder, partition_range, refuse_overlaps


def refuse_half_imports(storage: Storage, root: str) -> None:
    """Raise :class:`Busy` while an import with a journal publishes its files, of which only some may exist."""
    journals = [
        file.path for file in storage.list(f"{root.rstrip('/')}.imports") if file.path.endswith(".pending.json")
    ]
    if journals:
        raise Busy("an import into this folder is not finished", where=root, value=journals[0],
                   next_step="wait for it; if it was killed, run the same import again, which completes it")  # fmt: skip


def scan_partitions(storage: Storage, root: str) -> dict[str, tuple[ListedFile, ...]]:
    """The Parquet files under ``root`` by partition key, both sorted.

    Raises :class:`EmptyPartition` for a partition folder without Parquet files and when there is no partition at all.
    """
    partitions: dict[str, list[ListedFile]] = {}
    for folder in storage.folders(root):
        key = _relative(folder, root)
        if not _hidden(key) and is_partition_folder(posixpath.basename(key)):
            partitions[key] = []
    for file in storage.list(root):
        key = _relative(file.path, root)
        if not _hidden(key) and key.endswith((".parquet", ".pq")):
            partitions.setdefault(posixpath.dirname(key), []).append(file)
    for key in [key for key, files in partitions.items() if not files]:
        # A day with hours holds folders, not files.
        if any(other.startswith(f"{key}/") for other in partitions):
            del partitions[key]
        else:
            raise EmptyPartition("a partition must have a Parquet file", where=f"{root}/{key}", value=key,
                                 allowed="at least one *.parquet file in every partition folder",
                                 next_step="write its files, or remove the folder")  # fmt: skip
    if not partitions:
        raise EmptyPartition("the folder has no partitions", where=root, allowed="<root>/date=YYYY-MM-DD[/hour=HH]/*.parquet",
                             next_step="check the path, or import the logs first")  # fmt: skip
    refuse_overlaps({key: partition_range(key, files[0].path) for key, files in partitions.items()}, root)
    return {key: tuple(partitions[key]) for key in sorted(partitions)}


def _relative(path: str, root: str) -> str:
    return path.removeprefix(root.rstrip("/")).lstrip("/")


def _hidden(key: str) -> bool:
    return any(part.startswith((".", "_")) for part in key.split("/"))
