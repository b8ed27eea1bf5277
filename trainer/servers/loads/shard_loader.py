"""A server loads the rows that it owns from the shards of a checkpoint, also from those of another number of servers.

Each file is read to its end and verified. Of shards that other servers have written only those are read that may hold own rows: as many
servers as then read one shard each, and half as many two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainer.checkpoints.commit_manifest import TABLE_COLUMNS, array_name
from trainer.checkpoints.merge_tables import check_rows, newest_of_layers
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.read import read_shards, stored_shard
from trainer.checkpoints.run_files import RunFiles
from trainer.checkpoints.shard_manifest import check_server_shards
from trainer.checkpoints.shard_name import ShardName
from trainer.checkpoints.shard_rows import ColumnRange
from trainer.checkpoints.shards.shard_orders import LoadOrder, LoadProgress, SavedTable
from trainer.checkpoints.stored_commit import StoredFile, StoredPart, StoredShard, StoredSlice, layered_slice
from trainer.checkpoints.table_sections import OWNER_SECTIONS, owner_section, section_name, steps_since_base
from trainer.checkpoints.table_windows import SliceWindow, read_windows
from trainer.errors import ConfigError, TornCheckpoint
from trainer.servers.allowed_runs import AllowedRuns
from trainer.servers.held_rows import HeldRows
from trainer.servers.loads.owned_rows import OwnedRows
from trainer.servers.loads.sliced_values import SliceValues, joined_values
from trainer.servers.loads.whole_tables import SourceRows, WholePart, is_whole, joined_layers, load_whole_tables
from trainer.tables.engine import ChangedRows, TableState
from trainer.tables.routes.servers.table_documents import HeldTable
from trainer.tables.state_checks import check_state
from trainer.tables.stores.hashed.saved_history import AGES
from transforms.arrays import Array

_WINDOW_BYTES = 16 << 20
#: How long one request of a load reads, at least one window.
_REQUEST_SECS = 1.0


class ShardLoader:
    """Loads shards of the runs that the server may read, one order at a time, some windows at each request."""

    def __init__(self, runs: AllowedRuns, clock: Callable[[], float] = time.monotonic) -> None:
        self._runs, self._clock = runs, clock
        self._order = ""
        self._steps: Iterator[LoadProgress] = iter(())
        self._progress = LoadProgress(0)

    def follow(self, order: LoadOrder, rows: HeldRows) -> LoadProgress:
        """Begin an order, or go on with it, inside a load.

        Raises :class:`ConfigError` for another run than those allowed or other tables, and :class:`TornCheckpoint` for damaged shards.
        """
        self._runs.check(order.run)
        if order.order != self._order:
            self._order, self._steps, self._progress = order.order, _load(order, rows), LoadProgress(0)
        until = self._clock() + _REQUEST_SECS
        for progress in self._steps:
            self._progress = progress
            if self._clock() >= until:
                break
        return self._progress


@dataclass(frozen=True, slots=True)
class _Source:
    """The files of one table in a shard, or of a slice of its columns with its number; ``is_hashed``: ages of rows are among them."""

    files: RunFiles
    part: StoredPart
    kind: str
    table: str
    number: int | None = None
    is_hashed: bool = False

    def file(self, name: str) -> StoredFile:
        found = self.part.arrays.get(name)
        if found is None:
            raise TornCheckpoint("a shard must have the arrays of its tables", where=self.where, value=f"no {name}")
        return found

    @property
    def where(self) -> str:
        return f"{self.kind} table {self.table}"

    @property
    def shard(self) -> StoredShard:
        names = (array_name(self.kind, column, self.table, self.number) for column in TABLE_COLUMNS)
        rows, weights, slots = map(self.file, names)
        return StoredShard(rows, weights, slots)

    def section(self, section: str) -> Array:
        """See :class:`~trainer.servers.loads.whole_tables.Source`."""
        if section in OWNER_SECTIONS:
            return owner_section(self.files, self.part, self.kind, section, self.table)
        return self.file(section_name(self.kind, section, self.table)).array(self.files)

    @property
    def base(self) -> _Source | None:
        """The same files in the full shard that has the rows which this one leaves out; None for a full one."""
        base = self.part.base if self.part.is_partial(self.kind, self.table) else None
        return None if base is None else replace(self, part=base)

    def owned(self, own: OwnedRows) -> SourceRows:
        """See :class:`~trainer.servers.loads.whole_tables.Source`."""
        base, found = self.base, self._owned_here(own)
        if base is None:
            return found
        before = base._owned_here(own)
        return joined_layers(before, found, own.own(self.removed_rows())[1], self._steps_since(), self.where)

    def _owned_here(self, own: OwnedRows) -> SourceRows:
        """The owned rows in these files."""
        shard = self.shard
        rows, weights, slots = (one.array(self.files) for one in (shard.rows, shard.weights, shard.slots))
        if rows.dtype != np.int64 or {len(weights), len(slots)} != {len(rows)}:
            raise TornCheckpoint("a shard must have values of each of its rows", where=self.where,
                                 value=(len(rows), len(weights), len(slots)))  # fmt: skip
        ages = self.section(AGES) if self.is_hashed else None
        if ages is not None and (ages.dtype != np.int64 or len(ages) != len(rows)):
            raise TornCheckpoint("a hashed table must have an age for each of its rows", where=self.where,
                                 value=(len(rows), len(ages)))  # fmt: skip
        mine, numbers = own.own(rows)
        read_bytes = sum(one.file.size_bytes for one in (shard.rows, shard.weights, shard.slots))
        return SourceRows(numbers, weights[mine], slots[mine], None if ages is None else ages[mine], read_bytes)

    def removed_rows(self) -> Array:
        """The rows of the table that its base has, and it has not. Raises :class:`TornCheckpoint`."""
        stored = self.part.removed(self.kind, self.table)
        rows = np.zeros(0, np.int64) if stored is None else stored.array(self.files)
        check_rows(rows, self.where)
        return rows

    def _steps_since(self) -> int:
        """The steps by which rows that only the base has are older than it says."""
        return steps_since_base(self.files, self.part, self.kind, self.table) if self.is_hashed else 0

    @property
    def rows(self) -> int:
        """The stored rows, by the size of their file."""
        return max(self.shard.rows.file.size_bytes - _HEADER_BYTES, 0) // 8


#: Of an npy file.
_HEADER_BYTES = 128


@dataclass(frozen=True, slots=True)
class _StoredPart:
    """One of the saved parts of a server, or some of its columns, as the shards have them.

    Attributes:
        sources: the files in each shard, of a slice of columns in each one with rows of it.
        own: those of ``sources`` that may have rows of the server.
        rows: the rows of the part that the server owns.
        columns: which columns of the table the files have.
    """

    sources: Sequence[_Source]
    own: Sequence[int]
    rows: OwnedRows
    columns: ColumnRange

    @property
    def slice(self) -> StoredSlice:
        """The files that may have rows of the server."""
        parts, one = [self.sources[k].part for k in self.own], self.sources[0]
        return layered_slice(parts, one.kind, one.table, one.number, self.columns)

    @property
    def whole(self) -> WholePart:
        """A part of a hashed or pruned table."""
        return WholePart(self.sources, self.own, self.rows)


def _load(order: LoadOrder, rows: HeldRows) -> Iterator[LoadProgress]:
    held, files = rows.held, open_run(order.run)
    if len(order.tables) != len(held.saved_parts):
        raise ConfigError("shards must be loaded into the tables of a server", value=len(order.tables),
                          allowed=f"{len(held.saved_parts)} tables")  # fmt: skip
    names = [ShardName.parse(text, f"shard {k} of an order") for k, text in enumerate(order.shards)]
    manifests = read_shards(files, names)
    check_server_shards(order.step, manifests, order.run)
    parts = [stored_shard(files, name, manifest) for name, manifest in manifests]
    stored, pieces = list[int](), list[list[_StoredPart]]()
    for saved, part in zip(order.tables, held.saved_parts, strict=True):
        pieces.append(_stored_parts(files, parts, saved, held.tables[part.table], part.dim))
        # all slices of columns have the same rows, or a server finds that they have not
        stored.append(_stored_rows(pieces[-1][0].sources[order.server :: order.servers]))
    read_bytes, loaded = 0, [0] * len(pieces)
    for p, rows_, bytes_ in _load_parts(order, rows, pieces):
        read_bytes += bytes_
        loaded[p] += rows_
        yield LoadProgress(read_bytes)
    yield LoadProgress(read_bytes, True, tuple(loaded), tuple(stored))


def _stored_parts(
    files: RunFiles, parts: Sequence[StoredPart], saved: SavedTable, held: HeldTable, dim: int
) -> list[_StoredPart]:
    """A saved part of a server that has ``dim`` columns, by each slice of columns that shards have of it."""
    of_shards = [one.shard.slices_of(saved.kind, saved.table) for one in parts if one.shard is not None]
    if not all(of_shards):
        raise TornCheckpoint("a shard must have all tables of the run", where=f"{saved.kind} table {saved.table}", value="none")  # fmt: skip
    whole, wanted, found = saved.columns or dim, ColumnRange(held.origin.first_column, dim), list[_StoredPart]()
    rows = OwnedRows.of(held.origin, saved.rows)
    for s, first in enumerate(of_shards[0]):
        own = ColumnRange(first.first_column, first.columns or whole)
        if own.shared_with(wanted) is None:
            continue
        number, having = (s, [k for k, one in enumerate(of_shards) if one[s].rows]) if first.columns else (None, [*range(len(parts))])  # fmt: skip
        is_hashed = held.limits is not None
        sources = [_Source(files, parts[k], saved.kind, saved.table, number, is_hashed) for k in having]
        stored = [of_shards[k][s] for k in having]
        mine = [k for k, one in enumerate(stored) if rows.remainder(OwnedRows(one.row_stride, one.row_first, one.rows)) is not None]  # fmt: skip
        found.append(_StoredPart(sources, mine, rows, own))
    last = of_shards[0][-1]
    if last.columns and last.first_column + last.columns != whole:
        raise TornCheckpoint("the slices of a table must have all its columns", where=f"{saved.kind} table {saved.table}",
                             value=last.first_column + last.columns, allowed=str(whole))  # fmt: skip
    return found


def _load_parts(
    order: LoadOrder, rows: HeldRows, pieces: Sequence[Sequence[_StoredPart]]
) -> Iterator[tuple[int, int, int]]:
    """Load all saved parts; yields the number of each, the rows that were loaded and the bytes that were read."""
    held = rows.held
    for p in range(len(held.tables)):
        if pieces[p][0].rows.count and not is_whole(held, p):
            yield from ((p, rows_, bytes_) for rows_, bytes_ in _load_dense(rows, p, pieces[p]))
    whole = {p: pieces[p][0].whole for p, one in enumerate(held.saved_parts) if is_whole(held, one.table)}
    yield from load_whole_tables(rows, whole, order.server, order.servers)


def _load_dense(rows: HeldRows, p: int, slices: Sequence[_StoredPart]) -> Iterator[tuple[int, int]]:
    """Load a table, or a slice of its columns, window by window; yields the rows that were loaded and the bytes that were read."""
    if not all(one.own for one in slices):
        return  # some columns are in no shard: fewer rows are loaded than are stored
    held, source, owned = rows.held.tables[p], slices[0].sources[0], slices[0].rows
    dim = int(rows.dims[p])
    stored_columns = sum(one.columns.columns for one in slices)
    row_bytes = 8 * len(slices) + 4 * stored_columns * int(dim + rows.slot_dims[p]) // dim
    wanted, stored = ColumnRange(held.origin.first_column, dim), [one.slice for one in slices]

    def are_own(found: Array) -> Array:
        return owned.own(found)[0]

    for window in read_windows(source.files, stored, _WINDOW_BYTES, row_bytes, source.where, wanted=are_own):
        _, own = owned.own(window.rows)
        values = [_values(one, of.columns) for one, of in zip(window.slices, slices, strict=True)]
        state = TableState(own, *joined_values(values, wanted, source.where))
        check_state(held.table, state)
        rows.load(p, ChangedRows(state.rows, state.weights, state.slots))
        yield len(own), sum(8 * len(one.weights) + one.weights.nbytes + one.slots.nbytes for one in window.slices)


def _values(window: SliceWindow, columns: ColumnRange) -> SliceValues:
    """The values of a slice, in the order of the window's rows."""
    weights, slots = (
        one if window.order is None else one.take(window.order, axis=0) for one in (window.weights, window.slots)
    )
    return SliceValues(columns, weights, slots)


def _stored_rows(sources: Sequence[_Source]) -> int:
    """The rows of a table in some shards, by the sizes of files, or by the rows themselves where a shard has a base."""
    total = 0
    for one in sources:
        if (base := one.base) is None:
            total += one.rows
            continue
        layers = [each.shard.rows.array(one.files) for each in (base, one)]
        total += len(newest_of_layers(layers, 1, one.removed_rows(), one.where)[0])
    return total
