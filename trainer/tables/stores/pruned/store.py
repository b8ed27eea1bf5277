"""Pruned tables as a store of rows: of a host of a job, or of a parameter server, whose memory may outlive the process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trainer.errors import BadBatch
from trainer.options.pruning import PruningOptions
from trainer.planning.row_groups import RowGroup
from trainer.tables.batch_checks import check_batch
from trainer.tables.batches import IdBatch
from trainer.tables.engine import NO_HASHED_COUNTS, ChangedRows, RowValues, TableState
from trainer.tables.hashed_history import KeptHistory
from trainer.tables.kernels.layout import Bags, TableOrigin, feature_layout, learning_rates, table_layout
from trainer.tables.kernels.memory import TableMemory
from trainer.tables.kernels.outputs import OutputPool
from trainer.tables.kernels.row_parts import read_weights
from trainer.tables.kernels.threads import Team, available_threads
from trainer.tables.kernels.undo_log import UndoLog
from trainer.tables.kernels.updates import RowUpdates
from trainer.tables.spec import FeatureSpec, TableSpec
from trainer.tables.state_checks import check_states
from trainer.tables.stores.dense.dense_store import join_by_table, join_lookups, one_event
from trainer.tables.stores.pruned import addresses as kernels
from trainer.tables.stores.pruned.history import SECTIONS, kept_numbers, read_numbers
from trainer.tables.stores.pruned.job_places import JobPlaces
from trainer.tables.stores.pruned.kept_snapshot import PrunedSnapshot
from trainer.tables.stores.pruned.rows import PrunedRows
from trainer.tables.stores.pruned.saved_parts import SavedPart, saved_parts
from trainer.tables.stores.row_store import PlaceSharing
from trainer.tables.table_checks import supported_tables
from transforms.arrays import Array

_NO_SHARES = np.zeros(0, np.float32)


class PrunedStore(PrunedRows):
    """See :class:`~trainer.tables.stores.row_store.HeldStore`: the most important rows of ``tables`` have places among those of their groups.

    A row gets a place with its first update, while there are free ones; what is read before then is its initial values. So reading changes
    nothing, in whatever order several clients read. Rows are as important as if one process had looked up the batches of all clients.

    Args:
        tables: the tables, or the parts of tables that are here.
        options: how rows are chosen.
        seed: what initial weights and samples are drawn from.
        groups: of the tables, with the places that they have here; None: those by the options.
        threads: threads of the loops; 0 for one a processor.
        origins: of each table, the part of a whole table that it is; None for whole tables.
        answers: arrays of :meth:`read_rows` that are in use at once.
        memory: has the rows; None: memory of this process.
        undo_log: of the same memory: an update that a killed process has begun is undone when a store begins with its memory.
        job: the places that the hosts of a job share, with memory of this process; None: those of ``groups`` are for these rows alone.

    Attributes:
        features: a feature for each table.
    """

    needs_lookups = True
    hashed_counts = NO_HASHED_COUNTS

    def __init__(
        self, tables: Sequence[TableSpec], options: PruningOptions, *, seed: int, groups: Sequence[RowGroup] | None = None,
        threads: int = 0, origins: Sequence[TableOrigin] | None = None, answers: int = 1, memory: TableMemory | None = None,
        undo_log: UndoLog | None = None, job: JobPlaces | None = None,
    ) -> None:  # fmt: skip
        self.features = tuple(FeatureSpec(one.name, one) for one in tables)
        whole = supported_tables(self.features)
        of_features, team = feature_layout(self.features, whole), Team(threads or available_threads())
        super().__init__(whole, of_features, options, seed=seed, team=team, groups=groups, origins=origins,
                         memory=memory, undo_log=undo_log, job=job)  # fmt: skip
        layout, addresses = self.places.layout, self.addresses
        self._table_of, self._dims, self.undo_log = of_features.table, layout.dims, undo_log
        self._updates = RowUpdates(of_features, layout, team)
        by_row = table_layout(of_features, whole, seed)._replace(row_base=addresses.first_row[:-1])
        self._notes = RowUpdates(of_features, by_row, team)
        self._lookups = kernels.lookups_of(addresses, self._table_of, of_features.sequence)
        self._answers = OutputPool(spare=0.25, kept=answers)
        self._is_frozen = False
        self._granted: Array | None = None
        self.saved_parts: tuple[SavedPart, ...] = saved_parts(whole, options, range(len(whole)))

    def freeze(self) -> None:
        """See :class:`~trainer.tables.stores.row_store.RowStore`: all rows without a place are read as zeros from now on."""
        self._is_frozen = True

    def read_rows(self, rows: Array, counts: Array) -> Array:
        """See :class:`~trainer.tables.stores.row_store.RowStore`: zeros of a row without a place.

        While its group has free places, the first such rows are read with their initial values, each as if it had taken one.
        """
        batch = self._checked(rows, counts)
        if not self._is_frozen:
            self.count_job()
        bags, missing = self._find(batch)
        out = self._answers.take(int((counts * self._dims).sum()))
        read_weights(bags, self.places.layout, self.places.values, out)
        free = self._free_rows()
        had = int(free.sum())
        if missing.any() and free.any() and not self._is_frozen:
            of, zero_rows = self.addresses.group_of, self.addresses.zero_row
            kernels.read_initial(batch.ids, batch.offsets, bags.ids, zero_rows, of, free, self.starts.layout, out)
        zeros = int(missing.sum()) - (had - int(free.sum()))
        self.counts.misses += zeros
        self.counts.hits += len(rows) - zeros
        return out

    def _free_rows(self) -> Array:
        """The free places of each group here, int64; of a group of a job those of all hosts."""
        free = self.addresses.free_rows.copy()
        if self.job is not None:
            free[self.addresses.group_of] = self.job.free[self.job.group_of]
        return free

    @property
    def sharing(self) -> PlaceSharing | None:
        """See :class:`~trainer.tables.stores.row_store.RowStore`."""
        return None if self.job is None else self

    def wanted_places(self, asked: Sequence[tuple[Array, Array]]) -> Array:
        """See :class:`~trainer.tables.stores.row_store.PlaceSharing`."""
        assert self.job is not None
        self.count_job()
        addresses, found = self.addresses, [np.zeros(0, np.int64)]
        has_free = self.job.free[self.job.group_of] > 0
        for rows, counts in asked:
            at = np.repeat(addresses.first_row[:-1], counts) + rows
            found.append(at[(addresses.address[at] < 0) & np.repeat(has_free, counts)])
        tables = np.searchsorted(addresses.first_row, np.unique(np.concatenate(found)), side="right") - 1
        return self.job.wanted(np.bincount(tables, minlength=len(self.tables)))

    def exchange_wanted(self, wanted: Array) -> list[Array]:
        """See :class:`~trainer.tables.stores.row_store.PlaceSharing`."""
        assert self.job is not None
        return self.job.exchange_wanted(wanted)

    def grant_places(self, wanted: Sequence[Array]) -> None:
        """See :class:`~trainer.tables.stores.row_store.PlaceSharing`."""
        assert self.job is not None
        self._granted = self.job.grant(wanted)

    def forget_places(self) -> None:
        """See :class:`~trainer.tables.stores.row_store.PlaceSharing`."""
        assert self.job is not None
        self.job.forget()

    def update_rows(
        self, asked: Sequence[tuple[Array, Array]], gradients: Sequence[Array], rates: Array | None = None, lookups: Sequence[Array] = ()
    ) -> Array:  # fmt: skip
        """See :class:`~trainer.tables.stores.row_store.RowStore`; then a round may begin."""
        rows, counts, flat = join_by_table(asked, gradients, self._dims)
        number = join_lookups(asked, lookups)
        batch = self._checked(rows, counts)
        rates = learning_rates(self.tables) if rates is None else rates
        with self.memory.transaction():
            distinct = self._update(batch, flat, rates, number)
            self.end_step()
        return distinct

    def _update(self, batch: IdBatch, flat: Array, rates: Array, number: Array) -> Array:
        """Rows with a place are updated, and all become more important."""
        bags, missing = self._find(batch)
        if missing.any() and (self.addresses.free_rows if self._granted is None else self._granted).any():
            for t in np.flatnonzero(missing).tolist():
                most = None if self._granted is None else int(self._granted[t])
                self.place_new(t, batch.ids[batch.offsets[t, 0] : batch.offsets[t, 1]], most)
            bags, missing = self._find(batch)
        places, importance = self.places, self.importance
        ids = kernels.missing_ids(batch.ids, batch.offsets, bags.ids, self._table_of, self.addresses)
        if self.memory.is_undone:
            counts = batch.offsets[:, 1] - batch.offsets[:, 0]
            without = bags.ids == np.repeat(self.addresses.zero_row, counts)
            of_rows = np.repeat(self.addresses.first_row[:-1], counts) + ids
            importance.keep(np.repeat(places.layout.row_base, counts) + bags.ids, of_rows[without])
        with places.changing(bags, places.group_of):
            distinct = self._updates.apply_rows(bags, flat, rates, places.values, importance.noted_places(), number)
        if missing.any():
            self.candidates.mark(ids, batch.offsets, self._table_of)
            others = Bags(ids, batch.offsets, _NO_SHARES)
            distinct = distinct + self._notes.note_rows(others, flat, importance.noted(), number)
        return distinct

    def _checked(self, rows: Array, counts: Array) -> IdBatch:
        batch = one_event(np.ascontiguousarray(rows, np.int64), counts)
        check_batch(batch, self.features)
        return batch

    def _find(self, batch: IdBatch) -> tuple[Bags, Array]:
        """The places of rows, those of rows of zeros for rows without one, and how many of each table are."""
        places, missing = np.empty(len(batch.ids), np.int32), np.zeros(len(self.tables), np.int64)
        every = np.arange(len(self.tables))
        kernels.find_places(every, 0, 1, batch.ids, batch.offsets, self._lookups, places, missing)
        return Bags(places, batch.offsets, _NO_SHARES), missing

    def section_names(self, t: int) -> tuple[str, ...]:
        """See :class:`~trainer.tables.stores.row_store.RowStore`."""
        return SECTIONS

    def load_state(self, state: Mapping[str, TableState]) -> None:
        """See :class:`~trainer.tables.stores.row_store.RowStore`. Of more rows than a group has places, the most important ones stay."""
        check_states(self.tables, state)
        if self.undo_log is None:
            self.load(state)
            return
        with self.undo_log.filling():
            self.load(state)

    def read_values(self, rows: Array, counts: Array) -> RowValues:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`. Raises :class:`BadBatch`."""
        raise _only_loaded(counts)

    def write_values(self, rows: Array, counts: Array, values: RowValues, *, are_changed: bool) -> None:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`. Raises :class:`BadBatch`."""
        raise _only_loaded(counts)

    def changed_rows(self, t: int, first: int, stop: int) -> ChangedRows:
        """A copy of the rows of a table from ``first`` to ``stop`` that have places."""
        return self.changed_among(t, np.arange(first, stop, dtype=np.int64))

    def changed_among(self, t: int, rows: Array) -> ChangedRows:
        """A copy of those of ``rows``, int64 and ascending, of a table that have places."""
        places = self.addresses.of_table(t)[rows].astype(np.int64)
        own = places >= 0
        found = self.places.read(t, rows[own], places[own])
        return ChangedRows(found.rows, found.weights, found.slots)

    def load_history(self, t: int, history: KeptHistory, first: int = 0) -> None:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`: the numbers of all tables."""
        self.load_numbers(*read_numbers(history))

    def load_rows(self, t: int, found: ChangedRows, ages: Array | None = None) -> None:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`; ``t`` is the number of one of :attr:`saved_parts`."""
        part = self.saved_parts[t]
        t = part.table
        if len(found.rows) and int(found.rows[-1]) >= part.rows:
            raise BadBatch("a row must lie in its table", where=f"table {self.tables[t].name}", value=int(found.rows[-1]), allowed=f"[0, {part.rows})")  # fmt: skip
        if part.section:
            self.load_section(t, part.section, TableState(found.rows, found.weights, found.slots))
            return
        new = found.rows[self.addresses.of_table(t)[found.rows] < 0]
        if len(new) > self.addresses.free_of(t):
            raise BadBatch("the rows of a group must be at most its places", where=f"table {self.tables[t].name}", value=len(new),
                           allowed=f"<= {self.addresses.free_of(t)}")  # fmt: skip
        self.addresses.place(t, new)
        places = self.addresses.of_table(t)[found.rows].astype(np.int64)
        self.places.write(t, places, TableState(found.rows, found.weights, found.slots))

    def begin_kept_snapshot(self, *, most_bytes: int, patience_secs: float | None) -> PrunedSnapshot:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`; addresses and importance are copied now."""
        PrunedSnapshot.clear(self.memory.tables, self.saved_parts)
        places = self.places.begin_kept_snapshot(most_bytes, patience_secs)
        numbers = kept_numbers(self.importance.gain, self.step, self.rounds)
        histories = list(self.histories().values())
        found: list[tuple[Array, TableState | Array]] = []
        for part in self.saved_parts:
            if not part.section:
                found.append(self.addresses.placed(part.table))
                continue
            own = histories[part.table].sections().by_rows[part.section]
            found.append((own.rows, own))
        return PrunedSnapshot(places, self.memory.tables, self.saved_parts, self.addresses.group_of, numbers, found)

    def resume_snapshot(self, *, patience_secs: float) -> PrunedSnapshot | None:
        """See :class:`~trainer.tables.stores.row_store.HeldStore`."""
        places = self.places.resume_snapshot(patience_secs)
        if places is None:
            return None
        return PrunedSnapshot.resume(places, self.memory.tables, self.saved_parts, self.addresses.group_of)


def _only_loaded(counts: Array) -> BadBatch:
    return BadBatch("rows of pruned tables must be loaded with their importance", value=counts.tolist()[:8])
