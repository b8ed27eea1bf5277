"""The embedding engine of one process, whose rows are combined where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from trainer.tables.batches import IdBatch
from trainer.tables.engine import TableState
from trainer.tables.kernels import lookup as lookup_kernels
from trainer.tables.kernels.layout import Bags, feature_layout, learning_rates, table_layout
from trainer.tables.kernels.memory import TableMemory
from trainer.tables.kernels.outputs import OutputPool
from trainer.tables.kernels.threads import split_events
from trainer.tables.kernels.updates import RowUpdates
from trainer.tables.kernels.vectors import LANES
from trainer.tables.routes.bag_tables import BagTables
from trainer.tables.spec import FeatureSpec
from trainer.tables.stores.dense.dense_store import DenseStore
from trainer.tables.stores.dense.snapshot import EngineSnapshot
from trainer.tables.table_checks import engine_tables
from transforms.arrays import Array

_NO_SHARES = np.zeros(0, np.float32)
#: The work of an event beside that of its ids, in floats.
_EVENT_COST = 16
#: The events that are combined feature after feature.
_TILE_EVENTS = 4096
#: Activations of this size leave the caches before they are read.
STREAMED_BYTES = 8 << 20


@dataclass(slots=True, eq=False)
class _Prepared:
    """A checked batch; ``are_initial``: whether all its rows have values."""

    batch: IdBatch
    bags: Bags
    are_initial: bool = False


class CpuEngine(BagTables[_Prepared]):
    """Lookups and updates over the tables of ``features``; releases the GIL while it works.

    The same calls in the same order give the same bits on one machine, whatever the number of threads. Activations are not written to
    again while they, or a view of them, are in use. Gradients of a row that occurs more than once, in one bag, in many, or in many features
    of its table, are summed in float32 in the order feature, event, position; then the row is updated once.

    Args:
        features: the features, in the order of batches.
        seed: see :class:`~trainer.tables.stores.dense.dense_store.DenseStore`.
        threads: see there.
        held: batches between a lookup and its update, for which it keeps what both need.
        memory: see there.

    Attributes:
        store: the rows.

    Raises :class:`~trainer.errors.ConfigError` without features, and as the store does.
    """

    may_predict = True

    def __init__(
        self,
        features: Sequence[FeatureSpec],
        *,
        seed: int,
        threads: int = 0,
        held: int = 2,
        memory: TableMemory | None = None,
    ) -> None:
        tables = engine_tables(features)
        self.store = DenseStore(tables, seed=seed, threads=threads, memory=memory)
        super().__init__(features, tables, self.store.team, held=held)
        self._of_features = feature_layout(self.features, tables)
        self._layout = table_layout(self._of_features, tables, seed)
        self._dims = self._layout.dims[self._of_features.table]
        self._updates = RowUpdates(self._of_features, self._layout, self.team)
        self._outputs = OutputPool(kept=held + 1)
        self._may_stream = not (self._dims % LANES).any()

    @property
    def threads(self) -> int:
        """The threads that its loops use."""
        return self.team.threads

    def prepare(self, batch: IdBatch) -> _Prepared:
        """See :class:`BagTables`."""
        shares = _NO_SHARES
        if batch.weights is not None:
            shares = lookup_kernels.shares_of(batch.weights, batch.offsets, self._of_features.combiner)
        return _Prepared(batch, Bags(batch.ids, batch.offsets, shares))

    def begin(self, kept: _Prepared) -> Callable[[], Array]:
        """See :class:`BagTables`."""
        batch, width = kept.batch, self.width
        out = self._outputs.take(batch.rows * width)
        streams = self._may_stream and out.nbytes >= STREAMED_BYTES
        threads = self.team.threads_for(int(self._dims @ (batch.offsets[:, -1] - batch.offsets[:, 0])))
        parts = split_events(batch.offsets, self._dims + _EVENT_COST, threads)
        combine, features, layout, values = (
            lookup_kernels.combine_bags,
            self._of_features,
            self._layout,
            self.store.values,
        )
        self.team.run(
            [partial(combine, *part, _TILE_EVENTS, kept.bags, features, layout, values, out, width, streams)
             for part in parts]
        )  # fmt: skip
        kept.are_initial = True
        return lambda: out.reshape(batch.rows, width)

    def update(self, kept: _Prepared, gradients: Array) -> Iterable[tuple[Array, Array]]:
        """See :class:`BagTables`."""
        bags, table_of = kept.bags, self._of_features.table
        if not kept.are_initial:
            self.store.initialise(bags, table_of)
            kept.are_initial = True
        rates = learning_rates(self.tables)
        with self.store.changing(bags, table_of):
            distinct = self._updates.apply(bags, gradients, self.width, rates, self.store.values)
        return [(bags.offsets, distinct)]

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights, float32 [len(rows), dim], also of rows that were never read. For inspection and tests."""
        return self.store.weights_of(table, rows)

    def state(self) -> dict[str, TableState]:
        """A copy of all changed rows, by table name: equal states have equal bytes."""
        return self.store.state()

    def section_names(self, t: int) -> tuple[str, ...]:
        """See :meth:`SavedTables.section_names <trainer.tables.engine.SavedTables.section_names>`."""
        return self.store.section_names(t)

    def load(self, state: Mapping[str, TableState]) -> None:
        """See :class:`BagTables`."""
        self.store.load_state(state)

    def begin_snapshot(self, *, most_bytes: int) -> EngineSnapshot:
        """See :meth:`DenseStore.begin_snapshot <trainer.tables.stores.dense.dense_store.DenseStore.begin_snapshot>`."""
        return self.store.begin_snapshot(most_bytes=most_bytes)

    def end_snapshot(self) -> None:
        """Close the snapshot, if there is one: training that waits for it goes on."""
        self.store.end_snapshot()
