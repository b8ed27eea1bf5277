"""Find the Parquet files of a table's folder, by partition."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass

from transforms.errors import Busy
from warehouse.errors import EmptyPartition
from warehouse.storage.storage import Storage
from warehouse.storage.stored_file import ListedFile
from warehouse.tables.hive_levels import FolderLevels, is_side_file, is_side_folder, parse_levels
from warehouse.tables.partitions import not_a_partition, partition_range, refuse_overlaps


def refuse_half_imports(storage: Storage, root: str) -> None:
    """Raise :class:`Busy` while an import with a journal publishes its files, of which only some may exist."""
    journals = [
        file.path for file in storage.list(f"{root.rstrip('/')}.imports") if file.path.endswith(".pending.json")
    ]
    if journals:
        raise Busy("an import into this folder is not finished", where=root, value=journals[0],
                   next_step="wait for it; if it was killed, run the same import again, which completes it")  # fmt: skip


@dataclass(frozen=True)
class ScannedFolder:
    """The Parquet files of a table's folder.

    Attributes:
        partitions: the files of each partition, by its key; both sorted.
        levels: the levels of each file's folders, by its path.
    """

    partitions: Mapping[str, tuple[ListedFile, ...]]
    levels: Mapping[str, FolderLevels]

    @property
    def column_names(self) -> tuple[str, ...]:
        """The levels that are columns."""
        return tuple(dict.fromkeys(name for found in self.levels.values() for name in found.columns))


def scan_partitions(storage: Storage, root: str) -> ScannedFolder:
    """The Parquet files under ``root``, without side files of writers.

    Raises :class:`EmptyPartition` for a partition folder without Parquet files and when there is no partition at all, and
    :class:`DataError` for a file that is not in a time partition.
    """
    partitions: defaultdict[str, list[ListedFile]] = defaultdict(list)
    levels: dict[str, FolderLevels] = {}
    by_folder: dict[str, FolderLevels] = {}
    for file in storage.list(root):
        relative = relative_path(file.path, root)
        if is_side_file(relative) or not relative.endswith((".parquet", ".pq")):
            continue
        folder = posixpath.dirname(relative)
        found = by_folder.get(folder)
        if found is None:
            found = by_folder[folder] = _levels_of(folder, file.path)
        partitions[found.key].append(file)
        levels[file.path] = found
    _refuse_empty(storage, root, partitions.keys(), by_folder.keys())
    if not partitions:
        raise EmptyPartition("the folder has no partitions", where=root, allowed="<root>/date=YYYY-MM-DD[/hour=HH]/*.parquet",
                             next_step="check the path, or import the logs first")  # fmt: skip
    refuse_overlaps({key: partition_range(key, files[0].path) for key, files in partitions.items()}, root)
    return ScannedFolder({key: tuple(partitions[key]) for key in sorted(partitions)}, levels)


def _levels_of(folder: str, path: str) -> FolderLevels:
    """The levels of a folder that states a time, and has no other folders."""
    found = parse_levels(folder, path)
    if not found.key or any("=" not in part for part in folder.split("/")):
        raise not_a_partition(folder, path)
    return found


def _refuse_empty(storage: Storage, root: str, partitions: Set[str], folders: Set[str]) -> None:
    """Raise :class:`EmptyPartition` for a folder of a partition without files; ``folders`` are those that hold files."""
    parts = [folder.split("/") for folder in folders]
    holding = {"/".join(one[:depth]) for one in parts for depth in range(1, len(one) + 1)}
    below = (relative_path(listed, root) for listed in storage.folders(root))
    empty = [key for key in below if key not in holding and _states_other_time(key, partitions)]
    for key in empty:
        if not any(other.startswith(f"{key}/") for other in empty):  # a day of empty hours: name the hour
            raise EmptyPartition("a partition must have a Parquet file", where=f"{root}/{key}", value=key,
                                 allowed="at least one *.parquet file in every partition folder",
                                 next_step="write its files, or remove the folder")  # fmt: skip


def _states_other_time(folder: str, partitions: Set[str]) -> bool:
    if is_side_folder(folder) or any("=" not in part for part in folder.split("/")):
        return False
    key = parse_levels(folder).key
    return bool(key) and key not in partitions


def relative_path(path: str, root: str) -> str:
    """The path of a listed file below its root."""
    return path.removeprefix(root.rstrip("/")).lstrip("/")
