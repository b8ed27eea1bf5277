"""Rows of tables in the memory of one process, all of which have memory: compiled loops on all cores, bit-for-bit repeatable.

A row gets its initial values when it is first read, from a hash of (seed, table name, row, column), independent of the
order of reads. The system commits memory of the process as rows are touched, so a large vocabulary costs only its used rows; a table in
shared memory costs all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from trainer.errors import BadBatch, ConfigError
from trainer.tables.batch_checks import ID_TYPES, check_batch
from trainer.tables.batches import IdBatch
from trainer.tables.engine import NO_HASHED_COUNTS, ChangedRows, RowValues, TableState
from trainer.tables.hashed_history import KeptHistory
from trainer.tables.kernels import gradients as gradient_kernels
from trainer.tables.kernels.initial_rows import INITIALISED, assign_rows, fill_row, initialise_missing
from trainer.tables.kernels.layout import (
    Bags,
    TableLayout,
    TableOrigin,
    TableValues,
    feature_layout,
    learning_rates,
    packed_layout,
    table_layout,
    table_values,
)
from trainer.tables.kernels.memory import PrivateMemory, TableMemory
from trainer.tables.kernels.outputs import OutputPool
from trainer.tables.kernels.row_parts import join_parts, read_rows, write_rows
from trainer.tables.kernels.table_bytes import does_not_fit, machine_bytes
from trainer.tables.kernels.threads import Team, available_threads
from trainer.tables.kernels.undo_kernels import HEAD, KEPT_NOWHERE, numbers_of_rows
from trainer.tables.kernels.undo_log import UndoLog
from trainer.tables.kernels.updates import RowUpdates
from trainer.tables.kernels.whole_messages import read_message, sizes_of
from trainer.tables.spec import FeatureSpec, TableSpec
from trainer.tables.state_checks import check_states
from trainer.tables.stores.dense.snapshot import EngineSnapshot
from trainer.tables.stores.step_changes import NO_MORE_CHANGES
from trainer.tables.table_checks import supported_tables
from transforms.arrays import Array

_NO_SHARES = np.zeros(0, np.float32)
_FLOAT, _COUNT = np.dtype(np.float32), np.dtype(np.int64)


class DenseStore:
    """See :class:`~trainer.tables.stores.row_store.RowStore`: all rows of ``tables`` have memory. It releases the GIL while it works.

    The same calls in the same order give the same bits on one machine, whatever the number of threads.

    Args:
        tables: the tables.
        seed: what initial weights are drawn from.
        threads: threads of the loops; 0 for one a processor.
        origins: of each table, the part of a whole table that it is; None for whole tables.
        answers: arrays of :meth:`read_rows` that are in use at once.
        memory: has the tables; None: memory of this process. A store begins with the values that the memory has.
        undo_log: of the same memory: an update that a killed process has begun is undone when a store begins with its memory.

    Attributes:
        features: a feature for each table.
        team: the threads.

    Raises :class:`ConfigError` for equal names, for tables that do not fit, and for a setting that this store does not have, and
    :class:`~trainer.errors.DamagedMemory` for an undo log with other bytes than were written.
    """

    needs_lookups = False
    sharing = None
    hashed_counts = NO_HASHED_COUNTS
    step_changes = NO_MORE_CHANGES

    def __init__(
        self,
        tables: Sequence[TableSpec],
        *,
        seed: int,
        threads: int = 0,
        origins: Sequence[TableOrigin] | None = None,
        answers: int = 1,
        memory: TableMemory | None = None,
        undo_log: UndoLog | None = None,
    ) -> None:
        self.features = tuple(FeatureSpec(one.name, one) for one in tables)
        self.tables = supported_tables(self.features)
        of_features = feature_layout(self.features, self.tables)
        self.layout: TableLayout = table_layout(of_features, self.tables, seed, origins)
        slots = self.layout._replace(dims=self.layout.slot_dims, weight_base=self.layout.slot_base)
        self._rows_of_values = (
            self.layout,
            slots,
        )  # where the weights of rows are, and their slots as if they were weights
        self._every, self._packed = of_features.table, packed_layout(self.layout)
        self._log_numbers = numbers_of_rows(self.layout.dims, self.layout.slot_dims)
        self.team = Team(threads or available_threads())
        self._updates = RowUpdates(of_features, self.layout, self.team)
        self._answers = OutputPool(spare=0.25, kept=answers)
        self._memory, self.undo_log = memory or PrivateMemory(), undo_log
        self._allocate(is_fresh=undo_log is not None and undo_log.is_empty)

    def _allocate(self, *, is_fresh: bool) -> None:
        """Reserve the tables."""
        try:
            self._values = table_values(self.layout, self._memory, is_fresh=is_fresh)
        except (MemoryError, ValueError) as error:
            raise does_not_fit(self.tables, machine_bytes()) from error
        if self.undo_log is not None:
            self.undo_log.attach(self._values)
        self._snapshot: EngineSnapshot | None = None

    @contextmanager
    def changing(self, bags: Bags, table_of: Array) -> Iterator[None]:
        """While the rows of a batch change: the undo log keeps them, and a snapshot what it has not read.

        ``table_of``: the table of each feature of ``bags``.
        """
        if self.undo_log is None or self.undo_log.is_filling:
            with self._beside_snapshot(bags, table_of):
                yield
            return
        with self.undo_log.transaction():
            self.undo_log.keep_rows(bags, table_of, self.layout, self._values)
            with self._beside_snapshot(bags, table_of):
                yield

    @contextmanager
    def _beside_snapshot(self, bags: Bags, table_of: Array) -> Iterator[None]:
        snapshot = self._snapshot
        if snapshot is not None and snapshot.is_done:
            snapshot = self._snapshot = None
        if snapshot is None:
            yield
            return
        with snapshot.changing():
            snapshot.put_aside(bags, table_of)
            yield

    def freeze(self) -> None:
        """See :class:`~trainer.tables.stores.row_store.RowStore`: all rows have memory."""

    def read_rows(self, rows: Array, counts: Array) -> Array:
        """The current weights of ``rows`` (int64), of which each table has ``counts``; float32, one row after the other.

        Raises :class:`BadBatch` for a row outside its table.
        """
        out = self._answers.take(self._sizes(rows, counts)[0])
        read_message(rows, counts, *self._packed, *self._values, out)
        return out

    def _sizes(self, rows: Array, counts: Array) -> tuple[int, int, int]:
        """The values of all rows, and the most rows and values of one table. Raises :class:`BadBatch`."""
        if rows.ndim == 1 and rows.dtype in ID_TYPES and counts.dtype == _COUNT:
            sizes = sizes_of(rows, counts, self.layout.vocabulary, self.layout.dims)
            if sizes[0] >= 0:
                return sizes
        self._bags(rows, counts)
        raise BadBatch("the rows of a message must be those of its tables", value=counts[:8].tolist())

    def update_rows(
        self, asked: Sequence[tuple[Array, Array]], gradients: Sequence[Array], rates: Array | None = None, lookups: Sequence[Array] = ()
    ) -> Array:  # fmt: skip
        """One optimizer update for each distinct row, with the sum of its gradients in the order of the parts.

        Returns the distinct rows of each table, int64.

        Args:
            asked: of each part, rows and their numbers by table, as in :meth:`read_rows`.
            gradients: of each part, float32 as :meth:`read_rows` returns them.
            rates: float32, the learning rate of each table; None: those of their optimizers.
            lookups: of no use here, see :class:`~trainer.tables.stores.row_store.RowStore`.

        Raises :class:`BadBatch`; nothing is changed then.
        """
        rates = learning_rates(self.tables) if rates is None else rates
        if len(asked) == len(gradients) == 1 and self._has_no_snapshot():
            rows, counts, flat = *asked[0], gradients[0]
            floats, most_rows, most_floats = self._sizes(rows, counts)
            is_whole = flat.dtype == _FLOAT and flat.shape == (floats,)
            if is_whole and self._updates.takes_message(floats, most_floats):
                return self._update_message(rows, counts, most_rows, most_floats, flat, rates)
        rows, counts, flat = join_by_table(asked, gradients, self.layout.dims)
        bags = self._read_bags(rows, counts)
        with self.changing(bags, self._every):
            return self._updates.apply_rows(bags, flat, rates, self._values)

    def _has_no_snapshot(self) -> bool:
        """Whether no snapshot must see rows before they change."""
        if self._snapshot is not None and self._snapshot.is_done:
            self._snapshot = None
        return self._snapshot is None

    def _update_message(
        self, rows: Array, counts: Array, most_rows: int, most_floats: int, gradients: Array, rates: Array
    ) -> Array:
        """Update (checked) rows in one compiled call, inside a transaction of the undo log if there is one."""
        log, kept = self.undo_log, KEPT_NOWHERE
        if log is not None and not log.is_filling:
            if not log.is_open:
                with log.transaction():
                    return self._update_message(rows, counts, most_rows, most_floats, gradients, rates)
            kept = log.space_for(lambda: int(counts @ self._log_numbers) + 3 * HEAD * len(counts))
        return self._updates.apply_message(rows, counts, most_rows, most_floats, gradients, rates, self._values, kept)

    def read_values(self, rows: Array, counts: Array) -> RowValues:
        """As :meth:`read_rows`, with the optimizers' slots, in new arrays."""
        bags = self._read_bags(rows, counts)
        weights, slots = (np.empty(int((counts * one.dims).sum()), np.float32) for one in self._rows_of_values)
        read_rows(bags, self._rows_of_values[0], self._values.weights, weights)
        read_rows(bags, self._rows_of_values[1], self._values.slots, slots)
        return RowValues(weights, slots)

    def write_values(self, rows: Array, counts: Array, values: RowValues, *, are_changed: bool) -> None:
        """Replace the values of distinct ``rows``, of which each table has ``counts``, by those that :meth:`read_values` gave.

        ``are_changed``: whether they count as rows that training has changed, and belong to the state of the tables.

        Raises :class:`BadBatch`; nothing is changed then.
        """
        sizes = tuple(int((counts * one.dims).sum()) for one in self._rows_of_values)
        if (values.weights.shape, values.slots.shape) != ((sizes[0],), (sizes[1],)):
            raise BadBatch("values must have the shapes of the rows", value=(values.weights.shape, values.slots.shape),
                           allowed=str(sizes))  # fmt: skip
        may_undo = self.undo_log is not None and not self.undo_log.is_filling
        bags = self._read_bags(rows, counts) if may_undo else self._bags(rows, counts)  # undone rows have values again
        with self.changing(bags, self._every):
            write_rows(bags, self._rows_of_values[0], values.weights, self._values.weights)
            write_rows(bags, self._rows_of_values[1], values.slots, self._values.slots)
            state = gradient_kernels.CHANGED if are_changed else INITIALISED
            self._values.row_state[np.repeat(self.layout.row_base, counts) + rows] = state

    @property
    def values(self) -> TableValues:
        """The values of the tables, for kernels that read them; a loaded state has others."""
        return self._values

    def assign_rows(self, rows: Array, counts: Array, numbers: Array) -> None:
        """Give distinct ``rows``, of which each table has ``counts``, the initial values of the rows ``numbers`` (int64).

        They belong to the state of the tables when they are updated. Raises :class:`BadBatch` for a row outside its table; nothing is changed then.
        """
        bags = self._bags(rows, counts)
        with self.changing(bags, self._every):
            assign_rows(rows, numbers, counts, self.layout, self._values)

    def release_rows(self, rows: Array, counts: Array) -> None:
        """Make ``rows``, of which each table has ``counts``, rows that were never read. Raises :class:`BadBatch` as above."""
        bags, of = self._bags(rows, counts), self.layout
        with self.changing(bags, self._every):
            self._values.row_state[np.repeat(of.row_base, counts) + rows] = 0
            # A lookup looks at the state of a row only if its last weight is zero.
            self._values.weights[np.repeat(of.weight_base, counts) + (rows + 1) * np.repeat(of.dims, counts) - 1] = 0.0

    def are_changed(self, rows: Array, counts: Array) -> Array:
        """Which of ``rows``, of which each table has ``counts``, training has changed."""
        found: Array = (
            self._values.row_state[np.repeat(self.layout.row_base, counts) + rows] == gradient_kernels.CHANGED
        )
        return found

    def begin_snapshot(self, *, most_bytes: int) -> EngineSnapshot:
        """Begin to read the changed rows of this moment in another thread, while training goes on; one at a time.

        ``most_bytes``: memory for rows that are changed before they are read; training waits for more. The snapshot must be
        read to its end, or closed.
        """
        self._snapshot = EngineSnapshot(self.layout, self._values, most_bytes=most_bytes)
        return self._snapshot

    def begin_kept_snapshot(self, *, most_bytes: int, patience_secs: float | None) -> EngineSnapshot:
        """As :meth:`begin_snapshot`, in the memory of the tables: :meth:`resume_snapshot` goes on with it in another process.

        ``patience_secs``: a snapshot for which training has waited for so long is closed; None: it waits.
        """
        self._snapshot = EngineSnapshot(
            self.layout,
            self._values,
            most_bytes=most_bytes,
            memory=self._memory,
            patience_secs=patience_secs,
        )
        return self._snapshot

    def resume_snapshot(self, *, patience_secs: float) -> EngineSnapshot | None:
        """The snapshot that an earlier process has begun in the memory of the tables, or None.

        Raises :class:`~trainer.errors.DamagedMemory`.
        """
        self._snapshot = EngineSnapshot.resume(self.layout, self._values, self._memory, patience_secs=patience_secs)
        return self._snapshot

    def end_snapshot(self) -> None:
        """Close the snapshot, if there is one: training that waits for it goes on."""
        snapshot = self._snapshot  # the training thread sets it to None
        if snapshot is not None:
            snapshot.close()

    def _bags(self, rows: Array, counts: Array) -> Bags:
        """Rows of each table, checked."""
        batch = one_event(rows, counts)
        check_batch(batch, self.features)
        return Bags(batch.ids, batch.offsets, _NO_SHARES)

    def _read_bags(self, rows: Array, counts: Array) -> Bags:
        """Rows of each table, checked, with their initial values, as after a read."""
        bags = self._bags(rows, counts)
        self.initialise(bags, self._every)
        return bags

    def initialise(self, bags: Bags, table_of: Array) -> None:
        """Give the rows of a batch their initial values that were never read; ``table_of``: see :meth:`changing`."""
        initialise_missing(bags, table_of, self.layout, self._values)

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights, float32 [len(rows), dim], also of rows that were never read. For inspection and tests."""
        t, of = self._position(table), self.layout
        dim, base = int(of.dims[t]), int(of.row_base[t])
        out = np.empty((len(rows), dim), np.float32)
        for k, row in enumerate(np.asarray(rows, np.int64)):
            if not 0 <= row < of.vocabulary[t]:
                raise BadBatch("a row must lie in its table", where=f"table {table}", value=int(row),
                               allowed=f"[0, {of.vocabulary[t]})")  # fmt: skip
            if self._values.row_state[base + row]:
                start = int(of.weight_base[t]) + row * dim
                out[k] = self._values.weights[start : start + dim]
            else:
                whole, stop = row * of.row_stride[t] + of.row_first[t], int(of.first_column[t]) + dim
                values = np.empty(stop, np.float32)
                fill_row(values, 0, stop, of.keys[t], whole, of.kinds[t], of.init_a[t], of.init_b[t])
                out[k] = values[-dim:]
        return out

    def _position(self, name: str) -> int:
        names = [table.name for table in self.tables]
        if name not in names:
            raise ConfigError("an embedding table must be one of the engine's", value=name, allowed=", ".join(names))
        return names.index(name)

    def state(self) -> dict[str, TableState]:
        """A copy of all changed rows, by table name: equal states have equal bytes."""
        return {table.name: self.table_state(t) for t, table in enumerate(self.tables)}

    def table_state(self, t: int) -> TableState:
        """A copy of the changed rows of the table at this position."""
        found = self.changed_rows(t, 0, int(self.layout.vocabulary[t]))
        return TableState(found.rows, found.weights, found.slots)

    def changed_rows(self, t: int, first: int, stop: int) -> ChangedRows:
        """A copy of the changed rows of the table at this position from ``first`` to ``stop``."""
        base = int(self.layout.row_base[t])
        rows = first + np.flatnonzero(self._values.row_state[base + first : base + stop] == gradient_kernels.CHANGED)
        weights, slots = self._views(t)
        return ChangedRows(rows, weights.take(rows, axis=0), slots.take(rows, axis=0))

    def changed_among(self, t: int, rows: Array) -> ChangedRows:
        """A copy of those of ``rows``, int64 and ascending, of the table at this position that are changed."""
        states = self._values.row_state[int(self.layout.row_base[t]) + rows]
        found = rows[states == gradient_kernels.CHANGED]
        weights, slots = self._views(t)
        return ChangedRows(found, weights.take(found, axis=0), slots.take(found, axis=0))

    def _views(self, t: int) -> tuple[Array, Array]:
        of, values = self.layout, self._values
        size, dim, slot_dim = int(of.vocabulary[t]), int(of.dims[t]), int(of.slot_dims[t])
        start, slot_start = int(of.weight_base[t]), int(of.slot_base[t])
        weights = values.weights[start : start + size * dim].reshape(size, dim)
        return weights, values.slots[slot_start : slot_start + size * slot_dim].reshape(size, slot_dim)

    def section_names(self, t: int) -> tuple[str, ...]:
        """See :meth:`SavedTables.section_names <trainer.tables.engine.SavedTables.section_names>`: none."""
        return ()

    def load_state(self, state: Mapping[str, TableState]) -> None:
        """See :class:`~trainer.tables.stores.row_store.RowStore`. Raises :class:`TornCheckpoint` if it does not fit.

        With an undo log, a process that is killed meanwhile leaves fresh tables, see :class:`~trainer.tables.kernels.undo_log.Found`.
        """
        check_states(self.tables, state)
        if self.undo_log is None:
            self._load(state)
            return
        with self.undo_log.filling():
            self._load(state)

    def load_history(self, t: int, history: KeptHistory, first: int = 0) -> None:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`: rows of these tables have no history. Raises :class:`BadBatch`."""
        raise BadBatch(
            "only a hashed table has a history",
            where=f"table {self.tables[t].name}",
            value=history.step,
        )

    def load_rows(self, t: int, found: ChangedRows, ages: Array | None = None) -> None:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`."""
        counts = np.zeros(len(self.tables), np.int64)
        counts[t] = len(found.rows)
        values = RowValues(found.weights.reshape(-1), found.slots.reshape(-1))
        self.write_values(found.rows, counts, values, are_changed=True)

    def end_load(self) -> None:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`."""

    def clear(self) -> None:
        """Give all rows their initial values."""
        self._allocate(is_fresh=True)

    def _load(self, state: Mapping[str, TableState]) -> None:
        self.clear()
        for t, table in enumerate(self.tables):
            saved, (weights, slots) = state[table.name], self._views(t)
            weights[saved.rows] = saved.weights
            slots[saved.rows] = saved.slots
            self._values.row_state[int(self.layout.row_base[t]) + saved.rows] = gradient_kernels.CHANGED


def one_event(rows: Array, counts: Array) -> IdBatch:
    """Rows of each table as the bag of one event."""
    ends = np.cumsum(counts)
    if len(ends) and int(ends[-1]) != len(rows):
        raise BadBatch(
            "the number of rows must be the sum of the counts by table", value=len(rows), allowed=str(int(ends[-1]))
        )
    offsets = np.empty((len(ends), 2), np.int64)
    offsets[:, 0], offsets[:, 1] = ends - counts, ends
    return IdBatch(rows, offsets)


def join_by_table(
    asked: Sequence[tuple[Array, Array]], gradients: Sequence[Array], dims: Array
) -> tuple[Array, Array, Array]:
    """Rows, their numbers by table, and their gradients: table after table, in each the parts in order. Raises :class:`BadBatch`."""
    for (own, counts), flat in zip(asked, gradients, strict=True):
        if flat.dtype != np.float32 or flat.shape != (int((counts * dims).sum()),):
            raise BadBatch(
                "gradients must be float32, one per column of each row",
                value=flat.shape,
                allowed=str(int((counts * dims).sum())),
            )
        if len(own) != int(counts.sum()) or (counts < 0).any():
            raise BadBatch(
                "the number of rows must be the sum of the counts by table",
                value=len(own),
                allowed=str(int(counts.sum())),
            )
    if len(asked) == 1:
        return *asked[0], gradients[0]
    numbers = np.stack([counts for _, counts in asked]).astype(np.int64, copy=False)
    all_rows = np.concatenate([own for own, _ in asked])
    return join_parts(all_rows, numbers, np.concatenate(gradients), dims)


def join_lookups(asked: Sequence[tuple[Array, Array]], lookups: Sequence[Array]) -> Array:
    """The lookups of rows in the order of :func:`join_by_table`, int32. Raises :class:`BadBatch`."""
    if len(lookups) != len(asked):
        raise BadBatch("lookups must come with the gradients of each part", value=len(lookups), allowed=str(len(asked)))
    for (own, _), numbers in zip(asked, lookups, strict=True):
        if numbers.dtype != np.int32 or numbers.shape != own.shape:
            raise BadBatch("lookups must be one number for each row", value=f"{numbers.dtype} {numbers.shape}",
                           allowed=f"int32 {own.shape}")  # fmt: skip
    if len(asked) == 1:
        return lookups[0]
    of_parts = np.stack([counts for _, counts in asked]).astype(np.int64, copy=False)
    every = np.concatenate([own for own, _ in asked])
    return join_parts(every, of_parts, np.concatenate(lookups), np.ones(of_parts.shape[1], np.int64))[2]
