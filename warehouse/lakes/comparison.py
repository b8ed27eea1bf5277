"""What differs between the files of a lake that a table has and those of another version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transforms.arrays import Ints
from warehouse.lakes.old_rows import PartRows
from warehouse.lakes.origins import NOWHERE, Origins, read_origins
from warehouse.lakes.snapshot import LakeFile, LakeRows, LakeSnapshot, live_rows
from warehouse.lakes.state import KnownFile, KnownPart
from warehouse.storage.storage import Storage
from warehouse.tables.manifests import PlacedFragment


@dataclass(frozen=True, slots=True)
class NewSource:
    """A file with rows that the table does not have: all live rows but those at ``known`` positions."""

    file: LakeFile
    known: Ints

    def rows(self, snapshot: LakeSnapshot, columns: Sequence[str] | None = None) -> Iterator[LakeRows]:
        """The new rows, in pieces, of all columns or some."""
        for live in live_rows(snapshot, self.file, columns):
            if not len(self.known):
                yield live
                continue
            new = ~np.isin(live.positions, self.known)
            yield LakeRows(live.path, live.positions[new], live.rows.filter(pa.array(new)))


class EditedOrigins:
    """The origins of a part while its rows get other ones."""

    def __init__(self, before: Origins) -> None:
        self._before = before
        self._files = list(before.files)
        self._file, self._position = before.file.copy(), before.position.copy()

    def forget(self, rows: Ints) -> None:
        """These rows are in no file of the lake any more."""
        self._file[rows], self._position[rows] = -1, NOWHERE

    def move(self, rows: Ints, path: str, positions: Ints) -> None:
        """These rows are at positions of a file now."""
        if path not in self._files:
            self._files.append(path)
        self._file[rows], self._position[rows] = self._files.index(path), positions

    def origins(self) -> Origins:
        """The origins now, without files that no row comes from."""
        used = [index for index in np.unique(self._file) if index >= 0]
        number = np.full(len(self._files) + 1, -1, np.int64)
        number[used] = np.arange(len(used))
        return Origins(tuple(self._files[index] for index in used), number[self._file], self._position)


@dataclass(frozen=True)
class Comparison:
    """What a refresh has to do.

    Attributes:
        gone: paths of files that the lake has no more.
        changed: files whose deletions differ.
        lost: the rows of parts that the lake has no more at the same place.
        sources: the files with rows that the table does not have.
        origins: the origins of the parts in ``lost``, without the lost rows.
    """

    gone: tuple[str, ...]
    changed: tuple[LakeFile, ...]
    lost: tuple[PartRows, ...]
    sources: tuple[NewSource, ...]
    origins: Mapping[int, EditedOrigins]

    @property
    def lost_rows(self) -> int:
        """The number of lost rows."""
        return sum(len(one.rows) for one in self.lost)


def compare(
    storage: Storage,
    snapshot: LakeSnapshot,
    files: Mapping[str, KnownFile],
    parts: Mapping[int, KnownPart],
    fragments: Mapping[str, tuple[PlacedFragment, ...]],
) -> Comparison:
    """Compare the files that a table has with those of a snapshot.

    Args:
        storage: the storage of the origins.
        snapshot: the version to compare with.
        files: the files of the lake that the table has.
        parts: the parts of the table.
        fragments: the fragments of each part's file.
    """
    live = {file.path: file for file in snapshot.files}
    gone = tuple(sorted(files.keys() - live.keys()))
    changed = tuple(file for path, file in live.items() if path in files and files[path].state != file.state)
    sources = [NewSource(file, np.zeros(0, np.int64)) for path, file in live.items() if path not in files]
    touched = sorted({part for path in (*gone, *(file.path for file in changed)) for part in files[path].parts})
    rows = {part: sum(placed.fragment.rows for placed in fragments[parts[part].path]) for part in touched}
    origins = {part: read_origins(storage, parts[part].origins, rows[part]) for part in touched}
    lost: dict[int, list[Ints]] = {part: [] for part in touched}
    for path in gone:
        for part in files[path].parts:
            lost[part].append(origins[part].rows_of(path))
    for file in changed:
        known = _lose_deleted(snapshot, file, {part: origins[part] for part in files[file.path].parts}, lost)
        if _has_more(snapshot, file, known):
            sources.append(NewSource(file, known))
    edited = {part: EditedOrigins(origins[part]) for part in touched}
    found = []
    for part, pieces in lost.items():
        chosen = np.sort(np.concatenate(pieces)) if pieces else np.zeros(0, np.int64)
        if len(chosen):
            edited[part].forget(chosen)
            found.append(PartRows(part, chosen, fragments[parts[part].path]))
    return Comparison(gone, changed, tuple(found), tuple(sources), edited)


def _lose_deleted(
    snapshot: LakeSnapshot, file: LakeFile, origins: Mapping[int, Origins], lost: Mapping[int, list[Ints]]
) -> Ints:
    """Add the rows that are deleted in a file now to ``lost``; returns the positions of the others."""
    deleted, kept = snapshot.deleted(file), [np.zeros(0, np.int64)]
    for part, known in origins.items():
        rows = known.rows_of(file.path)
        positions = known.position[rows]
        is_deleted = np.zeros(len(rows), np.bool_)
        if deleted is not None:
            inside = positions < len(deleted)
            is_deleted[inside] = deleted[positions[inside]]
        lost[part].append(rows[is_deleted])
        kept.append(positions[~is_deleted])
    return np.concatenate(kept)


def _has_more(snapshot: LakeSnapshot, file: LakeFile, known: Ints) -> bool:
    """Whether a file has live rows at other positions, which were deleted before."""
    if file.rows is None:
        return True
    deleted = snapshot.deleted(file)
    return file.rows - (0 if deleted is None else int(deleted.sum())) != len(known)
