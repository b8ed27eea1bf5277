"""What one core asks the others for in a step: rows of parts of tables, each distinct row once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from trainer.tables.batches import IdBatch
from trainer.tables.kernels.layout import Bags, FeatureLayout, TableLayout, table_layout
from trainer.tables.kernels.lookup import shares_of
from trainer.tables.kernels.threads import Team, split_evenly
from trainer.tables.routes.partitioned import request_kernels as kernels
from trainer.tables.routes.partitioned.slot_order import order_slots
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.partitioned.whole_requests import find_requests
from trainer.tables.spec import FeatureSpec, TableSpec
from transforms.arrays import Array

_NO_SHARES = np.zeros(0, np.float32)
#: To find the slot of an id takes as long as to add so many floats.
_FLOATS_OF_ID = 8


@dataclass(frozen=True, slots=True, eq=False)
class RowsByOwner:
    """Rows of a batch at their owners.

    Attributes:
        rows: of all owners, the owner's numbers of its rows, part after part.
        places: their slots.
        counts: int64 [owners, parts], the rows of each owner.
        ids: int64 [owners, parts], distinct pairs of a bag and an id: what SparseCore's limit of ids counts.
        ends: int64 [owners], where the rows of each owner end.
    """

    rows: Array
    places: Array
    counts: Array
    ids: Array
    ends: Array

    def of_owner(self, owner: int) -> slice:
        """Where an owner's rows are."""
        return slice(int(self.ends[owner - 1]) if owner else 0, int(self.ends[owner]))


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """The rows that one core needs for a batch.

    Attributes:
        batch: the batch.
        bags: the batch with the places of slots in place of ids.
        layout: of tables that have these slots only.
        part_values: where the parts of these slots begin and end.
        reads: the rows that owners are asked for; of a replicated part one of its cores is.
        updates: the rows whose gradients owners get; of a replicated part all its cores do.
    """

    batch: IdBatch
    bags: Bags
    layout: TableLayout
    part_values: kernels.PartValues
    reads: RowsByOwner
    updates: RowsByOwner


def asked_layout(
    of_features: FeatureLayout, tables: Sequence[TableSpec], seed: int, hashed: Collection[str]
) -> TableLayout:
    """The layout of rows that are asked for alone: none of the tables is here, and those of unbounded vocabularies have no number of rows."""
    sized = [replace(one, vocabulary_size=1) if one.name in hashed else one for one in tables]
    return table_layout(of_features, sized, seed)


class RequestMaker:
    """Makes the requests of a core that looks up ``features``.

    Args:
        parts: of the tables, on all cores.
        core: the core that asks.
        deduplicates: a row is asked for once; False: once for each of its ids.
        ascending: the rows of each owner and part ascend; else they are in the order of their first ids.
    """

    def __init__(
        self, features: Sequence[FeatureSpec], of_features: FeatureLayout, layout: TableLayout, *, parts: TableParts, core: int,
        team: Team, deduplicates: bool = True, ascending: bool = False,
    ) -> None:  # fmt: skip
        self._of_features, self._layout, self._team = of_features, layout, team
        self._parts, self._readers, self._ascending = parts, parts.readers(core), ascending
        self._deduplicates = deduplicates
        self._widths = layout.dims[parts.layout.table]

    def make(self, batch: IdBatch) -> Requests:
        """The requests for a batch, whose ids must have been checked."""
        if not self._parts.has_replicas and self._team.threads_for(_FLOATS_OF_ID * len(batch.ids)) == 1:
            return self._make_at_once(batch)
        slots = self._find(batch)
        reads = self._by_owner(slots, to_all=False)
        layout, parts = compact_layout(self._layout, slots.counts), self._parts.layout
        shares = _NO_SHARES
        if batch.weights is not None:
            shares = shares_of(batch.weights, batch.offsets, self._of_features.combiner)
        return Requests(
            batch=batch,
            bags=Bags(slots.places, batch.offsets, shares),
            layout=layout,
            part_values=kernels.PartValues(
                parts.dims, layout.dims[parts.table], layout.weight_base[parts.table] + parts.column
            ),
            reads=reads,
            updates=self._by_owner(slots, to_all=True) if self._parts.has_replicas else reads,
        )

    def _make_at_once(self, batch: IdBatch) -> Requests:
        """As :meth:`make` in one compiled call, where no part is replicated."""
        parts = self._parts.layout
        slots, sizes, rows, places, counts, ids, ends, bases, row_base, weight_base = find_requests(
            batch.ids, batch.offsets, self._of_features, self._layout, parts, self._readers, self._parts.cores, self._deduplicates,
            self._ascending,
        )  # fmt: skip
        reads = RowsByOwner(rows, places, counts, ids, ends)
        shares = (
            _NO_SHARES if batch.weights is None else shares_of(batch.weights, batch.offsets, self._of_features.combiner)
        )
        return Requests(
            batch, Bags(slots, batch.offsets, shares),
            self._layout._replace(vocabulary=sizes, trained=sizes, row_base=row_base, weight_base=weight_base),
            kernels.PartValues(parts.dims, self._widths, bases), reads, reads,
        )  # fmt: skip

    def _by_owner(self, slots: kernels.Slots, *, to_all: bool) -> RowsByOwner:
        layout, readers = self._parts.layout, self._readers
        shape = (self._parts.cores, len(layout.table))
        counts, ids = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        kernels.count_by_owner(slots, layout, readers, to_all, counts, ids)
        total = int(counts.sum())
        rows, places = np.empty(total, np.int64), np.empty(total, np.int64)
        ends = np.cumsum(counts.ravel()).reshape(counts.shape)
        kernels.group_by_owner(slots, layout, readers, to_all, ends - counts, rows, places)
        return RowsByOwner(rows, places, counts, ids, np.cumsum(counts.sum(axis=1)))

    def _find(self, batch: IdBatch) -> kernels.Slots:
        of, offsets = self._of_features, batch.offsets
        tables = len(self._layout.dims)
        most = np.bincount(of.table, offsets[:, -1] - offsets[:, 0], tables).astype(np.int64)
        total = int(most.sum())
        slots = kernels.Slots(
            starts=np.concatenate([[0], np.cumsum(most)]),
            rows=np.empty(total, np.int64),
            samples=np.empty(total, np.int32),
            counts=np.zeros(tables, np.int64),
            places=np.zeros(len(batch.ids), np.int64),
            order=np.empty(total if self._ascending else 0, np.int32),
        )
        used = np.flatnonzero(most)
        chosen = [used[part] for part in split_evenly(most[used], self._team.threads)]
        find, layout = kernels.find_slots if self._deduplicates else kernels.number_ids, self._layout
        self._team.run([partial(find, one, batch.ids, offsets, of, layout, slots) for one in chosen])
        if self._ascending:
            self._team.run(
                [partial(order_slots, one, slots.starts, slots.rows, slots.counts, slots.order) for one in chosen]
            )
        return slots


def compact_layout(layout: TableLayout, sizes: Array) -> TableLayout:
    """A layout of the same tables with these numbers of rows."""
    floats = sizes * layout.dims
    return layout._replace(
        vocabulary=sizes, trained=sizes, row_base=np.cumsum(sizes) - sizes, weight_base=np.cumsum(floats) - floats
    )
