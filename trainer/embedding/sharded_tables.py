"""Embedding tables whose rows are spread over the hosts of a job: row r is on host r modulo the number of hosts.

In a step each host asks the owners for the distinct rows of its batch, combines them by itself, and returns one summed gradient a
row. An owner adds the gradients of a row in the order of ranks and updates the row once. So for a number of hosts the same batches
give the same bits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trainer.embedding.batch_checks import check_batch
from trainer.embedding.batches import IdBatch, used_ids
from trainer.embedding.cpu.engine import CpuEngine
from trainer.embedding.cpu.finite_gradients import check_finite
from trainer.embedding.cpu.gradients import sum_positions
from trainer.embedding.cpu.layout import Bags, TableLayout, TableValues, feature_layout, table_layout
from trainer.embedding.cpu.lookup import combine_bags, shares_of
from trainer.embedding.cpu.snapshot import EngineSnapshot
from trainer.embedding.cpu.threads import Team
from trainer.embedding.engine import ChangedRows, TableState
from trainer.embedding.exchange import Exchange
from trainer.embedding.feature_counts import BatchCounter, FeatureCounts
from trainer.embedding.gradient_checks import check_gradients
from trainer.embedding.spec import FeatureSpec, TableSpec, tables_of
from trainer.embedding.state_checks import check_states
from trainer.errors import ConfigError

Array = np.ndarray[Any, np.dtype[Any]]

_NO_SHARES = np.zeros(0, np.float32)
_ONE_THREAD = Team(1)


@dataclass(frozen=True, slots=True, eq=False)
class _Fetched:
    """The distinct rows of a batch.

    Attributes:
        batch: the batch.
        bags: the batch with positions among the distinct rows of each table in place of ids.
        layout: of tables that have these rows only.
        order: of each owner, the positions of its rows among all of the batch's rows, table after table.
        received: what each host asked this one for: rows of this host's tables, and their numbers by table.
        values: their weights, without slots.
    """

    batch: IdBatch
    bags: Bags
    layout: TableLayout
    order: tuple[Array, ...]
    received: list[tuple[Array, Array]]
    values: TableValues


class ShardedTables:
    """The tables of ``features`` on all hosts of ``exchange``. All hosts make the same calls in the same order.

    Lookups and updates of a batch are those of :class:`~trainer.embedding.engine.CpuEngine`, but gradients are summed over hosts.
    """

    def __init__(self, features: Sequence[FeatureSpec], *, seed: int, exchange: Exchange) -> None:
        self.features, self.tables = tuple(features), tables_of(features)
        if not self.features:
            raise ConfigError("an embedding engine must have at least one feature")
        self._exchange, self._hosts = exchange, exchange.hosts
        self._of_features = feature_layout(self.features, self.tables)
        self._layout = table_layout(self._of_features, self.tables, seed)
        self._width = sum(feature.width for feature in self.features)
        own = [FeatureSpec(table.name, self._own_part(table)) for table in self.tables]
        self._own = CpuEngine(own, seed=seed, row_stride=exchange.hosts, row_first=exchange.rank)
        self._fetched: deque[_Fetched] = deque(maxlen=2)  # between a lookup and its update there may be another lookup
        self._counter = BatchCounter(self.features, self._of_features.table)

    def _own_part(self, table: TableSpec) -> TableSpec:
        own = -(-(table.vocabulary_size - self._exchange.rank) // self._hosts)
        return replace(table, vocabulary_size=max(own, 1))

    @property
    def width(self) -> int:
        """Columns of the activations."""
        return self._width

    def lookup(self, batch: IdBatch) -> Array:
        """Activations, float32 [batch.rows, width]; an empty bag gives zeros. Raises :class:`BadBatch` before anything is exchanged."""
        check_batch(batch, self.features)
        fetched = self._fetch(batch)
        out = np.empty(batch.rows * self._width, np.float32)
        combine_bags(
            0,
            batch.rows,
            max(batch.rows, 1),
            fetched.bags,
            self._of_features,
            fetched.layout,
            fetched.values,
            out,
            self._width,
            False,
        )
        self._fetched.append(fetched)
        return out.reshape(batch.rows, self._width)

    def apply_gradients(self, batch: IdBatch, gradients: Array) -> None:
        """Update the rows of all hosts' batches.

        ``gradients``: float32 [batch.rows, width], of the loss over all hosts' events. Raises :class:`BadBatch`, and
        :class:`~trainer.errors.NonFiniteLoss` for NaN and infinity, before anything is exchanged.
        """
        check_batch(batch, self.features)
        check_gradients(batch, gradients, self._width)
        flat = np.ascontiguousarray(gradients).reshape(-1)
        check_finite(flat, self.features, _ONE_THREAD)
        fetched = next((one for one in self._fetched if one.batch is batch), None) or self._fetch(batch)
        sums = self._summed(fetched, flat)
        dims = self._layout.dims
        parts = [[_taken(sums, fetched.layout, order, dims)] for order in fetched.order]
        received = [arrays[0] for arrays in self._exchange.all_to_all(parts)]
        self._own.update_rows(fetched.received, received)
        self._counter.add(batch.offsets, fetched.layout.vocabulary)

    def _fetch(self, batch: IdBatch) -> _Fetched:
        """Ask the owners for the distinct rows of a batch."""
        distinct, bags = self._distinct(batch)
        sizes = np.array([len(rows) for rows in distinct], np.int64)
        layout = _compact(self._layout, sizes)
        flat = np.concatenate([np.zeros(0, np.int64), *distinct])
        owner = flat % self._hosts
        table = np.repeat(np.arange(len(sizes)), sizes)
        order = tuple(np.flatnonzero(owner == rank) for rank in range(self._hosts))
        counts = tuple(np.bincount(table[places], minlength=len(sizes)).astype(np.int64) for places in order)
        asked = self._exchange.all_to_all(
            [[flat[places] // self._hosts, held] for places, held in zip(order, counts, strict=True)]
        )
        received = [(np.asarray(rows, np.int64), np.asarray(held, np.int64)) for rows, held in asked]
        answers = self._exchange.all_to_all([[self._own.read_rows(rows, held)] for rows, held in received])
        weights = np.empty(int((sizes * self._layout.dims).sum()), np.float32)
        for places, answer in zip(order, answers, strict=True):
            _put(weights, layout, places, self._layout.dims, answer[0])
        values = TableValues(weights, np.zeros(0, np.float32), np.ones(len(flat), np.uint8))
        return _Fetched(batch, bags, layout, order, received, values)

    def _distinct(self, batch: IdBatch) -> tuple[list[Array], Bags]:
        """The distinct rows of each table, ascending, and the batch with their positions."""
        places = np.zeros(len(batch.ids), np.int64)  # ids behind the end of a sequence are not looked up
        distinct = []
        of = self._layout
        for t in range(len(self.tables)):
            features = of.features_of[of.first_feature[t] : of.first_feature[t + 1]]
            used = np.concatenate([self._used_of(f, batch) for f in features])
            rows, places[used] = np.unique(batch.ids[used], return_inverse=True)
            distinct.append(rows)
        shares = _NO_SHARES
        if batch.weights is not None:
            shares = shares_of(batch.weights, batch.offsets, self._of_features.combiner)
        return distinct, Bags(places, batch.offsets, shares)

    def _used_of(self, f: int, batch: IdBatch) -> Array:
        """The positions of the ids of a feature that are looked up."""
        ends = batch.offsets[f]
        found: Array = ends[0] + used_ids(ends, self.features[f].max_sequence_length)
        return found

    def _summed(self, fetched: _Fetched, gradients: Array) -> Array:
        """The gradient of each distinct row, by those of the activations, flat, summed over the batch: flat, as its weights."""
        sums = np.zeros(len(fetched.values.weights), np.float32)
        sum_positions(fetched.bags, self._of_features, fetched.layout, gradients, self._width, sums)
        return sums

    def state(self) -> dict[str, TableState]:
        """A copy of the changed rows of this host, by table name, with their numbers in the whole table."""
        return {name: replace(one, rows=self._global(one.rows)) for name, one in self._own.state().items()}

    def load_state(self, state: Mapping[str, TableState]) -> None:
        """Restore the rows of this host from the :meth:`state` of all. Raises :class:`~trainer.errors.TornCheckpoint`."""
        check_states(self.tables, state)
        own = {}
        for name, one in state.items():
            mine = one.rows % self._hosts == self._exchange.rank
            own[name] = TableState(one.rows[mine] // self._hosts, one.weights[mine], one.slots[mine])
        self._own.load_state(own)
        self._fetched.clear()
        self._counter = BatchCounter(self.features, self._of_features.table)

    def _global(self, rows: Array) -> Array:
        found: Array = rows * self._hosts + self._exchange.rank
        return found

    def statistics(self) -> dict[str, FeatureCounts]:
        """The counts of each feature over the batches of this host."""
        return self._counter.by_feature()

    def begin_snapshot(self, *, most_bytes: int) -> ShardSnapshot:
        """See :meth:`CpuEngine.begin_snapshot <trainer.embedding.engine.CpuEngine.begin_snapshot>`; the rows of this host."""
        return ShardSnapshot(self._own.begin_snapshot(most_bytes=most_bytes), self._hosts, self._exchange.rank)

    def end_snapshot(self) -> None:
        """Close the snapshot, if there is one."""
        self._own.end_snapshot()


@dataclass(frozen=True, slots=True)
class ShardSnapshot:
    """The snapshot of one host's rows, with their numbers in the whole tables."""

    own: EngineSnapshot
    hosts: int
    rank: int

    @property
    def counts(self) -> tuple[int, ...]:
        """The changed rows of each table on this host."""
        return self.own.counts

    def table(self, t: int) -> Iterator[ChangedRows]:
        """See :meth:`EngineSnapshot.table <trainer.embedding.cpu.snapshot.EngineSnapshot.table>`."""
        for part in self.own.table(t):
            yield ChangedRows(part.rows * self.hosts + self.rank, part.weights, part.slots)


