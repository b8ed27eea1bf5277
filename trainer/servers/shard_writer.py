"""A server's shard of a checkpoint, written from its snapshot in a thread while training goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from trainer.checkpoints.parted_arrays import ArrayKind, PartedArrays
from trainer.checkpoints.shard_manifest import ServerShard, ShardTable, lines_name, removed_name
from trainer.checkpoints.shard_name import ShardName
from trainer.checkpoints.shards.reach import answer_probe
from trainer.checkpoints.shards.shard_orders import Reach, ReachOrder, SavedTable, ShardProgress, WriteOrder
from trainer.checkpoints.shards.write_shard import find_shard, write_shard
from trainer.checkpoints.table_sections import section_name
from trainer.errors import CheckpointNotWritten, ConfigError, ServerLost
from trainer.run.weights.saved_tables import check_finite_values, table_arrays
from trainer.servers.allowed_runs import AllowedRuns
from trainer.servers.changed_since import ChangedRowsOf, ChangedSince, SnapshotInterval
from trainer.servers.held_rows import HeldRows
from trainer.servers.loads.whole_tables import is_whole
from trainer.tables.engine import ChangedRows
from trainer.tables.routes.servers.table_documents import HeldTable, HeldTables
from trainer.tables.stores.dense.snapshot import RANGE_BYTES, rows_of_range
from trainer.tables.stores.hashed.options import WAYS
from trainer.tables.stores.hashed.saved_history import AGES, CANDIDATES, STEPS
from trainer.tables.stores.pruned.history import NUMBERS, numbers_array, read_numbers
from trainer.tables.stores.pruned.saved_parts import SavedPart
from trainer.tables.stores.row_store import KeptSnapshot
from transforms.arrays import Array
from transforms.errors import HeadraceError, InputError

_LOG = logging.getLogger(__name__)
#: A shard is full if more than this share of rows was changed since its base: so two shards of a server have at most 1.5 times its rows.
_MOST_SHARE = 0.5
#: So much is written again if the process of a server ends meanwhile; of larger shards the rows that are written are kept no longer.
_AGAIN_BYTES = 256 << 20
#: Rows that are counted at once.
_COUNTED_ROWS = 1 << 22
#: How long the writing of an earlier order may take to end.
_END_SECS = 10.0
#: A small shard is written at once.
_FIRST_SECS = 0.2
_MOST_REASON = 400


class ShardWriting:
    """The writing of one order, which begins with its construction.

    The snapshot keeps all rows until some hundred MB are written, so that another process of the server can begin again, and then those alone
    whose bytes are not written yet. Raises :class:`ConfigError` for an order of other tables than those held.
    """

    def __init__(self, order: WriteOrder, rows: HeldRows, snapshot: KeptSnapshot, interval: SnapshotInterval) -> None:
        held = rows.held
        self.order, self._rows_of, self._to_leave = order.order, rows, dict[int, int]()
        self._changed, self._interval = rows.changed, interval.number
        self._run, self._snapshot = order.run, snapshot
        self._unread = sum(1 for one in order.tables if one.rows)
        self._written_bytes = 0
        self._name: ShardName | None = None
        self._error: HeadraceError | None = None
        _check_tables(order, held)
        self._since = _base_of(order, held, rows.changed, interval, snapshot)
        self._base, self._generation = order.base if self._since is not None else "", rows.generation
        shard, saved = self._shard_of(order, held), list(zip(order.tables, held.saved_parts, strict=True))
        parted = [
            self._table(p, one, part, held.tables[part.table], shard.slice_number(shard.tables[p]))
            for p, (one, part) in enumerate(saved)
            if one.rows or not one.columns
        ]
        arrays: dict[str, Array] = {}
        for p, (one, table) in enumerate(zip(order.tables, held.tables, strict=False)):
            if table.limits is not None:
                arrays |= self._history(p, one)
            elif held.pruning is not None:
                arrays[section_name(one.kind, NUMBERS, one.table)] = numbers_array(*read_numbers(snapshot.history(p)))
        if self._since is not None:
            arrays |= self._removed(saved, held, self._since)
        self._thread = threading.Thread(target=self._write, args=(shard, parted, arrays), name="shard", daemon=True)
        self._thread.start()

    def progress(self) -> ShardProgress:
        """What is written. Raises the error that has ended it."""
        is_over = not self._thread.is_alive()
        if is_over and self._error is not None:
            raise self._error
        is_written = is_over and self._name is not None
        return ShardProgress(
            self._written_bytes, str(self._name) if is_written else "", self._base if is_written else ""
        )

    def wait(self, secs: float) -> None:
        """Wait for the end, at most so long."""
        self._thread.join(secs)

    def _write(self, shard: ServerShard, parted: Sequence[PartedArrays], arrays: dict[str, Array]) -> None:
        try:
            self._name = write_shard(self._run, shard, parted, arrays)
            self._snapshot.close()
            if not self._base:
                self._changed.wrote(str(self._name), self._interval)
        except HeadraceError as error:
            self._error = error
        except Exception as error:
            _LOG.exception("the shard of a checkpoint was not written")
            self._error = CheckpointNotWritten("the shard of a checkpoint could not be written", where=self._run, value=repr(error)[:200])  # fmt: skip

    def _history(self, p: int, saved: SavedTable) -> dict[str, Array]:
        """What a hashed table has beside its rows: of candidates, since a base, the lines in which ids were counted."""
        history, since = self._snapshot.history(p), self._since
        arrays, candidates = dict[str, Array](), history.candidates
        if since is not None and saved.rows:
            lines = since.lines(p)
            arrays[lines_name(saved.kind, saved.table)] = lines
            candidates = candidates.reshape(-1, WAYS)[lines].reshape(-1)
        arrays[section_name(saved.kind, STEPS, saved.table)] = np.array([history.step], np.int64)
        arrays[section_name(saved.kind, CANDIDATES, saved.table)] = candidates
        return arrays

    def _removed(
        self, saved: Sequence[tuple[SavedTable, SavedPart]], held: HeldTables, since: ChangedRowsOf
    ) -> dict[str, Array]:
        """The rows of hashed and pruned tables, by their numbers in the whole table, that the base may have and the snapshot has not."""
        found = {}
        for p, (one, part) in enumerate(saved):
            origin = held.tables[part.table].origin
            if one.rows and is_whole(held, part.table):
                rows = self._snapshot.absent(p, since.removed_rows(part.table))
                found[removed_name(one.kind, one.table)] = rows * origin.row_stride + origin.row_first
        return found

    def _shard_of(self, order: WriteOrder, held: HeldTables) -> ServerShard:
        tables = []
        for one, part in zip(order.tables, held.saved_parts, strict=True):
            origin, is_partial = held.tables[part.table].origin, self._since is not None and one.rows > 0
            place = (origin.first_column, part.dim) if one.columns else (0, 0)
            removes = is_partial and is_whole(held, part.table)
            tables.append(
                ShardTable(
                    one.kind, one.table, origin.row_stride, origin.row_first, one.rows, is_partial, *place, removes
                )
            )
        return ServerShard(
            order.attempt, order.server, order.servers, order.step, tuple(tables), self._base, self._generation
        )

    def _table(self, p: int, saved: SavedTable, part: SavedPart, held: HeldTable, number: int | None) -> PartedArrays:
        """The arrays of a saved part of the server; of a slice of columns, with its number."""
        is_hashed, since = held.limits is not None, self._since
        count = 0
        if saved.rows:
            count = self._snapshot.counts[p] if since is None else _changed_rows(self._snapshot, p, part.table, since)
        kinds = table_arrays(saved.kind, saved.table, count, part.dim, part.slot_dim, number)
        beside = (ArrayKind(section_name(saved.kind, AGES, saved.table), "int64", (count,)),) if is_hashed else ()
        rows = self._rows(p, saved, part, held)
        return PartedArrays((*kinds, *beside), rows if saved.rows else iter(()))

    def _rows(self, p: int, saved: SavedTable, part: SavedPart, held: HeldTable) -> Iterator[tuple[Array, ...]]:
        """The changed rows of a saved part, with their numbers in the whole table, some at a time."""
        size, step = int(self._snapshot.sizes[p]), rows_of_range(part.dim + part.slot_dim, RANGE_BYTES)
        origin, where = held.origin, f"{saved.kind} table {saved.table}"
        for first in range(0, size, step):
            stop = min(first + step, size)
            found, ages = self._read(p, part.table, first, stop)
            check_finite_values(found, where)
            rows = found.rows * origin.row_stride + origin.row_first
            if len(rows):
                yield rows, found.weights, found.slots, *(() if ages is None else (ages,))
            self._written_bytes += found.rows.nbytes + found.weights.nbytes + found.slots.nbytes
            self._leave(p, stop)
        self._unread -= 1
        if not self._unread and self._written_bytes >= _AGAIN_BYTES:
            self._snapshot.close()  # training that waits for space goes on, before the files are durable

    def _read(self, p: int, t: int, first: int, stop: int) -> tuple[ChangedRows, Array | None]:
        """The rows of a range of a saved part of a table that are written, and their ages in a hashed table."""
        snapshot, since = self._snapshot, self._since
        ages = snapshot.ages(p, first, stop)
        if since is None:
            return snapshot.read(p, first, stop), ages
        if (noted := snapshot.noted(p, first, stop)) is None:
            found = snapshot.read(p, first, stop)
            return _chosen(found, since.of_range(t, first, stop)[found.rows - first]), ages
        chosen = since.among(t, noted)
        return snapshot.read(p, first, stop, chosen), None if ages is None else ages[chosen]

    def _leave(self, p: int, stop: int) -> None:
        """Let the snapshot keep the rows of a part below ``stop`` no longer, once so much is written that it is not to be written again."""
        self._to_leave[p] = stop
        if self._written_bytes < _AGAIN_BYTES:
            return
        self._rows_of.leave_rows(is_begun=True)
        for left, below in self._to_leave.items():
            self._snapshot.leave(left, below)
        self._to_leave.clear()


class ShardWriter:
    """Writes the shards that training asks for, one at a time, into the runs that the server may write to.

    ``resumed``: the snapshot that an earlier process has begun, if some of its rows are in the files of that process alone.

    Attributes:
        interval: that which began with the newest snapshot.
    """

    def __init__(self, runs: AllowedRuns, resumed: KeptSnapshot | None = None) -> None:
        self._runs, self._resumed = runs, resumed
        self._writing: ShardWriting | None = None
        self.interval = SnapshotInterval()

    def reach(self, order: ReachOrder) -> Reach:
        """Whether this server reaches a run."""
        try:
            self._runs.check(order.run)
        except InputError as error:
            return Reach(False, f"{error.what}, got {error.value!r}, allowed {error.allowed}"[:_MOST_REASON])
        return answer_probe(order)

    def follow(self, order: WriteOrder, rows: HeldRows, find: Callable[[], KeptSnapshot]) -> ShardProgress:
        """Begin an order, or go on with it; ``find``: the snapshot of the session that asks.

        Raises :class:`ConfigError` for another run than those allowed, :class:`ServerLost` if an earlier process has begun to write it, and
        what writing raises.
        """
        self._runs.check(order.run)
        if self._writing is None or self._writing.order != order.order:
            if (written := _written(order)) is not None:
                return written
            snapshot = find()
            if snapshot is self._resumed:
                raise ServerLost("a shard must be written by one process of its server", value="the process that began it has ended",
                                 next_step="train the epoch again from the last checkpoint")  # fmt: skip
            if self._writing is not None:
                self._writing.wait(_END_SECS)  # its snapshot is over
            self._writing = ShardWriting(order, rows, snapshot, self.interval)
            self._writing.wait(_FIRST_SECS)
        return self._writing.progress()


def _written(order: WriteOrder) -> ShardProgress | None:
    """The shard of an order that an earlier process of the server has written; None if it is not there."""
    found = find_shard(order.run, order.attempt, order.server)
    if found is None:
        return None
    own = (
        order.attempt,
        order.server,
        order.servers,
        order.step,
        [(one.kind, one.table, one.rows) for one in order.tables],
    )
    shard = found.shard
    there = (
        shard.attempt,
        shard.server,
        shard.servers,
        shard.step,
        [(one.kind, one.table, one.rows) for one in shard.tables],
    )
    if own != there or shard.base not in ("", order.base):
        raise ConfigError("a shard must be new, got one of another order in its place", where=shard.folder,
                          next_step="train the epoch again from the last checkpoint")  # fmt: skip
    return ShardProgress(sum(file.size_bytes for _, file in found.arrays), str(found.name), shard.base)


def _base_of(
    order: WriteOrder, held: HeldTables, changed: ChangedSince, interval: SnapshotInterval, snapshot: KeptSnapshot
) -> ChangedRowsOf | None:
    """The rows that were changed since the base of an order; None if all rows are to be written, as when too many of them were changed."""
    since = interval.since.get(order.base)
    if since is None:
        return None
    changed.keep_from(order.base)
    own = [(p, held.saved_parts[p].table) for p, one in enumerate(order.tables) if one.rows]
    rows = sum(snapshot.counts[p] for p, _ in own)
    is_small = sum(_changed_rows(snapshot, p, t, since) for p, t in own) <= _MOST_SHARE * rows
    return since if own and is_small else None


def _changed_rows(snapshot: KeptSnapshot, p: int, t: int, since: ChangedRowsOf) -> int:
    """The rows of a saved part of a table in a snapshot that were changed."""
    if snapshot.noted(p, 0, 0) is None:
        return since.count(t)
    size, changed = int(snapshot.sizes[p]), 0
    for first in range(0, size, _COUNTED_ROWS):
        noted = snapshot.noted(p, first, min(first + _COUNTED_ROWS, size))
        assert noted is not None
        changed += int(np.count_nonzero(since.among(t, noted)))
    return changed


def _chosen(found: ChangedRows, mine: Array) -> ChangedRows:
    return ChangedRows(found.rows[mine], found.weights[mine], found.slots[mine])


def _check_tables(order: WriteOrder, held: HeldTables) -> None:
    """Raise :class:`ConfigError` unless the order names a table for each saved part of the server."""
    if len(order.tables) != len(held.saved_parts):
        raise ConfigError("a shard must have the tables of its server", value=len(order.tables), allowed=str(len(held.saved_parts)))  # fmt: skip
