"""Turning the differences of a lake's files into deletions, overlays and new rows of the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from transforms.arrays import Bools, Ints
from warehouse.changes.deletion import delete_chosen
from warehouse.changes.overlay import OverlayRun
from warehouse.changes.publish import OverlayWriter, Replacement
from warehouse.changes.sources import FragmentValues
from warehouse.lakes.comparison import Comparison
from warehouse.lakes.old_rows import OldRows, PartRows, old_rows
from warehouse.lakes.pairing import Pairing, pair_rows
from warehouse.lakes.parts import PartWriter
from warehouse.lakes.placement import Placement
from warehouse.lakes.row_codes import value_codes
from warehouse.lakes.snapshot import LakeRows, LakeSnapshot
from warehouse.tables.manifests import PlacedFragment
from warehouse.tables.table import ColumnSchema, Table
from warehouse.warehouse import Warehouse

#: The most rows, old and new, that are paired in memory at a time; a larger partition is paired by itself.
ROWS_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Edits:
    """What a refresh changes in fragments of the table.

    Attributes:
        deletions: fragments with further deletions.
        overlays: fragments with new values, on top of ``deletions``.
        columns: the columns with new values.
        updated_rows: the events with new values.
        moved_rows: the events that are in other files of the lake now, with the same values.
    """

    deletions: tuple[Replacement, ...]
    overlays: tuple[Replacement, ...]
    columns: tuple[str, ...]
    updated_rows: int
    moved_rows: int


@dataclass(frozen=True)
class NewRows:
    """New rows in memory: their values, and the file, the position in it and the partition of each, by number."""

    values: pa.Table
    files: tuple[str, ...]
    file: Ints
    position: Ints
    partition: Ints


class Editor:
    """Pairs old rows with new ones, partition by partition, and collects the edits.

    Args:
        warehouse: the warehouse.
        table: the table before the refresh.
        snapshot: the version of the lake.
        placement: the partition of a row.
        keys: the columns that identify a row.
        parts: takes the rows that are new in the table.
        file_digests: see :class:`warehouse.changes.overlay.OverlayRun`.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        table: Table,
        snapshot: LakeSnapshot,
        placement: Placement,
        keys: Sequence[str],
        parts: PartWriter,
        file_digests: Mapping[str, Mapping[str, str]],
    ) -> None:
        self._warehouse, self._table, self._snapshot = warehouse, table, snapshot
        self._placement, self._keys, self._parts = placement, tuple(keys), parts
        self._file_digests = file_digests
        self.writer = OverlayWriter(warehouse.storage, table.name)
        self._deletions: dict[int, Replacement] = {}
        self._overlays: list[Replacement] = []
        self._columns: dict[str, None] = {}
        self._updated_rows = self._moved_rows = 0

    def apply(self, found: Comparison) -> Edits:
        """The edits for all differences."""
        if not found.lost:
            for source in found.sources:
                for live in source.rows(self._snapshot):
                    self._parts.add(live)
        elif not found.sources:
            self._delete(old_rows(found.lost), np.arange(found.lost_rows))
        else:
            self._pair(found)
        return Edits(tuple(self._deletions.values()), tuple(self._overlays), tuple(self._columns), self._updated_rows,
                     self._moved_rows)  # fmt: skip

    def _pair(self, found: Comparison) -> None:
        groups, partitions = self._groups(found)
        for group in groups:
            old = old_rows([one for one in found.lost if group is None or self._number(one) in group])
            new = self._new_rows(found, group, partitions)
            placed = np.array([self._placement.number_of(one.partition) for one in old.fragments], np.int64)
            before = old.values(self._warehouse.storage, self._snapshot.schema)
            pairing = pair_rows(before, new.values, (placed[old.fragment], new.partition), keys=self._keys,
                                time_column=self._placement.time_column)  # fmt: skip
            self._move(found, old, new, pairing)
            self._delete(old, pairing.deleted)
            self._overlay(old, before, new, pairing.updated)
            self._append(new, pairing.appended)
        paired = [group for group in groups if group is not None]
        if paired:
            self._append_elsewhere(found, np.concatenate(paired), partitions)

    def _number(self, one: PartRows) -> int:
        return self._placement.number_of(one.partition)

    def _groups(self, found: Comparison) -> tuple[list[Ints | None], Sequence[Ints]]:
        """The partitions with lost rows that are paired together, by number, and the partitions of each source.

        One group, None, for all rows at once.
        """
        counts = [one.file.rows for one in found.sources]
        if None not in counts and sum(one or 0 for one in counts) + found.lost_rows <= ROWS_AT_ONCE:
            return [None], []
        rows = Counter({self._number(one): 0 for one in found.lost})
        for one in found.lost:
            rows[self._number(one)] += len(one.rows)
        partitions = []
        for source in found.sources:
            counted = Counter[int]()
            for live in source.rows(self._snapshot, [self._placement.time_column]):
                numbers, times = np.unique(self._numbers(live), return_counts=True)
                counted.update(dict(zip(numbers.tolist(), times.tolist(), strict=True)))
            partitions.append(np.array(sorted(counted), np.int64))
            for number in rows.keys() & counted.keys():
                rows[number] += counted[number]
        groups: list[list[int]] = []
        held = ROWS_AT_ONCE
        for number in sorted(rows):
            if held + rows[number] > ROWS_AT_ONCE:
                groups.append([])
                held = 0
            groups[-1].append(number)
            held += rows[number]
        return [np.array(group, np.int64) for group in groups], partitions

    def _numbers(self, live: LakeRows) -> Ints:
        """The partition of each row."""
        return self._placement.numbers(live.rows.column(self._placement.time_column), live.path)

    def _new_rows(self, found: Comparison, group: Ints | None, partitions: Sequence[Ints]) -> NewRows:
        """The new rows of a group; only the sources that have some are read."""
        values, nothing = [self._snapshot.schema.empty_table()], np.zeros(0, np.int64)
        file, position, partition = [nothing], [nothing], [nothing]
        for number, source in enumerate(found.sources):
            if group is not None and not np.isin(partitions[number], group).any():
                continue
            for live in source.rows(self._snapshot):
                numbers = self._numbers(live)
                if group is not None:
                    chosen = np.isin(numbers, group)
                    live, numbers = _chosen(live, chosen), numbers[chosen]
                values.append(live.rows)
                file.append(np.full(len(numbers), number, np.int64))
                position.append(live.positions)
                partition.append(numbers)
        files = tuple(source.file.path for source in found.sources)
        return NewRows(pa.concat_tables(values), files, *(np.concatenate(one) for one in (file, position, partition)))

    def _append_elsewhere(self, found: Comparison, paired: Ints, partitions: Sequence[Ints]) -> None:
        """Take the new rows of partitions without lost rows."""
        for source, its in zip(found.sources, partitions, strict=True):
            if np.isin(its, paired).all():
                continue
            for live in source.rows(self._snapshot):
                self._parts.add(_chosen(live, ~np.isin(self._numbers(live), paired)))

    def _move(self, found: Comparison, old: OldRows, new: NewRows, pairing: Pairing) -> None:
        self._moved_rows += len(pairing.same[0])
        before, after = (np.concatenate(pair) for pair in zip(pairing.same, pairing.updated, strict=True))
        for part in np.unique(old.part[before]):
            of_part = old.part[before] == part
            for number in np.unique(new.file[after[of_part]]):
                chosen = of_part & (new.file[after] == number)
                found.origins[int(part)].move(old.row[before[chosen]], new.files[number], new.position[after[chosen]])

    def _delete(self, old: OldRows, rows: Ints) -> None:
        for index in np.unique(old.fragment[rows]):
            placed = old.fragments[index]
            chosen = np.zeros(placed.fragment.rows, np.bool_)
            chosen[old.event[rows[old.fragment[rows] == index]]] = True
            made, _ = delete_chosen(self._warehouse.storage, placed, pa.array(chosen), self.writer, False)
            if made is not None:  # else they were deleted by a command before
                self._deletions[placed.row] = made

    def _overlay(self, old: OldRows, before: pa.Table, new: NewRows, pairs: tuple[Ints, Ints]) -> None:
        if not len(pairs[0]):
            return
        changed = [
            name for name in before.column_names if _differs(before.column(name), new.values.column(name), pairs)
        ]
        rows = _rows_by_fragment(old, pairs)
        values = PairedValues(self._table.root, tuple(changed), rows, new.values, self._table.columns)
        run = OverlayRun(self._warehouse, self._table, values, self._file_digests, self.writer, False)
        touched = [old.fragments[index] for index in np.unique(old.fragment[pairs[0]])]
        current = [self._after_deletion(placed) for placed in touched]
        made, updated_rows = run.all(current)
        self._overlays += made
        self._updated_rows += updated_rows
        self._columns |= dict.fromkeys(changed)

    def _after_deletion(self, placed: PlacedFragment) -> PlacedFragment:
        deleted = self._deletions.get(placed.row)
        return placed if deleted is None else replace(placed, fragment=deleted.fragment)

    def _append(self, new: NewRows, rows: Ints) -> None:
        for number in np.unique(new.file[rows]):
            chosen = rows[new.file[rows] == number]
            self._parts.add(LakeRows(new.files[number], new.position[chosen], new.values.take(pa.array(chosen))))


