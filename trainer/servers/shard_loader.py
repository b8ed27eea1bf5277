"""A server loads the rows that it owns from the shards of a checkpoint, also from those of another number of servers.

Each file is read to its end and verified. Of shards that other servers have written only those are read that may hold own rows: as many
servers as then read one shard each, and half as many two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from trainer.checkpoints.commit_manifest import TABLE_COLUMNS, array_name
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.read import read_shards, stored_shard
from trainer.checkpoints.run_files import RunFiles
from trainer.checkpoints.shard_manifest import ShardTable, check_server_shards
from trainer.checkpoints.shard_name import ShardName
from trainer.checkpoints.shard_rows import ColumnRange, cut_columns, joined_columns, slots_of_slices
from trainer.checkpoints.shards.shard_orders import LoadOrder, LoadProgress, SavedTable
from trainer.checkpoints.stored_commit import StoredFile, StoredPart, StoredShard, StoredSlice, layered_slice
from trainer.checkpoints.table_sections import section_name
from trainer.checkpoints.table_windows import SliceWindow, Window, read_windows
from trainer.errors import ConfigError, TornCheckpoint
from trainer.servers.allowed_runs import AllowedRuns
from trainer.servers.held_rows import HeldRows
from trainer.tables.engine import ChangedRows, TableSections, TableState
from trainer.tables.hashed_history import KeptHistory
from trainer.tables.kernels.layout import TableOrigin
from trainer.tables.kernels.threads import Team
from trainer.tables.routes.servers.pruned_servers import OwnRows, loads_of_server
from trainer.tables.routes.servers.table_documents import HeldPruning, HeldTable
from trainer.tables.spec import TableSpec
from trainer.tables.state_checks import check_state
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.stores.hashed.saved_history import (
    AGES,
    CANDIDATES,
    STEPS,
    LoadedHistory,
    loaded_history,
    newest_rows,
)
from trainer.tables.stores.pruned.history import NUMBERS, PrunedHistory, kept_numbers
from trainer.tables.stores.pruned.saved_parts import SavedPart
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
    """The files of one table in a shard, or of a slice of its columns with its number."""

    files: RunFiles
    part: StoredPart
    kind: str
    table: str
    number: int | None = None

    def file(self, name: str) -> StoredFile:
        found = self.part.arrays.get(name)
        if found is None:
            raise TornCheckpoint("a shard must have the arrays of its tables", where=f"{self.kind} table {self.table}", value=f"no {name}")  # fmt: skip
        return found

    @property
    def shard(self) -> StoredShard:
        names = (array_name(self.kind, column, self.table, self.number) for column in TABLE_COLUMNS)
        rows, weights, slots = map(self.file, names)
        return StoredShard(rows, weights, slots)

    def section(self, section: str) -> Array:
        return self.file(section_name(self.kind, section, self.table)).array(self.files)

    def whole(self) -> tuple[Array, Array, Array]:
        """The rows, weights and slots of a part that is always saved as a whole."""
        shard = self.shard
        rows, weights, slots = (one.array(self.files) for one in (shard.rows, shard.weights, shard.slots))
        if (
            self.part.is_partial(self.kind, self.table)
            or rows.dtype != np.int64
            or {len(weights), len(slots)} != {len(rows)}
        ):
            raise TornCheckpoint("a shard must have all rows of hashed and pruned tables, with values of each", where=f"{self.kind} table {self.table}",
                                 value=(len(rows), len(weights), len(slots)))  # fmt: skip
        return rows, weights, slots

    @property
    def size_bytes(self) -> int:
        return sum(one.file.size_bytes for one in (self.shard.rows, self.shard.weights, self.shard.slots))

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
        count: the rows of the part that the server owns.
        columns: which columns of the table the files have.
    """

    sources: Sequence[_Source]
    own: Sequence[int]
    count: int
    columns: ColumnRange

    @property
    def slice(self) -> StoredSlice:
        """The files that may have rows of the server."""
        parts, one = [self.sources[k].part for k in self.own], self.sources[0]
        return layered_slice(parts, one.kind, one.table, one.number, self.columns)

    def read(self, dim: int, slot_dim: int, origin: TableOrigin) -> tuple[TableState, int]:
        """All rows that the server owns, ascending, by its numbers; and the bytes that were read."""
        read_bytes, found = (
            0,
            [(np.zeros(0, np.int64), np.zeros((0, dim), np.float32), np.zeros((0, slot_dim), np.float32))],
        )
        for source in (self.sources[k] for k in self.own):
            read_bytes += source.size_bytes
            rows, weights, slots = source.whole()
            mine, own = _own_rows(rows, origin, self.count)
            found.append((own, weights[mine], slots[mine]))
        rows, weights, slots = (np.concatenate(column) for column in zip(*found, strict=True))
        by_row = np.argsort(rows, kind="stable")
        return TableState(rows[by_row], weights[by_row], slots[by_row]), read_bytes


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
        pieces.append(_stored_parts(files, parts, saved, held.tables[part.table].origin, part.dim))
        # all slices of columns have the same rows, or a server finds that they have not
        stored.append(_stored_rows(pieces[-1][0].sources[order.server :: order.servers]))
    read_bytes, loaded = 0, [0] * len(pieces)
    for p, rows_, bytes_ in _load_parts(order, rows, pieces):
        read_bytes += bytes_
        loaded[p] += rows_
        yield LoadProgress(read_bytes)
    yield LoadProgress(read_bytes, True, tuple(loaded), tuple(stored))


