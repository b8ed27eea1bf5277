"""The embedding engine of simulated cores: tables partitioned as on a pod, in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainer.errors import ConfigError
from trainer.options.pruning import PruningOptions
from trainer.planning.plan import PartitionPlan
from trainer.tables.batches import IdBatch, part_of
from trainer.tables.engine import ChangedRows, SnapshotSections, TableState
from trainer.tables.kernels.threads import Team
from trainer.tables.optimizers import slot_width
from trainer.tables.routes.bag_tables import BagTables
from trainer.tables.routes.partitioned.core_threads import CoreThreads
from trainer.tables.routes.partitioned.sharded_tables import Asked, ShardedTables, ShardSnapshot
from trainer.tables.routes.partitioned.static_buffers import StackTraffic, StaticBuffers
from trainer.tables.routes.partitioned.table_parts import TableParts, join_row_sections, join_sections
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tables.spec import FeatureSpec
from trainer.tables.stores.dense.snapshot import RANGE_BYTES
from trainer.tables.table_checks import engine_tables
from transforms.arrays import Array

_MOST_CORES = 1024
_ONE_THREAD = Team(1)


@dataclass(frozen=True, slots=True, eq=False)
class _Divided:
    """A batch, and what each core needs of its part."""

    batch: IdBatch
    parts: list[Asked]


class PartitionedEngine(BagTables[_Divided]):
    """Lookups and updates over the tables of ``features``, on ``cores`` threads that exchange rows as the cores of a pod do.

    Each core has a part of every batch's events, and the rows and columns of each table that the plan says. Activations are those of the
    ``cpu`` engine bit for bit; updates differ from it by the order in which a row's gradients are added, and repeat bit for bit for a plan.

    Args:
        features: the features, in the order of batches.
        seed: what initial weights are drawn from.
        cores: 1 to 1024.
        plan: which core has which rows; None: every ``cores``-th row of each table on each core. It may have tables that are not here.
        settings: limits of SparseCore's buffers, which a batch must keep; None: buffers grow.
        held: batches between a lookup and its update, for which it keeps what both need.
        pruning: the most important rows of each core have places, by these options; None: all rows have values.

    Raises :class:`ConfigError` for what the ``cpu`` engine refuses, for unknown names of features and stacks, and for a plan of other
    cores or tables, or with slices of columns of a table with a row-wise optimizer.
    """

    def __init__(
        self, features: Sequence[FeatureSpec], *, seed: int, cores: int, plan: PartitionPlan | None = None,
        settings: SparseCoreSettings | None = None, held: int = 2, pruning: PruningOptions | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(cores, int) or not 1 <= cores <= _MOST_CORES:
            raise ConfigError("cores must be a whole number", value=cores, allowed=f"1 to {_MOST_CORES}")
        super().__init__(features, engine_tables(features), _ONE_THREAD, held=held)
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
                held=0,
                pruning=pruning,
            )
            for exchange in self._threads.exchanges
        )

    @property
    def cores(self) -> int:
        """The number of simulated cores."""
        return self._threads.cores

    @property
    def traffic(self) -> dict[str, StackTraffic]:
        """What cores have asked each other for, by name of a stack."""
        return self._buffers.traffic

    def prepare(self, batch: IdBatch) -> _Divided:
        """See :class:`BagTables`."""
        cuts = [batch.rows * core // self.cores for core in range(self.cores + 1)]
        parts = [part_of(batch, cuts[core], cuts[core + 1]) for core in range(self.cores)]
        return _Divided(batch, self._threads.run(lambda core: self._cores[core].prepare(parts[core])))

    def begin(self, kept: _Divided) -> Callable[[], Array]:
        """See :class:`BagTables`. Raises :class:`~trainer.errors.BadBatch` for more ids for one core than its buffer may hold."""
        self._buffers.admit([one.requests for one in kept.parts])
        found = self._threads.run(lambda core: self._cores[core].begin(kept.parts[core])())
        return lambda: np.concatenate(found)

    def update(self, kept: _Divided, gradients: Array) -> Iterable[tuple[Array, Array]]:
        """See :class:`BagTables`.

        A core adds the gradients of its events in the order feature, event, position, and the owner of a row those of the cores in their
        order.
        """
        if any(one.received is None for one in kept.parts):
            self.begin(kept)()
        ends = np.cumsum([0, *(one.requests.batch.rows * self.width for one in kept.parts)])
        distinct = self._threads.run(
            lambda core: self._cores[core].update_rows(kept.parts[core], gradients[ends[core] : ends[core + 1]])
        )
        return [(kept.batch.offsets, np.sum(distinct, axis=0))]

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights, float32 [len(rows), dim], also of rows that were never read. For inspection and tests."""
        rows, t = self.checked_rows(table, rows), self.position(table)
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
        """See :meth:`SavedTables.section_names <trainer.tables.engine.SavedTables.section_names>`."""
        return self._cores[0].section_names(self._parts.of_table(t)[0])

    def load(self, state: Mapping[str, TableState]) -> None:
        """See :class:`BagTables`."""
        for core in self._cores:
            core.load(state)

    def begin_snapshot(self, *, most_bytes: int) -> PartitionedSnapshot:
        """See :meth:`CpuEngine.begin_snapshot <trainer.tables.routes.cpu_engine.CpuEngine.begin_snapshot>`."""
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
            found = self.capture(t, first, stop)
            if len(found.rows):
                yield ChangedRows(found.rows, found.weights, found.slots)

    def sections(self, t: int) -> SnapshotSections:
        """See :meth:`TablesSnapshot.sections <trainer.tables.engine.TablesSnapshot.sections>`."""
        found = [core.sections(self.parts.of_table(t)[0]) for core in self.cores]
        return replace(found[0], by_rows=join_row_sections([one.by_rows for one in found]))

    def capture(self, t: int, first: int, stop: int) -> TableState:
        """The changed rows of a table from ``first`` to ``stop``."""
        return self.parts.join(t, [self._of_part(p, first, stop) for p in self.parts.of_table(t)])

    def _of_part(self, p: int, first: int, stop: int) -> list[ChangedRows]:
        parts = (core.capture(p, first, stop) for core in self.cores)
        return [part for part in parts if part is not None]

    def close(self) -> None:
        """Close the snapshots of all cores."""
        for core in self.cores:
            core.close()
