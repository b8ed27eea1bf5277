"""The embedding engine whose tables keep their most important rows only, within a budget (AdaEmbed, Lai et al., OSDI 2023)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from trainer.options.pruning import PruningOptions
from trainer.tables.batches import IdBatch
from trainer.tables.engine import TableState
from trainer.tables.kernels.layout import Bags, feature_layout, learning_rates, table_layout
from trainer.tables.kernels.lookup import combine_bags, shares_of
from trainer.tables.kernels.outputs import OutputPool
from trainer.tables.kernels.threads import Team, available_threads, split_events
from trainer.tables.kernels.updates import RowUpdates
from trainer.tables.kernels.vectors import LANES
from trainer.tables.routes.bag_tables import BagTables
from trainer.tables.routes.cpu_engine import STREAMED_BYTES
from trainer.tables.spec import FeatureSpec
from trainer.tables.stores.dense.placed_snapshot import PlacedSnapshot
from trainer.tables.stores.pruned import addresses as kernels
from trainer.tables.stores.pruned.rows import PrunedRows
from trainer.tables.table_checks import supported_tables
from transforms.arrays import Array

#: The events that are combined feature after feature.
_TILE_EVENTS = 4096
_NO_SHARES = np.zeros(0, np.float32)


@dataclass(slots=True, eq=False)
class PlacedBatch:
    """A checked batch with the places of its ids.

    Attributes:
        batch: the batch.
        bags: with places in place of ids.
        missing: how many ids of each feature have no place.
        version: of the addresses by which the places were found; -1 before they were.
    """

    batch: IdBatch
    bags: Bags
    missing: Array
    version: int = -1


class PrunedEngine(BagTables[PlacedBatch]):
    """Lookups and updates over the tables of ``features``, of whose rows the most important ones have values.

    While all rows of the looked-up ids have places, activations, updates and states have the bits of
    :class:`~trainer.tables.routes.cpu_engine.CpuEngine`. Equal calls in the same order give equal bits, whatever the number of threads.

    Args:
        features: the features, in the order of batches.
        options: the budget, and how rows are chosen.
        seed: what initial weights and samples are drawn from.
        threads: threads of the loops; 0 for one a processor.
        held: batches between a lookup and its update, for which it keeps what both need.

    Attributes:
        rows: the rows of all tables.

    Raises :class:`ConfigError` for what the cpu engine refuses, for tables with quantized rows, and for groups and budgets that do not fit.
    """

    def __init__(
        self, features: Sequence[FeatureSpec], options: PruningOptions, *, seed: int, threads: int = 0, held: int = 2
    ) -> None:
        super().__init__(features, supported_tables(features), Team(threads or available_threads()), held=held)
        of_features = self._of_features = feature_layout(self.features, self.tables)
        self.rows = PrunedRows(self.tables, of_features, options, seed=seed, team=self.team)
        addresses, layout = self.rows.addresses, self.rows.places.layout
        self._is_frozen = False
        self._updates = RowUpdates(of_features, layout, self.team)
        by_row = table_layout(of_features, self.tables, seed)._replace(row_base=addresses.first_row[:-1])
        self._notes = RowUpdates(of_features, by_row, self.team)
        self._lookups = kernels.lookups_of(addresses, of_features.table, of_features.sequence)
        self._costs = layout.dims[of_features.table] + 16
        self._outputs = OutputPool(kept=held + 1)
        self._may_stream = not (layout.dims[of_features.table] % LANES).any()

    def prepare(self, batch: IdBatch) -> PlacedBatch:
        """See :class:`~trainer.tables.routes.bag_tables.BagTables`."""
        return PlacedBatch(batch, *self._unplaced(batch))

    def _unplaced(self, batch: IdBatch) -> tuple[Bags, Array]:
        """The bags of a batch whose places are not found yet, and how many have none."""
        places, shares = np.empty(len(batch.ids), np.int32), _NO_SHARES
        if batch.weights is not None:
            shares = shares_of(batch.weights, batch.offsets, self._of_features.combiner)
        return Bags(places, batch.offsets, shares), np.zeros(len(self.features), np.int64)

    def begin(self, kept: PlacedBatch) -> Callable[[], Array]:
        """See :class:`~trainer.tables.routes.bag_tables.BagTables`: an id without a place counts as a row of zeros.

        A row that is looked up first takes a free place, if there is one, with its initial values.
        """
        rows, width = kept.batch.rows, self.width
        out = self._outputs.take(rows * width)
        streams = self._may_stream and out.nbytes >= STREAMED_BYTES
        self._place(kept, out, streams=streams)
        missing = int(kept.missing.sum())
        self.rows.counts.misses += missing
        self.rows.counts.hits += len(kept.batch.ids) - missing
        return lambda: out.reshape(rows, width)

    def update(self, kept: PlacedBatch, gradients: Array) -> Iterable[tuple[Array, Array]]:
        """See :class:`~trainer.tables.routes.bag_tables.BagTables`: rows with a place are updated, and all become more important.

        Then a round may begin.
        """
        self._place(kept)
        rates, rows, batch = learning_rates(self.tables), self.rows, kept.batch
        with rows.places.changing(kept.bags, rows.places.group_of):
            distinct = self._updates.apply(
                kept.bags, gradients, self.width, rates, rows.places.values, rows.importance.noted_places()
            )
        if kept.missing.any():
            ids = kernels.missing_ids(batch.ids, batch.offsets, kept.bags.ids, self._of_features.table, rows.addresses)
            rows.candidates.mark(ids, batch.offsets, self._of_features.table)
            bags = Bags(ids, batch.offsets, kept.bags.shares)
            distinct = distinct + self._notes.note(bags, gradients, self.width, rows.importance.noted())
        rows.end_step()
        return [(batch.offsets, distinct)]

    def _place(self, kept: PlacedBatch, out: Array | None = None, *, streams: bool = False) -> None:
        """Find the places of a batch's ids: once for a lookup and its update, unless rows have moved between them.

        A row that has none takes a free place, if there is one, with its initial values.

        Args:
            kept: the batch.
            out: for the activations of all events; None: they are not combined.
            streams: whether they are written past the caches.
        """
        addresses = self.rows.addresses
        if kept.version == addresses.version:
            self._combine(kept.bags, out, streams=streams)
            return
        if kept.version >= 0:  # what was asked for by its earlier places may still be read
            kept.bags, kept.missing = self._unplaced(kept.batch)
        batch, bags, missing = kept.batch, kept.bags, kept.missing
        may_place = not self._is_frozen and bool(addresses.free_rows.any())
        # Rows that get places change what is combined, so that comes last where there may be some.
        self._find(batch, np.arange(len(self.features)), bags, missing, None if may_place else out, streams=streams)
        if may_place:
            for f in np.flatnonzero(missing).tolist():
                self.rows.place_new(
                    int(self._of_features.table[f]), _used_ids(batch, f, int(self._of_features.sequence[f]))
                )
                missing[f] = 0  # a feature of the same table may have placed its rows
                kernels.find_places(np.array([f]), 0, batch.rows, batch.ids, batch.offsets, self._lookups, bags.ids, missing)  # fmt: skip
            self._combine(bags, out, streams=streams)
        kept.version = addresses.version

    def _find(
        self, batch: IdBatch, features: Array, bags: Bags, missing: Array, out: Array | None = None, *, streams: bool = False,
    ) -> None:  # fmt: skip
        """Find the places of some features' ids, and combine the events if there is an ``out``."""
        parts = split_events(batch.offsets, self._costs, self.team.threads)
        counts = np.zeros((len(parts), len(missing)), np.int64)
        places = self.rows.places

        def find(k: int) -> None:
            if out is None:
                kernels.find_places(features, *parts[k], batch.ids, batch.offsets, self._lookups, bags.ids, counts[k])
                return
            kernels.find_and_combine(
                features, *parts[k], batch.ids, self._lookups, counts[k], _TILE_EVENTS, bags, self._of_features, places.layout,
                places.values, out, self.width, streams,
            )  # fmt: skip

        self.team.run([partial(find, k) for k in range(len(parts))])
        missing[features] = counts.sum(axis=0)[features]

    def _combine(self, bags: Bags, out: Array | None, *, streams: bool) -> None:
        if out is None:
            return
        places = self.rows.places

        def combine(events: tuple[int, int]) -> None:
            combine_bags(
                *events, _TILE_EVENTS, bags, self._of_features, places.layout, places.values, out, self.width, streams
            )

        parts = split_events(bags.offsets, self._costs, self.team.threads)
        self.team.run([partial(combine, part) for part in parts])

    def freeze(self) -> None:
        """Give no row a place any more: lookups of predictions change nothing."""
        self._is_frozen = True

    def load(self, state: Mapping[str, TableState]) -> None:
        """See :class:`BagTables`; in tables without sections all rows have importance 0.

        Of a state with more rows than a group has places, the most important ones stay.
        """
        self.rows.load(state)

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights, float32 [len(rows), dim]; zeros of a row without a place. For inspection and tests."""
        return self.rows.weights_of(table, rows)

    def state(self) -> dict[str, TableState]:
        """A copy of all rows with a place, and the importance of all rows, by table name."""
        return self.rows.state()

    def section_names(self, t: int) -> tuple[str, ...]:
        """See :meth:`SavedTables.section_names <trainer.tables.engine.SavedTables.section_names>`."""
        return self.rows.section_names(t)

    def begin_snapshot(self, *, most_bytes: int) -> PlacedSnapshot:
        """See :meth:`CpuEngine.begin_snapshot <trainer.tables.routes.cpu_engine.CpuEngine.begin_snapshot>`."""
        return self.rows.begin_snapshot(most_bytes=most_bytes)

    def end_snapshot(self) -> None:
        """Close the snapshot, if there is one."""
        self.rows.end_snapshot()


def _used_ids(batch: IdBatch, f: int, sequence: int) -> Array:
    """The ids of a feature, without those after the end of a sequence."""
    offsets = batch.offsets[f]
    ids: Array = batch.ids[int(offsets[0]) : int(offsets[-1])]
    if not sequence:
        return ids
    positions = np.arange(len(ids)) - np.repeat(offsets[:-1] - offsets[0], np.diff(offsets))
    used: Array = ids[positions < sequence]
    return used