def _stored_parts(
    files: RunFiles, parts: Sequence[StoredPart], saved: SavedTable, origin: TableOrigin, dim: int
) -> list[_StoredPart]:
    """A saved part of a server that has ``dim`` columns, by each slice of columns that shards have of it."""
    of_shards = [one.shard.slices_of(saved.kind, saved.table) for one in parts if one.shard is not None]
    if not all(of_shards):
        raise TornCheckpoint("a shard must have all tables of the run", where=f"{saved.kind} table {saved.table}", value="none")  # fmt: skip
    whole, wanted, found = saved.columns or dim, ColumnRange(origin.first_column, dim), list[_StoredPart]()
    for s, first in enumerate(of_shards[0]):
        own = ColumnRange(first.first_column, first.columns or whole)
        if own.shared_with(wanted) is None:
            continue
        number, held = (s, [k for k, one in enumerate(of_shards) if one[s].rows]) if first.columns else (None, [*range(len(parts))])  # fmt: skip
        sources = [_Source(files, parts[k], saved.kind, saved.table, number) for k in held]
        mine = [i for i, k in enumerate(held) if saved.rows and _may_share(of_shards[k][s], origin, saved.rows)]
        found.append(_StoredPart(sources, mine, saved.rows, own))
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
    for p, table in enumerate(held.tables):
        slices, is_hashed = pieces[p], table.limits is not None
        if not slices[0].count or not (is_hashed or held.pruning is None):
            continue
        steps = _load_hashed(order, rows, p, slices[0]) if is_hashed else _load_dense(rows, p, slices)
        yield from ((p, rows_, bytes_) for rows_, bytes_ in steps)
    if held.pruning is not None:
        yield from _load_pruned(rows, held.pruning, [one for (one,) in pieces])


def _may_share(stored: ShardTable, own: TableOrigin, own_rows: int) -> bool:
    """Whether a shard may hold rows that a server owns, by the remainders and the first and last of both."""
    if not stored.rows:
        return False
    if (stored.row_first - own.row_first) % gcd(stored.row_stride, own.row_stride):
        return False
    last = stored.row_first + stored.row_stride * (stored.rows - 1)
    own_last = own.row_first + own.row_stride * (own_rows - 1)
    return stored.row_first <= own_last and own.row_first <= last


def _own_rows(rows: Array, origin: TableOrigin, count: int) -> tuple[Array, Array]:
    """Which rows of the table a server owns, as a mask, and their numbers there."""
    own = (rows - origin.row_first) // origin.row_stride
    mine = (own >= 0) & (own < count) & (own * origin.row_stride + origin.row_first == rows)
    return mine, own[mine]