def _compact(layout: TableLayout, sizes: Array) -> TableLayout:
    """A layout of the same tables with these numbers of rows."""

    def starts(counts: Array) -> Array:
        return np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)

    return layout._replace(vocabulary=sizes, row_base=starts(sizes), weight_base=starts(sizes * layout.dims))


def _floats_of(layout: TableLayout, places: Array, dims: Array) -> Iterator[tuple[Array, int, int]]:
    """By table: the rows of ``places`` in it, where its floats begin, and its width."""
    ends = layout.row_base + layout.vocabulary
    cuts = np.searchsorted(places, ends)
    first = 0
    for t, cut in enumerate(cuts.tolist()):
        yield places[first:cut] - layout.row_base[t], int(layout.weight_base[t]), int(dims[t])
        first = cut


def _taken(values: Array, layout: TableLayout, places: Array, dims: Array) -> Array:
    """The floats of the rows at ``places``, flat."""
    parts = [np.zeros(0, np.float32)]
    for t, (rows, base, dim) in enumerate(_floats_of(layout, places, dims)):
        own = values[base : base + int(layout.vocabulary[t]) * dim].reshape(-1, dim)
        parts.append(own[rows].ravel())
    return np.concatenate(parts)


def _put(values: Array, layout: TableLayout, places: Array, dims: Array, floats: Array) -> None:
    """The inverse of :func:`_taken`."""
    at = 0
    for t, (rows, base, dim) in enumerate(_floats_of(layout, places, dims)):
        own = values[base : base + int(layout.vocabulary[t]) * dim].reshape(-1, dim)
        size = len(rows) * dim
        own[rows] = floats[at : at + size].reshape(-1, dim)
        at += size
