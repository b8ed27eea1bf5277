"""The embedding engine of simulated cores: tables partitioned as on a pod, in one process."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trainer.embedding.batch_checks import check_batch
from trainer.embedding.batches import IdBatch, part_of
from trainer.embedding.cpu.finite_gradients import check_finite
from trainer.embedding.cpu.layout import feature_layout
from trainer.embedding.cpu.snapshot import RANGE_BYTES
from trainer.embedding.cpu.threads import Team
from trainer.embedding.engine import NO_HASHED_COUNTS, ChangedRows, SnapshotSections, TableSections, TableState
from trainer.embedding.feature_counts import BatchCounter, FeatureCounts
from trainer.embedding.gradient_checks import check_gradients
from trainer.embedding.optimizers import slot_width
from trainer.embedding.partitioned.core_threads import CoreThreads
from trainer.embedding.partitioned.sharded_tables import ShardedTables, ShardSnapshot
from trainer.embedding.partitioned.static_buffers import StackTraffic, StaticBuffers
from trainer.embedding.partitioned.table_parts import TableParts, join_sections
from trainer.embedding.sparse_core import SparseCoreSettings
from trainer.embedding.spec import FeatureSpec
from trainer.embedding.state_checks import check_states
from trainer.embedding.table_checks import engine_tables
from trainer.errors import BadBatch, ConfigError
from trainer.planning.plan import PartitionPlan
from trainer.pruning_options import PruningOptions

Array = np.ndarray[Any, np.dtype[Any]]

_MOST_CORES = 1024
_ONE_THREAD = Team(1)


@dataclass(frozen=True, slots=True, eq=False)
class _Divided:
    """A batch, and the parts of it that each core has."""

    batch: IdBatch
    parts: tuple[IdBatch, ...]


class PartitionedEngine:
    """Lookups and updates over the tables of ``features``, on ``cores`` threads that exchange rows as the cores of a pod do.

    Each core has a part of every batch's events, and the rows and columns of each table that the plan says. Activations are those of the
    ``cpu`` engine bit for bit; updates differ from it by the order in which a row's gradients are added, and repeat bit for bit for a plan.

    Args:
        features: the features, in the order of batches.
        seed: what initial weights are drawn from.
        cores: 1 to 1024.
        plan: where the tables stand; None: every ``cores``-th row of each table on each core. It may have tables that are not here.
        settings: limits of SparseCore's buffers, which a batch must keep; None: buffers grow.
        dense_ids: by feature, the ids of a bag that are deduplicated before the exchange; all of them if it is absent. See
            :func:`~trainer.embedding.partitioned.valency_split.dense_ids_of`.
        held: batches between a lookup and its update, for which it keeps what both need.
        pruning: the most important rows of each core have places, by these options; None: all rows have values.

    Raises :class:`ConfigError` for what the ``cpu`` engine refuses, for unknown names of features and stacks, and for a plan of other
    cores or tables, or with slices of columns of a table with a row-wise optimizer.
    """

    may_predict = False
    hashed_counts = NO_HASHED_COUNTS

    def __init__(
        self, features: Sequence[FeatureSpec], *, seed: int, cores: int, plan: PartitionPlan | None = None,
        settings: SparseCoreSettings | None = None, dense_ids: Mapping[str, int] | None = None,
        held: int = 2, pruning: PruningOptions | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(cores, int) or not 1 <= cores <= _MOST_CORES:
            raise ConfigError("cores must be a whole number", value=cores, allowed=f"1 to {_MOST_CORES}")
        self.features, self.tables = tuple(features), engine_tables(features)
        self._parts = TableParts(self.tables, cores, plan)
        self._buffers = StaticBuffers(self._parts, settings)
        self._threads = CoreThreads(cores)
        self._cores = tuple(
            ShardedTables(
                self.features,
                seed=seed,
                exchange=exchange,
                parts=self._parts,
                threads=1,
                buffers=self._buffers,
                dense_ids=dense_ids,
                held=held,
                pruning=pruning,
            )
            for exchange in self._threads.exchanges
        )
        self._divided: deque[_Divided] = deque(maxlen=held)
        self._counter = BatchCounter(self.features, feature_layout(self.features, self.tables).table)

    @property
    def cores(self) -> int:
        """The number of simulated cores."""
        return self._threads.cores

    @property
    def width(self) -> int:
        """Columns of the activations: the sum of the features' widths."""
        return self._cores[0].width

    @property
    def traffic(self) -> dict[str, StackTraffic]:
        """What cores have asked each other for, by name of a stack."""
        return self._buffers.traffic

    def lookup(self, batch: IdBatch) -> Array:
        """Activations, float32 [batch.rows, width]; an empty bag gives zeros.

        Raises :class:`BadBatch` for an id outside its table, offsets that do not fit, and more ids for one core than its buffer may hold,
        before anything is read.
        """
        parts = self._divide(batch).parts
        requests = self._threads.run(lambda core: self._cores[core].requests(parts[core]))
        self._buffers.admit(requests)
        return np.concatenate(self._threads.run(lambda core: self._cores[core].fetch(requests[core])))

    def freeze(self) -> None:
        """See :meth:`EmbeddingEngine.freeze <trainer.embedding.engine.EmbeddingEngine.freeze>`: lookups change nothing anyway."""

    def apply_gradients(self, batch: IdBatch, gradients: Array) -> None:
        """One optimizer update for each distinct row of ``batch``, by float32 ``gradients`` [batch.rows, width].

        A core adds the gradients of its events in the order feature, event, position, and the owner of a row those of the cores in their
        order. Raises :class:`BadBatch`, or :class:`~trainer.errors.NonFiniteLoss` for NaN and infinity; nothing is changed then.
        """
        divided = self._divide(batch)
        check_gradients(batch, gradients, self.width)
        flat = np.ascontiguousarray(gradients).reshape(-1)
        check_finite(flat, self.features, _ONE_THREAD)
        if not all(core.has_fetched(part) for core, part in zip(self._cores, divided.parts, strict=True)):
            self.lookup(batch)
        ends = np.cumsum([0, *(part.rows * self.width for part in divided.parts)])
        distinct = self._threads.run(
            lambda core: self._cores[core].update(divided.parts[core], flat[ends[core] : ends[core + 1]])
        )
        self._counter.add(batch.offsets, np.sum(distinct, axis=0))

    def _divide(self, batch: IdBatch) -> _Divided:
        """The batch, checked, and each core's part of it."""
        for one in self._divided:
            if one.batch is batch:
                return one
        check_batch(batch, self.features)
        cuts = [batch.rows * core // self.cores for core in range(self.cores + 1)]
        parts = tuple(part_of(batch, cuts[core], cuts[core + 1]) for core in range(self.cores))
        self._divided.append(_Divided(batch, parts))
        return self._divided[-1]

    def statistics(self) -> dict[str, FeatureCounts]:
        """The counts of each feature since this engine was made, by name."""
        return self._counter.by_feature()

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights, float32 [len(rows), dim], also of rows that were never read. For inspection and tests."""
        names = [one.name for one in self.tables]
        if table not in names:
            raise ConfigError("an embedding table must be one of the engine's", value=table, allowed=", ".join(names))
        t, rows = names.index(table), np.asarray(rows, np.int64)
        size = self.tables[t].vocabulary_size
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < size:
            raise BadBatch("a row must lie in its table", where=f"table {table}",
                           value=(int(rows.min()), int(rows.max())), allowed=f"[0, {size})")  # fmt: skip
        out = np.empty((len(rows), self.tables[t].dim), np.float32)
        for p in self._parts.of_table(t):
            for core in self._cores:
                mine, weights = core.part_weights_of(p, rows)
                out[mine, self._parts.parts[p].columns] = weights
        return out

    def state(self) -> dict[str, TableState]:
        """A copy of all changed rows, by table name: that of any other number of cores and any other plan."""
        return {table.name: self._table_state(t) for t, table in enumerate(self.tables)}

    def _table_state(self, t: int) -> TableState:
        states = [[core.part_state(p) for core in self._cores] for p in self._parts.of_table(t)]
        sections = join_sections([one.sections for one in states[0]])
        return replace(self._parts.join(t, states), sections=sections)

    def section_names(self, t: int) -> tuple[str, ...]:
        """See :meth:`SavedTables.section_names <trainer.embedding.engine.SavedTables.section_names>`."""
        return self._cores[0].section_names(self._parts.of_table(t)[0])

    def load_state(self, state: Mapping[str, TableState]) -> None:
        """Restore a :meth:`state` of any engine. Raises :class:`~trainer.errors.TornCheckpoint` if it does not fit."""
        check_states(self.tables, state)
        for core in self._cores:
            core.load_state(state)
        self._divided.clear()
        self._counter = BatchCounter(self.features, feature_layout(self.features, self.tables).table)

    def begin_snapshot(self, *, most_bytes: int) -> PartitionedSnapshot:
        """See :meth:`CpuEngine.begin_snapshot <trainer.embedding.cpu.engine.CpuEngine.begin_snapshot>`."""
        share = most_bytes // self.cores
        return PartitionedSnapshot(
            self._parts, tuple(core.begin_part_snapshot(most_bytes=share) for core in self._cores)
        )

    def end_snapshot(self) -> None:
        """Close the snapshot, if there is one."""
        for core in self._cores:
            core.end_snapshot()


@dataclass(frozen=True, slots=True)
class PartitionedSnapshot:
    """The changed rows of all cores at one moment, in the order of the whole tables.

    ``range_bytes``: the most weights and slot values that are read at once, for each core.
    """

    parts: TableParts
    cores: tuple[ShardSnapshot, ...]
    range_bytes: int = RANGE_BYTES

    @property
    def counts(self) -> tuple[int, ...]:
        """The changed rows of each table."""
        by_part = np.sum([core.counts for core in self.cores], axis=0)
        return tuple(int(by_part[p]) for p in self.parts.first_part[:-1])

    def table(self, t: int) -> Iterator[ChangedRows]:
        """The changed rows of a table, range by range; tables must be taken in order, each to its end."""
        table, parts = self.parts.tables[t], self.parts.of_table(t)
        row_floats = table.dim + slot_width(table.optimizer, table.dim)
        step = min(self.parts.parts[p].window_rows(row_floats, self.range_bytes) for p in parts)
        for first in range(0, table.vocabulary_size, step):
            stop = min(first + step, table.vocabulary_size)
            found = self.parts.join(t, [self._capture(p, first, stop) for p in parts])
            if len(found.rows):
                yield ChangedRows(found.rows, found.weights, found.slots)

    def sections(self, t: int) -> SnapshotSections:
        """See :meth:`TablesSnapshot.sections <trainer.embedding.engine.TablesSnapshot.sections>`."""
        found = [core.sections(self.parts.of_table(t)[0]) for core in self.cores]
        return replace(found[0], by_rows=join_sections([TableSections(one.by_rows) for one in found]).by_rows)

    def _capture(self, p: int, first: int, stop: int) -> list[ChangedRows]:
        parts = (core.capture(p, first, stop) for core in self.cores)
        return [part for part in parts if part is not None]

    def close(self) -> None:
        """Close the snapshots of all cores."""
        for core in self.cores:
            core.close()
