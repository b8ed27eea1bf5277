"""Tables some of which are hashed, as a store of rows: of one process, a host of a job, or a parameter server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainer.tables.engine import (
    NO_SNAPSHOT_SECTIONS,
    ChangedRows,
    PartedSection,
    SnapshotSections,
    TableSections,
    TableState,
)
from trainer.tables.state_checks import check_states
from trainer.tables.stores.dense.snapshot import RANGE_BYTES, rows_of_range
from trainer.tables.stores.hashed.kept_snapshot import MixedSnapshot
from trainer.tables.stores.hashed.mixed_tables import MixedTables
from trainer.tables.stores.hashed.saved_history import AGES, CANDIDATES, SECTIONS, STEPS, SavedHistory, newest_rows
from transforms.arrays import Array


class HashedStore(MixedTables):
    """See :class:`~trainer.tables.stores.row_store.RowStore`: the rows of hashed tables are by ids, of which a bounded number have memory.

    For equal calls the bits are those of the same tables on one server. Where it has a part of tables, as a host does, its sections are those
    of this part. Arguments are those of :class:`MixedTables`.
    """

    needs_lookups = False
    sharing = None
    _snapshot: MixedSnapshot | None = None

    def freeze(self) -> None:
        """See :class:`~trainer.tables.stores.row_store.RowStore`: an id without a row has its initial values anyway."""

    def section_names(self, t: int) -> tuple[str, ...]:
        """See :class:`~trainer.tables.stores.row_store.RowStore`."""
        return SECTIONS if self.is_hashed(t) else ()

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights, float32 [len(rows), dim], of ids or rows; for inspection and tests."""
        t, counts = [one.name for one in self.tables].index(table), np.zeros(len(self.tables), np.int64)
        counts[t] = len(rows)
        found = self.read_rows(np.asarray(rows, np.int64), counts)
        return found.reshape(len(rows), self.tables[t].dim).copy()

    def table_state(self, t: int) -> TableState:
        """See :class:`~trainer.tables.stores.row_store.RowStore`."""
        found = self.changed_rows(t, 0, self.tables[t].vocabulary_size)
        sections = TableSections()
        if self.is_hashed(t):
            step, candidates = self.history(t)
            sections = TableSections(arrays={AGES: self.ages_of(t), STEPS: np.array([step]), CANDIDATES: candidates})
        return TableState(found.rows, found.weights, found.slots, sections)

    def load_state(self, state: Mapping[str, TableState]) -> None:
        """See :class:`~trainer.tables.stores.row_store.RowStore`. Rows for which there is no place are evicted, those of the oldest last use first."""
        check_states(self.tables, state)
        histories = {
            one.name: SavedHistory.read(one.name, state[one.name], 1)
            for t, one in enumerate(self.tables)
            if self.is_hashed(t)
        }
        with self.undo_log.filling():
            self.clear()
            for t, table in enumerate(self.tables):
                saved = state[table.name]
                if self.is_hashed(t):
                    self._load_hashed(t, saved, histories[table.name])
                    continue
                self.load_rows(t, ChangedRows(saved.rows, saved.weights, saved.slots))
            self.end_load()

    def _load_hashed(self, t: int, saved: TableState, history: SavedHistory) -> None:
        options = self.options_of(t)
        own, ages, evicted = newest_rows(saved, history.ages, options.places)
        loaded = history.part(0, 1, ages, options.candidate_places, evicted)
        self.load_history(t, loaded.kept)
        self.load_rows(t, ChangedRows(own.rows, own.weights, own.slots), loaded.ages)

    def begin_snapshot(self, *, most_bytes: int) -> HashedSnapshot:
        """See :class:`~trainer.tables.stores.row_store.RowStore`."""
        self._snapshot = self.begin_kept_snapshot(most_bytes=most_bytes, patience_secs=None)
        return HashedSnapshot(self._snapshot, [self.row_floats(t) for t in range(len(self.tables))])

    def end_snapshot(self) -> None:
        """See :class:`~trainer.tables.stores.row_store.RowStore`."""
        if self._snapshot is not None:
            self._snapshot.close()


@dataclass(frozen=True, slots=True, eq=False)
class HashedSnapshot:
    """The changed rows of one moment.

    Attributes:
        rows: the snapshot that has them.
        row_floats: the weights and slot values of a row of each table.
        range_bytes: the bytes of these that are read at once.
    """

    rows: MixedSnapshot
    row_floats: Sequence[int]
    range_bytes: int = RANGE_BYTES

    @property
    def counts(self) -> tuple[int, ...]:
        """The changed rows of each table."""
        return self.rows.counts

    def table(self, t: int) -> Iterator[ChangedRows]:
        """The changed rows of a table, range by range; the snapshot ends with the last table."""
        size = int(self.rows.sizes[t])
        step = rows_of_range(self.row_floats[t], self.range_bytes)
        for first in range(0, size, step):
            found = self.capture(t, first, min(first + step, size))
            if len(found.rows):
                yield found
        if t == len(self.row_floats) - 1:
            self.close()

    def capture(self, t: int, first: int, stop: int) -> ChangedRows:
        """The changed rows of a table from ``first`` to ``stop``; of a hashed one by ranks: 0 is that of the smallest id."""
        found, ages = self.rows.read(t, first, stop), self.rows.ages(t, first, stop)
        self.rows.leave(t, stop)
        return found if ages is None else ChangedRows(found.rows, found.weights, found.slots, (ages,))

    def skip(self, t: int) -> None:
        """Leave out a table that is not read."""
        self.rows.leave(t, int(self.rows.sizes[t]))

    def sections(self, t: int) -> SnapshotSections:
        """See :meth:`TablesSnapshot.sections <trainer.tables.engine.TablesSnapshot.sections>`."""
        if self.rows.ages(t, 0, 0) is None:
            return NO_SNAPSHOT_SECTIONS
        kept = self.rows.history(t)
        steps = PartedSection("int64", (1,), (np.array([kept.step]),), is_own=True)
        candidates = PartedSection("uint64", kept.candidates.shape, (kept.candidates,), is_own=True)
        return SnapshotSections(beside=(AGES,), arrays={STEPS: steps, CANDIDATES: candidates})

    def close(self) -> None:
        """End the snapshot: training that waits for it goes on."""
        self.rows.close()
