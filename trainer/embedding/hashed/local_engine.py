"""An engine of this process with hashed tables: for the trial of options, and for predictions of a trained model.

Training a run keeps such tables on parameter servers, whose checkpoints have the ages of rows; for equal calls the bits are the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trainer.embedding.batch_checks import check_batch
from trainer.embedding.batches import IdBatch
from trainer.embedding.cpu.finite_gradients import check_finite
from trainer.embedding.cpu.layout import feature_layout, table_layout
from trainer.embedding.cpu.outputs import OutputPool
from trainer.embedding.cpu.snapshot import RANGE_BYTES, rows_of_range
from trainer.embedding.cpu.threads import Team, available_threads
from trainer.embedding.engine import NO_SNAPSHOT_SECTIONS, ChangedRows, RowValues, SnapshotSections, TableState
from trainer.embedding.feature_counts import BatchCounter, FeatureCounts
from trainer.embedding.gradient_checks import check_gradients
from trainer.embedding.hashed.kept_snapshot import KeptHistory, MixedSnapshot
from trainer.embedding.hashed.limits import TableLimits
from trainer.embedding.hashed.mixed_tables import MixedTables
from trainer.embedding.partitioned.gathered_rows import GatheredRows
from trainer.embedding.partitioned.request_kernels import put_rows, take_rows
from trainer.embedding.partitioned.requests import RequestMaker, Requests
from trainer.embedding.partitioned.table_parts import TableParts
from trainer.embedding.spec import FeatureSpec
from trainer.embedding.state_checks import check_states
from trainer.embedding.table_checks import supported_tables

Array = np.ndarray[Any, np.dtype[Any]]

_NO_CANDIDATES = np.zeros(0, np.uint64)


class LocalHashedEngine:
    """Lookups and updates over the tables of ``features``, some of which are hashed.

    Args:
        features: the features, in the order of batches.
        hashed: the limits of the hashed tables, by name; a state with more rows makes a table larger.
        seed: what initial weights are drawn from.
        threads: threads of the loops; 0 for one a processor.
        held: batches between a lookup and its update.

    Raises :class:`~trainer.errors.ConfigError` for what the ``cpu`` engine refuses.
    """

    def __init__(
        self, features: Sequence[FeatureSpec], hashed: Mapping[str, TableLimits], *, seed: int, threads: int = 0, held: int = 2
    ) -> None:  # fmt: skip
        self.features, self.tables = tuple(features), supported_tables(features)
        self._limits, self._seed, self._threads = dict(hashed), seed, threads
        self._of_features, self._team = feature_layout(self.features, self.tables), Team(threads or available_threads())
        self.width = sum(feature.width for feature in self.features)
        sized = [replace(one, vocabulary_size=1) if one.name in hashed else one for one in self.tables]
        layout = table_layout(self._of_features, sized, seed)  # of ids that are asked for alone
        self._requests = RequestMaker(self.features, self._of_features, layout, parts=TableParts(self.tables, 1, None), core=0,
                                      dense_ids=None, team=self._team)  # fmt: skip
        self._gathered = GatheredRows(self._of_features, layout, self.width, self._team)
        self._memory = OutputPool(spare=0.25, kept=2 + held)
        self._held = held
        self._begin(self._limits)

    def _begin(self, limits: Mapping[str, TableLimits]) -> None:
        self._store = MixedTables(self.tables, limits, seed=self._seed, threads=self._threads)
        self._looked_up: deque[tuple[Requests, Array]] = deque(maxlen=self._held)
        self._counter = BatchCounter(self.features, self._of_features.table)
        self._snapshot: MixedSnapshot | None = None

    @property
    def hashed(self) -> tuple[str, ...]:
        """The names of the hashed tables."""
        return tuple(self._limits)

    def lookup(self, batch: IdBatch) -> Array:
        """See :meth:`EmbeddingEngine.lookup <trainer.embedding.engine.EmbeddingEngine.lookup>`."""
        check_batch(batch, self.features)
        return self._gathered.combine(*self._fetch(batch))

    def _fetch(self, batch: IdBatch) -> tuple[Requests, Array]:
        requests = self._requests.make(batch)
        layout, reads, parts = requests.layout, requests.reads, requests.part_values
        weights = self._memory.take(int((layout.vocabulary * layout.dims).sum()))
        put_rows(reads.places, reads.counts[0], parts, self._store.read_rows(reads.rows, reads.counts[0]), weights)
        self._looked_up.append((requests, weights))
        return requests, weights

    def apply_gradients(self, batch: IdBatch, gradients: Array) -> None:
        """See :meth:`EmbeddingEngine.apply_gradients <trainer.embedding.engine.EmbeddingEngine.apply_gradients>`."""
        check_batch(batch, self.features)
        check_gradients(batch, gradients, self.width)
        flat = np.ascontiguousarray(gradients).reshape(-1)
        check_finite(flat, self.features, self._team)
        requests = next((one for one, _ in self._looked_up if one.batch is batch), None) or self._fetch(batch)[0]
        layout, updates, parts = requests.layout, requests.updates, requests.part_values
        sums = self._memory.take(int((layout.vocabulary * layout.dims).sum()))
        self._gathered.sum_gradients(requests, flat, sums)
        floats = self._memory.take(int((updates.counts[0] * parts.dims).sum()))
        take_rows(updates.places, updates.counts[0], parts, sums, floats)
        self._store.update_rows([(updates.rows, updates.counts[0])], [floats])
        self._counter.add(batch.offsets, layout.vocabulary)

    def statistics(self) -> dict[str, FeatureCounts]:
        """See :meth:`EmbeddingEngine.statistics <trainer.embedding.engine.SavedTables.statistics>`."""
        return self._counter.by_feature()

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights, float32 [len(rows), dim], of ids or rows; for inspection and tests."""
        t = [one.name for one in self.tables].index(table)
        counts = np.zeros(len(self.tables), np.int64)
        counts[t] = len(rows)
        found = self._store.read_rows(np.asarray(rows, np.int64), counts)
        return found.reshape(len(rows), self.tables[t].dim).copy()

    def state(self) -> dict[str, TableState]:
        """See :meth:`SavedTables.state <trainer.embedding.engine.SavedTables.state>`."""
        found = {}
        for t, table in enumerate(self.tables):
            rows = self._store.changed_rows(t, 0, table.vocabulary_size)
            found[table.name] = TableState(rows.rows, rows.weights, rows.slots)
        return found

    def section_names(self, t: int) -> tuple[str, ...]:
        """See :meth:`SavedTables.section_names <trainer.embedding.engine.SavedTables.section_names>`: none."""
        return ()

    def load_state(self, state: Mapping[str, TableState]) -> None:
        """See :meth:`SavedTables.load_state <trainer.embedding.engine.SavedTables.load_state>`: rows count as used at one step."""
        check_states(self.tables, state)
        self._begin({
            name: replace(one, capacity=max(one.capacity, len(state[name].rows))) for name, one in self._limits.items()
        })  # fmt: skip
        store = self._store
        with store.undo_log.filling():
            store.clear()
            for t, table in enumerate(self.tables):
                saved = state[table.name]
                if store.is_hashed(t):
                    store.load_history(t, KeptHistory(min(len(saved.rows), 1), _NO_CANDIDATES))
                    own = ChangedRows(saved.rows, saved.weights, saved.slots)
                    store.load_rows(t, own, np.zeros(len(saved.rows), np.int64))
                    continue
                counts = np.zeros(len(self.tables), np.int64)
                counts[t] = len(saved.rows)
                values = RowValues(saved.weights.reshape(-1), saved.slots.reshape(-1))
                store.write_values(saved.rows, counts, values, are_changed=True)
            store.end_load()

    def begin_snapshot(self, *, most_bytes: int) -> LocalSnapshot:
        """See :meth:`SavedTables.begin_snapshot <trainer.embedding.engine.SavedTables.begin_snapshot>`."""
        self._snapshot = self._store.begin_kept_snapshot(most_bytes=most_bytes, patience_secs=None)
        widths = [self._store.row_floats(t) for t in range(len(self.tables))]
        return LocalSnapshot(self._snapshot, widths)

    def end_snapshot(self) -> None:
        """See :meth:`SavedTables.end_snapshot <trainer.embedding.engine.SavedTables.end_snapshot>`."""
        if self._snapshot is not None:
            self._snapshot.close()


@dataclass(frozen=True, slots=True, eq=False)
class LocalSnapshot:
    """The changed rows of one moment, read in ranges; ``row_floats``: the weights and slot values of a row of each table."""

    rows: MixedSnapshot
    row_floats: Sequence[int]

    @property
    def counts(self) -> tuple[int, ...]:
        """The changed rows of each table."""
        return self.rows.counts

    def sections(self, t: int) -> SnapshotSections:
        """See :meth:`TablesSnapshot.sections <trainer.embedding.engine.TablesSnapshot.sections>`: none."""
        return NO_SNAPSHOT_SECTIONS

    def table(self, t: int) -> Iterator[ChangedRows]:
        """The changed rows of a table, range by range; the snapshot ends with the last table."""
        size = int(self.rows.sizes[t])
        step = rows_of_range(self.row_floats[t], RANGE_BYTES)
        for first in range(0, size, step):
            stop = min(first + step, size)
            found = self.rows.read(t, first, stop)
            self.rows.leave(t, stop)
            if len(found.rows):
                yield found
        if t == len(self.row_floats) - 1:
            self.rows.close()