def _load_dense(rows: HeldRows, p: int, slices: Sequence[_StoredPart]) -> Iterator[tuple[int, int]]:
    """Load a table, or a slice of its columns, window by window; yields the rows that were loaded and the bytes that were read."""
    if not all(one.own for one in slices):
        return  # some columns are in no shard: fewer rows are loaded than are stored
    held, source = rows.held.tables[p], slices[0].sources[0]
    where, dim = f"{source.kind} table {source.table}", int(rows.dims[p])
    stored_columns = sum(one.columns.columns for one in slices)
    row_bytes = 8 * len(slices) + 4 * stored_columns * int(dim + rows.slot_dims[p]) // dim
    wanted, stored = ColumnRange(held.origin.first_column, dim), [one.slice for one in slices]

    def are_own(found: Array) -> Array:
        return _own_rows(found, held.origin, slices[0].count)[0]

    for window in read_windows(source.files, stored, _WINDOW_BYTES, row_bytes, where, wanted=are_own):
        _, own = _own_rows(window.rows, held.origin, slices[0].count)
        state = TableState(own, *_values(window, slices, wanted, where))
        check_state(held.table, state)
        rows.load(p, ChangedRows(state.rows, state.weights, state.slots))
        yield len(own), sum(8 * len(one.weights) + one.weights.nbytes + one.slots.nbytes for one in window.slices)


def _values(window: Window, slices: Sequence[_StoredPart], wanted: ColumnRange, where: str) -> tuple[Array, Array]:
    """The weights and slots of a window's rows in the wanted columns. Raises :class:`TornCheckpoint`."""
    shared, pieces = [], []
    for found, one in zip(window.slices, slices, strict=True):
        own = one.columns.shared_with(wanted)
        assert own is not None, "other slices are not read"
        shared.append(own)
        pieces.append(_cut(found, one.columns, own, where))
    if len(pieces) == 1:
        return pieces[0]
    weights, slots = zip(*pieces, strict=True)
    slots_of_slices(shared, [one.shape[1] for one in weights], where)
    each = slots_of_slices(shared, [one.shape[1] for one in slots], where)
    return joined_columns(weights, 1), joined_columns(slots, each)


