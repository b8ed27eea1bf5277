"""The embedding engine whose tables keep their most important rows only, within a budget (AdaEmbed, Lai et al., OSDI 2023)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from trainer.embedding.batches import IdBatch
from trainer.embedding.cpu.layout import Bags, TableOrigin, learning_rates
from trainer.embedding.cpu.lookup import combine_bags
from trainer.embedding.cpu.outputs import OutputPool
from trainer.embedding.cpu.updates import RowUpdates
from trainer.embedding.cpu.vectors import LANES
from trainer.embedding.cpu_engine import STREAMED_BYTES
from trainer.embedding.pruned.addresses import find_and_combine
from trainer.embedding.pruned.group_rows import GroupRows
from trainer.embedding.pruned.row_importance import PlacedImportance
from trainer.embedding.pruned.tables import PlacedBatch, PrunedTables
from trainer.embedding.spec import FeatureSpec
from trainer.planning.row_groups import RowGroup
from trainer.pruning_options import PruningOptions
from transforms.arrays import Array

#: The events that are combined feature after feature.
_TILE_EVENTS = 4096


class PrunedEngine(PrunedTables[PlacedBatch]):
    """Lookups and updates over the tables of ``features``, of whose rows the most important ones have values.

    While all rows of the looked-up ids have places, activations, updates and states have the bits of
    :class:`~trainer.embedding.cpu_engine.CpuEngine`. Equal calls in the same order give equal bits, whatever the number of threads.

    Args:
        features: the features, in the order of batches.
        options: the budget, and how rows are chosen.
        seed: what initial weights and samples are drawn from.
        threads: threads of the loops; 0 for one a processor.
        held: batches between a lookup and its update, for which it keeps what both need.
        groups: of the tables that share rows; None: those by the options.
        origins: of each table, the part of a whole table that it is; None for whole tables.

    Raises :class:`ConfigError` for what the cpu engine refuses, for tables with quantized rows, and for groups and budgets that do not fit.
    """

    rows: GroupRows
    importance: PlacedImportance

    def __init__(
        self, features: Sequence[FeatureSpec], options: PruningOptions, *, seed: int, threads: int = 0, held: int = 2,
        groups: Sequence[RowGroup] | None = None, origins: Sequence[TableOrigin] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(features, options, seed=seed, threads=threads, held=held, groups=groups, origins=origins)
        self.rows = GroupRows(self.tables, self.of_features, self.groups, self.addresses, seed)
        self._layout = self.rows.layout
        self._updates = RowUpdates(self.of_features, self._layout, self.team)
        self._outputs = OutputPool(kept=held + 1)
        self._may_stream = not (self._layout.dims[self.of_features.table] % LANES).any()
        self.forget()

    def no_importance(self) -> PlacedImportance:
        """See :class:`PrunedTables`."""
        places = len(self.rows.values.row_state)
        return PlacedImportance(self.addresses, self._layout.row_base, places, self.options, self.seed, self.team)

    def prepare(self, batch: IdBatch) -> PlacedBatch:
        """See :class:`~trainer.embedding.bag_tables.BagTables`."""
        return PlacedBatch(*self.unplaced(batch))

    def begin(self, kept: PlacedBatch) -> Callable[[], Array]:
        """See :class:`~trainer.embedding.bag_tables.BagTables`: an id without a place counts as a row of zeros.

        A row that is looked up first takes a free place, if there is one, with its initial values.
        """
        rows, width = kept.batch.rows, self.width
        out = self._outputs.take(rows * width)
        streams = self._may_stream and out.nbytes >= STREAMED_BYTES
        self.place(kept, _Activations(self, out, streams))
        self.count_lookup(kept)
        return lambda: out.reshape(rows, width)

    def update(self, kept: PlacedBatch, gradients: Array) -> Iterable[tuple[Array, Array]]:
        """See :class:`~trainer.embedding.bag_tables.BagTables`: rows with a place are updated, and all become more important.

        Then a round may begin.
        """
        self.place(kept)
        rates = learning_rates(self.tables)
        with self.rows.changing(kept.bags, self.rows.group_of):
            distinct = self._updates.apply(
                kept.bags, gradients, self.width, rates, self.rows.values, self.importance.noted_places()
            )
        if kept.missing.any():
            distinct = distinct + self.note(self.missing_ids(kept), kept, gradients)
        self.end_step()
        return [(kept.batch.offsets, distinct)]


class _Activations:
    """Combines events to activations in ``out``."""

    def __init__(self, engine: PrunedEngine, out: Array, streams: bool) -> None:
        self._engine, self._out, self._streams = engine, out, streams

    def find(self, batch: IdBatch, features: Array, events: tuple[int, int], bags: Bags, missing: Array) -> None:
        """See :class:`~trainer.embedding.pruned.tables.Combine`."""
        of, rows = self._engine, self._engine.rows
        find_and_combine(
            features, *events, batch.ids, of.lookups, missing, _TILE_EVENTS, bags, of.of_features, rows.layout, rows.values, self._out,
            of.width, self._streams,
        )  # fmt: skip

    def combine(self, events: tuple[int, int], bags: Bags) -> None:
        """See :class:`~trainer.embedding.pruned.tables.Combine`."""
        of, rows = self._engine, self._engine.rows
        combine_bags(
            *events, _TILE_EVENTS, bags, of.of_features, rows.layout, rows.values, self._out, of.width, self._streams
        )
