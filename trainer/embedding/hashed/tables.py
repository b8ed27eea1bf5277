"""Tables of unbounded vocabularies, as a store of rows: what :class:`~trainer.embedding.cpu.engine.CpuEngine` is for row numbers.

The weights, slots and states of the *places* are those of a cpu engine, and an index beside them says which place has which id; both
are in one memory. A row's initial values are those that a cpu engine gives the row of that number: a function of seed, table, id and
column. So with a place for every id the bits are those of a cpu engine.

A call that changes rows is a *step*. Its ids are looked up first, then places are given and taken (:mod:`trainer.embedding.hashed.plan`),
then rows are updated. Rows stand in the order of their last step, and in that of their ids within a step: an order that depends neither
on places nor on the order of ids in a batch, and that a saved state can restore.

All that a call changes happens, or none of it, wherever its process is killed: rows and index are kept in one undo log
(:mod:`trainer.embedding.cpu.undo_log`) before they change, and the next process to attach to the memory writes them back, in the time
that the interrupted call's rows take. The caller's ``undo_log.words``, such as sequence numbers, are undone with them if they are changed in
the same ``undo_log.transaction()``. Only where one update moves more entries of the hash table than the log has space for is the index rebuilt from its
records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trainer.embedding.cpu.gradients import CHANGED
from trainer.embedding.cpu.layout import TableOrigin
from trainer.embedding.cpu.memory import PrivateMemory, TableMemory
from trainer.embedding.cpu.placed_snapshot import PlacedSnapshot
from trainer.embedding.cpu.table_bytes import does_not_fit, machine_bytes
from trainer.embedding.cpu.undo_log import UndoLog
from trainer.embedding.engine import RowValues, TableState
from trainer.embedding.feature_counts import FeatureCounts
from trainer.embedding.hashed import index_layout as columns
from trainer.embedding.hashed import rows as kernels
from trainer.embedding.hashed.dense_memory import DenseMemory
from trainer.embedding.hashed.history import TableHistory, check_load
from trainer.embedding.hashed.index import Tombstones
from trainer.embedding.hashed.limits import TableLimits
from trainer.embedding.hashed.mixed_tables import MixedTables
from trainer.embedding.hashed.options import HashedTable
from trainer.embedding.hashed.placed_rows import change_rows, select_placed
from trainer.embedding.state_checks import check_states
from trainer.errors import BadBatch, ConfigError

Array = np.ndarray[Any, np.dtype[Any]]


class HashedTables(MixedTables):
    """Rows of ``tables`` by id: read, updated, saved and restored. Calls come from one thread, but for the reading of a snapshot.

    It is a :class:`~trainer.embedding.hybrid.cold_tier.ColdTier`. Equal calls in equal order give equal bits on any number of threads.

    Args:
        tables: the tables and their options.
        seed: what initial weights are drawn from.
        threads: threads of the loops; 0 for one a processor.
        memory: has the tables; None: memory of this process. The store begins with what the memory has of the same tables.
        words: how many numbers the caller has in ``undo_log.words``.
        origins: of each table, the part of a whole table that it is; None for whole tables.
        answers: arrays of :meth:`read_rows` that are in use at once.

    Attributes:
        undo_log: undoes the transaction that a killed process has left open, see :mod:`trainer.embedding.cpu.undo_log`.

    Raises :class:`ConfigError` for equal names and for tables that do not fit, :class:`~trainer.errors.DamagedMemory` for a memory
    with other bytes than were written.
    """

    def __init__(
        self, tables: Sequence[HashedTable], *, seed: int, threads: int = 0, memory: TableMemory | None = None, words: int = 0,
        origins: Sequence[TableOrigin] | None = None, answers: int = 1,
    ) -> None:  # fmt: skip
        if not tables:
            raise ConfigError("a store of rows must have at least one table")
        specs, memory = [table.spec for table in tables], memory or PrivateMemory()
        limits = {table.spec.name: TableLimits.of_table(table) for table in tables}
        try:
            undo_log = UndoLog(DenseMemory(memory), words, _identity(tables, seed, origins))
        except MemoryError as error:
            raise does_not_fit(specs, machine_bytes()) from error
        super().__init__(
            specs,
            limits,
            seed=seed,
            threads=threads,
            memory=memory,
            undo_log=undo_log,
            origins=origins,
            answers=answers,
        )

    @property
    def options(self) -> tuple[HashedTable, ...]:
        """The tables with their options."""
        return self._options

    @property
    def summary(self) -> tuple[str, ...]:
        """One line a table, for people."""
        return tuple(counts.summary(name) for name, counts in self.counts.items())

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays of the memory; the system commits them as they are used."""
        values = self._engine.values
        return sum(int(one.nbytes) for one in values) + self._index.nbytes + self.undo_log.nbytes

    def have_rows(self, rows: Array, counts: Array) -> Array:
        """Which of the ids, of which each table has ``counts``, have a row: bool. Raises :class:`BadBatch`."""
        found: Array = self._index.find(*self._checked(rows, counts)) >= 0
        return found

    def read_values(self, rows: Array, counts: Array) -> RowValues:
        """As :meth:`read_rows`, with the optimizers' slots, in new arrays."""
        rows, starts = self._checked(rows, counts)
        places = self._index.find(rows, starts)
        values, layout = self._engine.values, self._engine.layout
        weights, slots = (np.empty(int((counts * dims).sum()), np.float32) for dims in (self._dims, self._slot_dims))
        kernels.read_weights(rows, starts, places, layout, values.weights, weights)
        kernels.read_slots(starts, places, layout, values.slots, slots)
        return RowValues(weights, slots)

    def write_values(self, rows: Array, counts: Array, values: RowValues, *, are_changed: bool) -> None:
        """Replace the weights and slots of distinct ids; those without a row get one, whatever the options say of admission.

        ``are_changed``: they belong to the state of the tables from now on. Raises :class:`BadBatch`; nothing is changed then.
        """
        rows, starts = self._checked(rows, counts)
        sizes = tuple(int((counts * dims).sum()) for dims in (self._dims, self._slot_dims))
        if (values.weights.shape, values.slots.shape) != ((sizes[0],), (sizes[1],)):
            raise BadBatch("values must be those of the rows", value=(values.weights.shape, values.slots.shape),
                           allowed=str(sizes))  # fmt: skip
        with self.undo_log.transaction():
            plan, places = self._index.place(rows, starts, is_forced=True)
            change_rows(plan, self._engine)
            own, numbers, weights = select_placed(starts, places, values.weights, self._dims)
            _, _, slots = select_placed(starts, places, values.slots, self._slot_dims)
            self._engine.write_values(own, numbers, RowValues(weights, slots), are_changed=are_changed)

    def weights_of(self, table: str, rows: Array) -> Array:
        """Weights, float32 [len(rows), dim], for inspection and tests."""
        t = self._position(table)
        counts = np.zeros(len(self.tables), np.int64)
        counts[t] = len(rows)
        found = self.read_rows(np.ascontiguousarray(rows, np.int64), counts)
        return found.reshape(len(rows), self.tables[t].dim).copy()

    def statistics(self) -> dict[str, FeatureCounts]:
        """Those of the cpu engine that has the places: batches are counted by the engine that asks for their rows."""
        return self._engine.statistics()

    def take_tombstones(self) -> dict[str, Tombstones]:
        """The ids of each table whose rows were removed since :meth:`forget_tombstones`, without those that have a row again.

        They stay until :meth:`forget_tombstones`: a process that is killed before it has published them takes them again.
        """
        return {table.name: self._index.take_tombstones(t) for t, table in enumerate(self.tables)}

    def forget_tombstones(self) -> None:
        """Forget the tombstones that were taken last; those of rows that were removed since then stay."""
        self._index.forget_tombstones()

    def rebuild(self) -> None:
        """Rebuild the index from the ids and last uses of rows; no answer changes. Raises :class:`~trainer.errors.DamagedMemory`."""
        self._index.rebuild()

    def state(self) -> dict[str, TableState]:
        """A copy of all rows that training has changed, by table name: ids ascending; equal states have equal bytes."""
        return {table.name: self._table_state(t) for t, table in enumerate(self.tables)}

    def _table_state(self, t: int) -> TableState:
        saved = self._engine.table_state(t)
        ids = self._index.ids_of(t, saved.rows)
        order = np.argsort(ids)
        return TableState(ids[order], saved.weights[order], saved.slots[order])

    def histories(self) -> dict[str, TableHistory]:
        """With :meth:`state`, what later evictions and admissions depend on, by table name: ages in the order of the state's rows."""
        found = {}
        for t, table in enumerate(self.tables):
            places = self._changed_places(t)
            order = np.argsort(self._index.ids_of(t, places))
            step = int(self._index.words[t, columns.STEP])
            ages = step - self._index.records(t)[places[order], columns.USE].astype(np.int64)
            found[table.name] = TableHistory(step, ages, self._candidates(t).copy())
        return found

    def _changed_places(self, t: int) -> Array:
        base, size = int(self._engine.layout.row_base[t]), int(self._engine.layout.vocabulary[t])
        return np.flatnonzero(self._engine.values.row_state[base : base + size] == CHANGED)

    def load_state(self, state: Mapping[str, TableState], histories: Mapping[str, TableHistory] | None = None) -> None:
        """Restore a :meth:`state`; counts begin at zero.

        With the ``histories`` of the same moment, all later calls give the bits that they would have given without the load; candidates of
        another size are left out. Without, rows count as used at one step, in the order of their ids, and no id waits for admission.

        Raises :class:`TornCheckpoint` if it does not fit, also for more rows than a table has places. A process that is killed meanwhile
        leaves empty tables, see :class:`~trainer.embedding.cpu.undo_log.Found`.
        """
        check_states(self.tables, state)
        for options in self._options:
            check_load(options, state[options.spec.name], histories)
        with self.undo_log.filling():
            self._index.allocate(is_fresh=True)
            by_place = {
                name: replace(one, rows=np.arange(len(one.rows), dtype=np.int64)) for name, one in state.items()
            }
            self._engine.load_state(by_place)
            for t, table in enumerate(self.tables):
                self._load_records(t, state[table.name].rows, histories[table.name] if histories is not None else None)
            self._index.rebuild()

    def _load_records(self, t: int, ids: Array, history: TableHistory | None) -> None:
        records = self._index.records(t)[: len(ids)]
        records[:, columns.ID_LOW], records[:, columns.ID_HIGH] = ids & 0xFFFFFFFF, ids >> 32
        step, uses = 1, np.ones(len(ids), np.int64)
        if history is not None:
            history = history.shortened()
            step, uses = history.step, history.step - history.ages
            own = self._candidates(t)
            if own.shape == history.candidates.shape:
                own[:] = history.candidates
        records[:, columns.USE] = uses
        self._index.words[t, columns.STEP] = step

    def begin_snapshot(self, *, most_bytes: int) -> PlacedSnapshot:
        """Begin to read the changed rows of this moment in another thread, while training goes on; one at a time.

        Ids are copied now. ``most_bytes``: memory for rows that are changed before they are read; training waits for more.
        """
        found = []
        for t in range(len(self.tables)):
            places = self._changed_places(t)
            found.append((self._index.ids_of(t, places), places))
        return PlacedSnapshot(self._engine.begin_snapshot(most_bytes=most_bytes), found)

    def end_snapshot(self) -> None:
        """Close the snapshot, if there is one: training that waits for it goes on."""
        self._engine.end_snapshot()

    def _position(self, name: str) -> int:
        names = [table.name for table in self.tables]
        if name not in names:
            raise ConfigError("an embedding table must be one of the store's", value=name, allowed=", ".join(names))
        return names.index(name)


def _identity(tables: Sequence[HashedTable], seed: int, origins: Sequence[TableOrigin] | None) -> str:
    """What a memory must have been made for to be used: the arrays and the initial values; rates and limits may change."""
    parts = []
    for table in tables:
        spec = table.spec
        slots = [(slot.is_row_wise, slot.initial) for slot in spec.optimizer.slots]
        parts.append((spec.name, spec.vocabulary_size, spec.dim, spec.effective_initializer, type(spec.optimizer).__name__, slots,
                      table.places, table.candidate_lines))  # fmt: skip
    return repr((parts, seed, tuple(origins or ())))