def _cut(window: SliceWindow, columns: ColumnRange, own: ColumnRange, where: str) -> tuple[Array, Array]:
    """Some of the columns of a window of a slice."""
    weights, slots = (
        one if window.order is None else one.take(window.order, axis=0) for one in (window.weights, window.slots)
    )
    if own.columns == columns.columns:
        return weights, slots
    if weights.shape[1] != columns.columns or slots.shape[1] % columns.columns:
        raise TornCheckpoint("a slice must have a value of each slot for each of its columns", where=where,
                             value=(weights.shape[1], slots.shape[1]), allowed=f"{columns.columns} columns")  # fmt: skip
    cut = cut_columns(weights, 1, own), cut_columns(slots, slots.shape[1] // columns.columns, own)
    return np.ascontiguousarray(cut[0]), np.ascontiguousarray(cut[1])


def _load_pruned(rows: HeldRows, pruning: HeldPruning, pieces: Sequence[_StoredPart]) -> Iterator[tuple[int, int, int]]:
    """Load pruned tables group by group, with the memory of what the server owns of one; as training loads them from arrays."""
    held, team = rows.held, Team(1)
    tables = [t for group in pruning.groups for t in group.tables]
    numbers = {t: pieces[t].sources[0].section(NUMBERS) for t in tables}
    for group in pruning.groups:
        own, bytes_of = dict[int, OwnRows](), dict[int, int]()
        for t in group.tables:
            states = dict[str, TableState]()
            for p, part in enumerate(held.saved_parts):
                if part.table == t:
                    states[part.section], bytes_of[p] = pieces[p].read(part.dim, part.slot_dim, held.tables[t].origin)
            of_table = states.pop("")
            check_state(held.tables[t].table, of_table)
            history = _history_of(held.tables[t].table, states, numbers[t])
            own[t] = OwnRows(of_table, pieces[t].count, states)
        loads = loads_of_server(pruning, len(held.tables), own, LoadedHistory(history), seed=held.seed, team=team)
        for p, state, loaded in loads:
            if loaded is not None:
                rows.load_history(p, loaded.kept, 0)
            for window in _windows(rows.saved_parts[p], state):
                rows.load(p, window)
            yield p, len(state.rows), bytes_of[p]


def _history_of(table: TableSpec, sections: Mapping[str, TableState], numbers: Array) -> KeptHistory:
    """The numbers of a pruned table. Raises :class:`TornCheckpoint` for numbers, or for importance of rows, that it cannot have."""
    found = PrunedHistory.read(table.name, TableSections(dict(sections), {NUMBERS: numbers}))
    assert found is not None, "both of its sections are there"
    found.check(table)
    return kept_numbers(found.gain, found.step, found.rounds)


def _windows(part: SavedPart, state: TableState) -> Iterator[ChangedRows]:
    step = max(_WINDOW_BYTES // (8 + 4 * (part.dim + part.slot_dim)), 1)
    for first in range(0, len(state.rows), step):
        at = slice(first, first + step)
        yield ChangedRows(state.rows[at], state.weights[at], state.slots[at])


def _load_hashed(order: LoadOrder, rows: HeldRows, p: int, piece: _StoredPart) -> Iterator[tuple[int, int]]:
    """Load a hashed table, with the memory of the rows that the server owns; as training loads it from arrays."""
    held, sources = rows.held.tables[p], piece.sources
    limits: TableLimits | None = held.limits
    assert limits is not None
    pieces, read_bytes = [], 0
    for k in piece.own:
        read_bytes += sources[k].size_bytes
        pieces.append(_hashed_piece(sources[k], held, piece.count))
    ids, weights, slots, ages = (np.concatenate(column) for column in zip(*pieces, strict=True))
    by_id = np.argsort(ids, kind="stable")
    state = TableState(ids[by_id], weights[by_id], slots[by_id])
    check_state(held.table, state)
    state, ages, evicted = newest_rows(state, ages[by_id], limits.capacity)
    steps, candidates = np.concatenate([one.section(STEPS) for one in sources]), np.zeros(0, np.uint64)
    is_same = len(steps) == order.servers == len(sources)
    if is_same:
        found = sources[order.server].section(CANDIDATES)
        candidates = found if len(found) == limits.table(held.table).candidate_places else candidates
    history = loaded_history(int(steps[order.server] if is_same else steps.max()), ages, candidates, evicted)
    rows.load_history(p, history.kept, 0)
    first = 0
    for window in _windows(rows.saved_parts[p], state):
        rows.load(p, window, ages[first : first + len(window.rows)])
        first += len(window.rows)
    yield len(state.rows), read_bytes


def _hashed_piece(source: _Source, held: HeldTable, count: int) -> tuple[Array, Array, Array, Array]:
    """The ids, weights, slots and ages that a server owns of a shard."""
    rows, weights, slots = source.whole()
    ages = source.section(AGES)
    if ages.dtype != np.int64 or len(ages) != len(rows):
        raise TornCheckpoint("a hashed table must have an age for each of its rows", where=f"{source.kind} table {source.table}",
                             value=(len(rows), len(ages)))  # fmt: skip
    mine, own = _own_rows(rows, held.origin, count)
    return own, weights[mine], slots[mine], ages[mine]


def _stored_rows(sources: Sequence[_Source]) -> int:
    """The rows of a table in some shards, by the sizes of files, or by the rows themselves where a shard has a base."""
    total = 0
    for one in sources:
        base = one.part.base
        if base is None or not one.part.is_partial(one.kind, one.table):
            total += one.rows
            continue
        of_both = [replace(one, part=part).shard.rows.array(one.files) for part in (base, one.part)]
        total += len(np.union1d(*of_both))
    return total
