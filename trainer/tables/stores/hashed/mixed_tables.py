"""Tables of row numbers and hashed tables in one memory, so that one transaction changes all of them.

All values are those of one store: the rows of a hashed table are its places, and an index beside them says which place has which id.
A row's initial values are those that a dense store gives the row of that number: a function of seed, table, id and column. So with a place
for every id the bits are those of a dense store.

An update is a *step*. Its ids are looked up first, then places are given and taken (:mod:`trainer.tables.stores.hashed.decisions`),
then rows are updated. Rows stand in the order of their last step, and in that of their ids within a step: an order that depends neither
on places nor on the order of ids in a batch, and that a saved state can restore.

All that a call changes happens, or none of it, wherever its process is killed: rows and index are kept in one undo log
(:mod:`trainer.tables.kernels.undo_log`) before they change, and the next process to attach to the memory writes them back, in the time
that the interrupted call's rows take. The caller's ``undo_log.words``, such as sequence numbers, are undone with them if they are changed in
the same ``undo_log.transaction()``. Only where one update moves more entries of the hash table than the log has space for is the index rebuilt from its
records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from trainer.errors import BadBatch
from trainer.tables.batch_checks import check_batch
from trainer.tables.engine import ChangedRows, RowValues
from trainer.tables.hashed_counts import HashedCounts
from trainer.tables.hashed_history import KeptHistory
from trainer.tables.kernels.layout import TableOrigin
from trainer.tables.kernels.memory import PrivateMemory, TableMemory
from trainer.tables.kernels.outputs import OutputPool
from trainer.tables.kernels.table_bytes import does_not_fit, machine_bytes
from trainer.tables.kernels.undo_log import UndoLog
from trainer.tables.spec import FeatureSpec, TableSpec
from trainer.tables.stores.dense.dense_store import DenseStore, join_by_table, one_event
from trainer.tables.stores.hashed import index_layout as columns
from trainer.tables.stores.hashed import rows as kernels
from trainer.tables.stores.hashed.decisions import Decisions
from trainer.tables.stores.hashed.dense_memory import DenseMemory
from trainer.tables.stores.hashed.index import PlaceIndex
from trainer.tables.stores.hashed.kept_snapshot import MixedSnapshot
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.stores.hashed.options import WAYS, HashedTable
from trainer.tables.stores.hashed.placed_rows import change_rows, select_placed
from trainer.tables.stores.step_changes import NO_MORE_CHANGES, StepChanges
from transforms.arrays import Array

_ONE = np.zeros(1, np.int64)


class MixedTables:
    """Rows of tables, some of them hashed: read, updated, saved and restored. Calls come from one thread, but for snapshots.

    Args:
        tables: all tables; the vocabulary of a hashed one limits its ids.
        hashed: the limits of the hashed tables, at least one, by name.
        seed: what initial weights are drawn from.
        threads: threads of the loops; 0 for one a processor.
        memory: has the tables; None: memory of this process.
        undo_log: of the same memory.
        origins: of each table, the part of a whole table that it is; None for whole tables.
        answers: arrays of :meth:`read_rows` that are in use at once.
        hash_prefix: see :class:`~trainer.tables.stores.hashed.index.PlaceIndex`.

    Attributes:
        undo_log: see :mod:`trainer.tables.kernels.undo_log`.

    Raises :class:`~trainer.errors.ConfigError` for tables that do not fit, :class:`~trainer.errors.DamagedMemory` for a memory with other bytes
    than were written.
    """

    def __init__(
        self, tables: Sequence[TableSpec], hashed: Mapping[str, TableLimits], *, seed: int, threads: int = 0,
        memory: TableMemory | None = None, undo_log: UndoLog | None = None, origins: Sequence[TableOrigin] | None = None, answers: int = 1,
        hash_prefix: str = "",
    ) -> None:  # fmt: skip
        self.tables = tuple(tables)
        self.features = tuple(FeatureSpec(one.name, one) for one in self.tables)
        options = [hashed[one.name].table(one) for one in self.tables if one.name in hashed]
        self._options = tuple(options)
        self.positions = np.array([t for t, one in enumerate(self.tables) if one.name in hashed], np.int64)
        self._number = {int(t): k for k, t in enumerate(self.positions)}
        places = {one.spec.name: one.places for one in options}
        stored = [replace(one, vocabulary_size=places.get(one.name, one.vocabulary_size)) for one in self.tables]
        self._memory = memory or PrivateMemory()
        self.undo_log = undo_log or UndoLog(self._memory)
        try:
            self._index = PlaceIndex(options, seed=seed, memory=DenseMemory(self._memory), undo_log=self.undo_log,
                                     is_fresh=self.undo_log.is_empty, prefix=hash_prefix)  # fmt: skip
        except MemoryError as error:
            raise does_not_fit(stored, machine_bytes()) from error
        self.undo_log.settle = self._index.settle
        memory = DenseMemory(self._memory, [one.name in places for one in stored])
        self._rows = DenseStore(stored, seed=seed, threads=threads, memory=memory,
                                 origins=origins, undo_log=self.undo_log)  # fmt: skip
        self._dims, self._slot_dims = self._rows.layout.dims, self._rows.layout.slot_dims
        self._answers = OutputPool(spare=0.25, kept=answers)
        self._loaded = np.zeros(len(options), np.int64)
        self._last: tuple[Decisions, Array] | None = (
            None  # what the last update has decided, and the ids that it has removed
        )

    @property
    def hashed_counts(self) -> dict[str, HashedCounts]:
        """What each hashed table has done, by name."""
        return dict(zip((one.spec.name for one in self._options), self._index.counts(), strict=True))

    def is_hashed(self, t: int) -> bool:
        """Whether the table at a position is hashed."""
        return t in self._number

    def read_rows(self, rows: Array, counts: Array) -> Array:
        """The weights of rows and ids, of which each table has ``counts``, float32; the initial ones of those without a row.

        Raises :class:`BadBatch` for one outside its table.
        """
        rows, starts = self._checked(rows, counts)
        places = self._find(rows, starts)
        out = self._answers.take(int((counts * self._dims).sum()))
        kernels.read_weights(rows, starts, places, self._rows.layout, self._rows.values.weights, out)
        return out

    def update_rows(
        self, asked: Sequence[tuple[Array, Array]], gradients: Sequence[Array], rates: Array | None = None, lookups: Sequence[Array] = ()
    ) -> Array:  # fmt: skip
        """As :meth:`DenseStore.update_rows <trainer.tables.stores.dense.dense_store.DenseStore.update_rows>`: a step of the hashed tables.

        Returns the distinct rows and ids of each table, those that have no row included. Raises :class:`BadBatch`; nothing is changed then.
        """
        rows, counts, flat = join_by_table(asked, gradients, self._dims)
        rows, starts = self._checked(rows, counts)
        with self.undo_log.transaction():
            decided, found, removed = self._index.place(*self._hashed_part(rows, starts))
            change_rows(decided, self._rows, self.positions)
            own, numbers, flat = select_placed(starts, self._with_places(rows, starts, found), flat, self._dims)
            distinct = self._rows.update_rows([(own, numbers)], [flat], rates)
        distinct[self.positions] = np.diff(decided.starts)
        self._last = decided, removed
        return distinct

    @property
    def step_changes(self) -> StepChanges:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`."""
        if self._last is None:
            return NO_MORE_CHANGES
        return StepChanges(dict(zip(self.positions.tolist(), self._index.changes(*self._last), strict=True)))

    def _checked(self, rows: Array, counts: Array) -> tuple[Array, Array]:
        """Rows as int64, and where those of each table begin."""
        check_batch(one_event(rows, counts), self.features)
        return np.ascontiguousarray(rows, np.int64), np.concatenate(
            [np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)]
        )

    def _hashed_part(self, rows: Array, starts: Array) -> tuple[Array, Array]:
        """The ids of hashed tables, and where those of each begin."""
        own = [rows[starts[t] : starts[t + 1]] for t in self.positions]
        return np.concatenate(own), np.concatenate([np.zeros(1, np.int64), np.cumsum([len(one) for one in own])])

    def _with_places(self, rows: Array, starts: Array, found: Array) -> Array:
        """The rows with the places of ids in place of these."""
        places, at = rows.copy(), 0
        for t in self.positions:
            size = int(starts[t + 1] - starts[t])
            places[starts[t] : starts[t + 1]] = found[at : at + size]
            at += size
        return places

    def _find(self, rows: Array, starts: Array) -> Array:
        """The place of each row and id; -1: it has its initial value."""
        places = self._with_places(rows, starts, self._index.find(*self._hashed_part(rows, starts)))
        states, bases = self._rows.values.row_state, self._rows.layout.row_base
        for t in range(len(self.tables)):
            if t not in self._number:
                own = places[starts[t] : starts[t + 1]]
                own[states[bases[t] + own] == 0] = -1
        return places

    def clear(self) -> None:
        """Give all rows of all tables their initial values: hashed ones have no rows, and their counts are zero."""
        self._index.allocate(is_fresh=True)
        self._rows.clear()
        self._index.settle()
        self._loaded[:] = 0

    def load_rows(self, t: int, found: ChangedRows, ages: Array | None = None) -> None:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`.

        ``ages``: int64, the steps since the last use of each row of a hashed table. Raises :class:`BadBatch` for ids that do not ascend, ages
        that no row has, and more rows than the table has places; nothing is changed then.
        """
        if ages is None:
            counts = np.zeros(len(self.tables), np.int64)
            counts[t] = len(found.rows)
            values = RowValues(found.weights.reshape(-1), found.slots.reshape(-1))
            self.write_values(found.rows, counts, values, are_changed=True)
            return
        k, count = self._number[t], len(found.rows)
        before, table, step = (
            int(self._loaded[k]),
            self.tables[t],
            int(self._index.words[self._number[t], columns.STEP]),
        )
        last = int(self._index.ids_of(k, np.array([before - 1]))[0]) if before else -1
        ids = np.concatenate([np.array([last]), found.rows])
        if (ids[1:] <= ids[:-1]).any() or int(ids[-1]) >= table.vocabulary_size:
            raise BadBatch(
                "the ids of a loaded table must ascend, below its vocabulary",
                where=f"table {table.name}",
                value=ids[-1],
            )
        if before + count > self._options[k].places:
            raise BadBatch("the rows of a hashed table must fit its capacity", where=f"table {table.name}", value=before + count,
                           allowed=f"<= {self._options[k].places}")  # fmt: skip
        if count and not (ages.min() >= 0 and ages.max() < step):
            raise BadBatch("the age of a row must be below the steps of its table", where=f"table {table.name}",
                           value=(int(ages.min()), int(ages.max())), allowed=f"0 to {step - 1}")  # fmt: skip
        records = self._index.records(k)[before : before + count]
        records[:, columns.ID_LOW], records[:, columns.ID_HIGH] = found.rows & 0xFFFFFFFF, found.rows >> 32
        records[:, columns.USE] = step - ages
        counts = np.zeros(len(self.tables), np.int64)
        counts[t] = count
        places = np.arange(before, before + count, dtype=np.int64)
        values = RowValues(found.weights.reshape(-1), found.slots.reshape(-1))
        self._rows.write_values(places, counts, values, are_changed=True)
        self._loaded[k] += count

    def load_history(self, t: int, history: KeptHistory, first: int = 0) -> None:
        """Take what a hashed table has beside its rows, before :meth:`load_rows`; its candidates from ``first`` on.

        Raises :class:`BadBatch` for more candidates than the table has.
        """
        k = self._number[t]
        own = self._candidates(k)
        if first + len(history.candidates) > len(own):
            raise BadBatch("the candidates of a hashed table must be as many as it has", where=f"table {self.tables[t].name}",
                           value=first + len(history.candidates), allowed=f"<= {len(own)}")  # fmt: skip
        own[first : first + len(history.candidates)] = history.candidates
        self._index.words[k, columns.STEP], self._index.words[k, columns.EVICTED] = history.step, history.evicted

    def end_load(self) -> None:
        """Make the index of the rows that were loaded."""
        self._index.rebuild()

    def write_values(self, rows: Array, counts: Array, values: RowValues, *, are_changed: bool) -> None:
        """Replace the values of distinct rows of tables that are not hashed; see :class:`~trainer.tables.stores.dense.dense_store.DenseStore`."""
        if counts[self.positions].any():
            raise BadBatch("rows of a hashed table must be loaded with their ages", value=counts.tolist()[:8])
        self._rows.write_values(rows, counts, values, are_changed=are_changed)

    def read_values(self, rows: Array, counts: Array) -> RowValues:
        """The values of rows of tables that are not hashed; see :class:`~trainer.tables.stores.row_store.HeldStore`."""
        if counts[self.positions].any():
            raise BadBatch("values can be read only from tables that are not hashed", value=counts.tolist()[:8])
        return self._rows.read_values(rows, counts)

    def changed_among(self, t: int, rows: Array) -> ChangedRows:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`."""
        if self.is_hashed(t):
            raise BadBatch(
                "rows of hashed tables can be read only in ranges, not by their ids",
                where=f"table {self.tables[t].name}",
                value=len(rows),
            )
        return self._rows.changed_among(t, rows)

    def changed_rows(self, t: int, first: int, stop: int) -> ChangedRows:
        """A copy of the changed rows of a table from ``first`` to ``stop``; of a hashed one by ranks: 0 is that of the smallest id."""
        k = self._number.get(t)
        if k is None:
            return self._rows.changed_rows(t, first, stop)
        found = self._rows.changed_rows(t, 0, self._options[k].places)
        ids = self._index.ids_of(k, found.rows)
        order = np.argsort(ids)[first:stop]
        return ChangedRows(ids[order], found.weights[order], found.slots[order])

    def ages_of(self, t: int) -> Array:
        """The steps since the last use of each changed row of a hashed table, int64, ids ascending."""
        k = self._number[t]
        places = self._rows.changed_rows(t, 0, self._options[k].places).rows
        uses = self._index.records(k)[places, columns.USE].astype(np.int64)
        ages: Array = int(self._index.words[k, columns.STEP]) - uses[np.argsort(self._index.ids_of(k, places))]
        return ages

    def history(self, t: int) -> tuple[int, Array]:
        """The steps of a hashed table, and a copy of its candidates."""
        k = self._number[t]
        return int(self._index.words[k, columns.STEP]), self._candidates(k).copy()

    def options_of(self, t: int) -> HashedTable:
        """What a hashed table has beside its rows."""
        return self._options[self._number[t]]

    def _candidates(self, k: int) -> Array:
        layout = self._index.layout
        first = int(layout.first_candidate[k])
        found: Array = self._index.values.candidates[first : first + WAYS * int(layout.lines[k])]
        return found

    def row_floats(self, t: int) -> int:
        """The weights and slot values of a row of a table."""
        return int(self._dims[t] + self._slot_dims[t])

    def begin_kept_snapshot(self, *, most_bytes: int, patience_secs: float | None) -> MixedSnapshot:
        """See :meth:`DenseStore.begin_kept_snapshot <trainer.tables.stores.dense.dense_store.DenseStore.begin_kept_snapshot>`; ids are copied now."""
        is_ready = self._memory.array("snapshot_is_ready", _ONE, _ONE + 1, np.int64, is_fresh=True)
        rows = self._rows.begin_kept_snapshot(most_bytes=most_bytes, patience_secs=patience_secs)
        found = MixedSnapshot(rows, self._memory, self._sizes(), self._number, self._index, self._candidates)
        is_ready[0] = 1
        return found

    def resume_snapshot(self, *, patience_secs: float) -> MixedSnapshot | None:
        """The snapshot that an earlier process has begun in the memory of the tables, or None. Raises :class:`~trainer.errors.DamagedMemory`."""
        rows = self._rows.resume_snapshot(patience_secs=patience_secs)
        if rows is None:
            return None
        if self._memory.array("snapshot_is_ready", _ONE, _ONE + 1, np.int64, is_fresh=False)[0] != 1:
            rows.close()  # its process was killed before it had copied the ids
            return None
        return MixedSnapshot(rows, self._memory, self._sizes(), self._number)

    def _sizes(self) -> list[int]:
        return [one.vocabulary_size for one in self.tables]
