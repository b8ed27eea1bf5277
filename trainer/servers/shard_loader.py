"""A server loads the rows that it owns from the shards of a checkpoint, also from those of another number of servers.

Each file is read to its end and verified. Of shards that other servers have written only those are read that may hold own rows: as many
servers as then read one shard each, and half as many two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from trainer.checkpoints.commit_manifest import TABLE_COLUMNS, array_name
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.read import read_shards, stored_shard
from trainer.checkpoints.run_files import RunFiles
from trainer.checkpoints.shard_manifest import ShardTable, check_server_shards
from trainer.checkpoints.shard_name import ShardName
from trainer.checkpoints.shards.shard_orders import LoadOrder, LoadProgress, SavedTable
from trainer.checkpoints.stored_commit import StoredFile, StoredPart, StoredShard, layered_slice
from trainer.checkpoints.table_sections import section_name
from trainer.checkpoints.table_windows import SliceWindow, read_windows
from trainer.errors import ConfigError, TornCheckpoint
from trainer.servers.allowed_runs import AllowedRuns
from trainer.servers.held_rows import HeldRows
from trainer.tables.engine import ChangedRows, TableState
from trainer.tables.kernels.layout import TableOrigin
from trainer.tables.routes.servers.table_documents import HeldTable
from trainer.tables.state_checks import check_state
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.stores.hashed.saved_history import AGES, CANDIDATES, STEPS, loaded_history, newest_rows
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
    """The files of one table in a shard: its place among the shards, and their names without the table."""

    files: RunFiles
    part: StoredPart
    kind: str
    table: str

    def file(self, name: str) -> StoredFile:
        found = self.part.arrays.get(name)
        if found is None:
            raise TornCheckpoint("a shard must have the arrays of its tables", where=f"{self.kind} table {self.table}", value=f"no {name}")  # fmt: skip
        return found

    @property
    def shard(self) -> StoredShard:
        rows, weights, slots = (self.file(array_name(self.kind, column, self.table)) for column in TABLE_COLUMNS)
        return StoredShard(rows, weights, slots)

    def section(self, section: str) -> Array:
        return self.file(section_name(self.kind, section, self.table)).array(self.files)

    @property
    def size_bytes(self) -> int:
        return sum(one.file.size_bytes for one in (self.shard.rows, self.shard.weights, self.shard.slots))

    @property
    def rows(self) -> int:
        """The stored rows, by the size of their file."""
        return max(self.shard.rows.file.size_bytes - _HEADER_BYTES, 0) // 8


#: Of an npy file.
_HEADER_BYTES = 128


def _load(order: LoadOrder, rows: HeldRows) -> Iterator[LoadProgress]:
    held, files = rows.held, open_run(order.run)
    if len(order.tables) != len(held.tables) or held.pruning is not None:
        raise ConfigError("shards must be loaded into the tables of a server, none of them pruned", value=len(order.tables),
                          allowed=f"{len(held.tables)} tables")  # fmt: skip
    names = [ShardName.parse(text, f"shard {k} of an order") for k, text in enumerate(order.shards)]
    manifests = read_shards(files, names)
    check_server_shards(order.step, manifests, order.run)
    parts = [stored_shard(files, name, manifest) for name, manifest in manifests]
    read_bytes, loaded, stored = 0, [], []
    for p, (saved, table) in enumerate(zip(order.tables, held.tables, strict=True)):
        sources = [_Source(files, part, saved.kind, saved.table) for part in parts]
        stored.append(_stored_rows(sources[order.server :: order.servers]))
        loaded.append(0)
        if not saved.rows:
            continue
        own = [
            k
            for k, (_, manifest) in enumerate(manifests)
            if _may_share(_table_of(manifest.shard.tables, saved), table.origin, saved.rows)
        ]
        if table.limits is not None:
            steps = _load_hashed(order, rows, p, sources, own, saved.rows)
        else:
            steps = _load_dense(rows, p, [sources[k] for k in own], saved.rows)
        for rows_, bytes_ in steps:
            read_bytes, loaded[-1] = read_bytes + bytes_, loaded[-1] + rows_
            yield LoadProgress(read_bytes)
    yield LoadProgress(read_bytes, True, tuple(loaded), tuple(stored))


def _table_of(tables: Sequence[ShardTable], saved: SavedTable) -> ShardTable:
    for one in tables:
        if (one.kind, one.table) == (saved.kind, saved.table):
            return one
    raise TornCheckpoint("a shard must have all tables of the run", where=f"{saved.kind} table {saved.table}", value="none")  # fmt: skip


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


def _load_dense(rows: HeldRows, p: int, sources: Sequence[_Source], count: int) -> Iterator[tuple[int, int]]:
    """Load a table window by window; yields the rows that were loaded and the bytes that were read."""
    if not sources:
        return
    held = rows.held.tables[p]
    where = f"{sources[0].kind} table {sources[0].table}"
    slices = [layered_slice([one.part for one in sources], sources[0].kind, sources[0].table)]
    row_bytes = 8 + 4 * int(rows.dims[p] + rows.slot_dims[p])
    for window in read_windows(sources[0].files, slices, _WINDOW_BYTES, row_bytes, where):
        (found,) = window.slices
        mine, own = _own_rows(window.rows, held.origin, count)
        state = TableState(own, _taken(found, found.weights, mine), _taken(found, found.slots, mine))
        check_state(held.table, state)
        rows.load(p, ChangedRows(state.rows, state.weights, state.slots))
        yield len(own), len(window.rows) * row_bytes


def _taken(window: SliceWindow, values: Array, mine: Array) -> Array:
    ordered = values if window.order is None else values.take(window.order, axis=0)
    return ordered if mine.all() else ordered[mine]


def _load_hashed(
    order: LoadOrder, rows: HeldRows, p: int, sources: Sequence[_Source], own: Sequence[int], count: int
) -> Iterator[tuple[int, int]]:
    """Load a hashed table, with the memory of the rows that the server owns; as training loads it from arrays."""
    held = rows.held.tables[p]
    limits: TableLimits | None = held.limits
    assert limits is not None
    pieces, read_bytes = [], 0
    for k in own:
        read_bytes += sources[k].size_bytes
        pieces.append(_hashed_piece(sources[k], held, count))
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
    row_bytes = 16 + 4 * int(rows.dims[p] + rows.slot_dims[p])
    step = max(_WINDOW_BYTES // row_bytes, 1)
    for first in range(0, len(state.rows), step):
        at = slice(first, first + step)
        rows.load(p, ChangedRows(state.rows[at], state.weights[at], state.slots[at]), ages[at])
    yield len(state.rows), read_bytes


def _hashed_piece(source: _Source, held: HeldTable, count: int) -> tuple[Array, Array, Array, Array]:
    """The ids, weights, slots and ages that a server owns of a shard."""
    shard = source.shard
    rows, weights, slots = (one.array(source.files) for one in (shard.rows, shard.weights, shard.slots))
    ages = source.section(AGES)
    if rows.dtype != np.int64 or ages.dtype != np.int64 or {len(weights), len(slots), len(ages)} != {len(rows)}:
        raise TornCheckpoint("a hashed table must have values and an age for each of its rows", where=f"{source.kind} table {source.table}",
                             value=(len(rows), len(weights), len(slots), len(ages)))  # fmt: skip
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
        of_both = [
            _Source(one.files, part, one.kind, one.table).shard.rows.array(one.files) for part in (base, one.part)
        ]
        total += len(np.union1d(*of_both))
    return total