@dataclass(frozen=True)
class PairedValues:
    """New values of events that are paired with rows of a lake, as a source of an overlay.

    Attributes:
        where: the table's folder, for errors.
        columns: the columns that changed.
        rows: by the catalog's row of a fragment, the row of ``values`` of each of its events; -1 for none.
        values: the rows of the lake.
        after: the columns of the table.
    """

    where: str
    columns: tuple[str, ...]
    rows: Mapping[int, Ints]
    values: pa.Table
    after: tuple[ColumnSchema, ...]
    unknown_keys: int = 0

    def values_for(self, placed: PlacedFragment) -> FragmentValues | None:
        """The values for a fragment."""
        rows = self.rows[placed.row]
        return FragmentValues(pa.array(rows, pa.int64(), mask=rows < 0), self.values.select(list(self.columns)))


def _rows_by_fragment(old: OldRows, pairs: tuple[Ints, Ints]) -> dict[int, Ints]:
    found = {}
    for index in np.unique(old.fragment[pairs[0]]):
        placed = old.fragments[index]
        of_fragment = old.fragment[pairs[0]] == index
        rows = np.full(placed.fragment.rows, -1, np.int64)
        rows[old.event[pairs[0][of_fragment]]] = pairs[1][of_fragment]
        found[placed.row] = rows
    return found


def _differs(old: pa.ChunkedArray, new: pa.ChunkedArray, pairs: tuple[Ints, Ints]) -> bool:
    """Whether the values of some pair differ."""
    both = pa.chunked_array([*old.take(pa.array(pairs[0])).chunks, *new.take(pa.array(pairs[1])).chunks], old.type)
    codes, count = value_codes(both.combine_chunks()), len(pairs[0])
    return not np.array_equal(codes[:count], codes[count:])


def _chosen(live: LakeRows, chosen: Bools) -> LakeRows:
    return LakeRows(live.path, live.positions[chosen], live.rows.filter(pa.array(chosen)))
