"""Rows in two tiers: hot ones in the memory that trains, all others in a cold tier, such as servers.

After each update rows move between the tiers, slots of the optimizer included, as :mod:`trainer.planning.hot_rows` decides. A hot row is
changed in the memory that trains only, and written back when it leaves, and before a state or a snapshot is read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from trainer.errors import ConfigError
from trainer.planning.hot_rows import MOVE_LOOKUPS
from trainer.tables.batch_checks import check_batch
from trainer.tables.engine import NO_HASHED_COUNTS, TableState
from trainer.tables.kernels.layout import learning_rates
from trainer.tables.kernels.outputs import OutputPool
from trainer.tables.kernels.table_bytes import row_bytes
from trainer.tables.spec import FeatureSpec, TableSpec
from trainer.tables.stores.dense.dense_store import DenseStore, join_by_table, join_lookups, one_event
from trainer.tables.stores.row_store import StoreSnapshot
from trainer.tables.stores.tiered import kernels
from trainer.tables.stores.tiered.cold_tier import ColdTier
from trainer.tables.stores.tiered.placement import Placement, PlacementCounts, TableMoves, TierRows
from transforms.arrays import Array


class TieredStore:
    """See :class:`~trainer.tables.stores.row_store.RowStore`: each of ``tables`` has some hot rows.

    Values are those of :class:`~trainer.tables.stores.dense.dense_store.DenseStore`, whichever rows are hot. The memory that trains is a dense
    array of frames in the memory of the process.

    Args:
        tables: the tables.
        seed: what initial weights are drawn from.
        hot_rows: the frames of each table by its name; a table without any has no hot rows.
        threads: threads of the loops; 0 for one a processor.
        cold: holds all rows of these tables; None: in the memory of the process.
        move_lookups: what a move costs, see :class:`~trainer.planning.hot_rows.HotRows`.
        answers: arrays of :meth:`read_rows` that are in use at once.

    Attributes:
        cold: as given, or made.

    Raises :class:`ConfigError` for what the dense store refuses, for other tables of ``cold``, and for the name of no table.
    """

    needs_lookups = True
    sharing = None
    hashed_counts = NO_HASHED_COUNTS

    def __init__(
        self, tables: Sequence[TableSpec], *, seed: int, hot_rows: Mapping[str, int], threads: int = 0, cold: ColdTier | None = None,
        move_lookups: float = MOVE_LOOKUPS, answers: int = 2,
    ) -> None:  # fmt: skip
        self.tables = tuple(tables)
        self._features = tuple(FeatureSpec(one.name, one) for one in self.tables)
        self._placement = Placement(self.tables, hot_rows, move_lookups=move_lookups)
        self.cold: ColdTier = cold or DenseStore(self.tables, seed=seed, threads=threads)
        if self.cold.tables != self.tables:
            raise ConfigError("the cold tier must have the tables of the features", value=[one.name for one in self.cold.tables],
                              allowed=", ".join(one.name for one in self.tables))  # fmt: skip
        frames = [_of_frames(*one) for one in zip(self.tables, self._placement.frames, strict=True)]
        self._hot = DenseStore(frames, seed=seed, threads=threads)
        self._dims = self._hot.layout.dims
        self._memory = OutputPool(spare=0.25, kept=2 + answers)
        self._counts = PlacementCounts()

    @property
    def counts(self) -> PlacementCounts:
        """What placement has done since the store was made, up to now."""
        return replace(self._counts)

    @property
    def frames(self) -> tuple[int, ...]:
        """The most hot rows of each table."""
        return self._placement.frames

    @property
    def frame_bytes(self) -> int:
        """The bytes of all frames, with the slots of their rows."""
        return sum(frames * row_bytes(table) for table, frames in zip(self.tables, self.frames, strict=True))

    @property
    def hot_rows(self) -> dict[str, Array]:
        """The rows of each table that are hot, int64 in the order of their frames, by name."""
        rows, _, counts = self._placement.placed()
        return dict(zip((one.name for one in self.tables), np.split(rows, np.cumsum(counts)[:-1]), strict=True))

    def freeze(self) -> None:
        """See :class:`~trainer.tables.stores.row_store.RowStore`: all rows have memory."""

    def read_rows(self, rows: Array, counts: Array) -> Array:
        """See :class:`~trainer.tables.stores.row_store.RowStore`."""
        check_batch(one_event(rows, counts), self._features)
        found = self._find(rows, counts)
        hot = self._hot.read_rows(found.frames, found.hot_counts)
        cold = self.cold.read_rows(found.cold_rows, found.cold_counts)
        weights = self._memory.take(len(hot) + len(cold))
        kernels.join_tiers(found.is_hot, counts, self._dims, hot, cold, weights)
        return weights

    def update_rows(
        self, asked: Sequence[tuple[Array, Array]], gradients: Sequence[Array], rates: Array | None = None, lookups: Sequence[Array] = ()
    ) -> Array:  # fmt: skip
        """See :class:`~trainer.tables.stores.row_store.RowStore`; then rows may move."""
        rows, counts, sums = join_by_table(asked, gradients, self._dims)
        check_batch(one_event(rows, counts), self._features)
        numbers = join_lookups(asked, lookups)
        rates = learning_rates(self.tables) if rates is None else rates
        found = self._find(rows, counts)
        hot, cold = (self._memory.take(int((one * self._dims).sum())) for one in (found.hot_counts, found.cold_counts))
        kernels.split_tiers(found.is_hot, counts, self._dims, sums, hot, cold)
        self._hot.update_rows([(found.frames, found.hot_counts)], [hot], rates)
        self.cold.update_rows([(found.cold_rows, found.cold_counts)], [cold], rates)
        if len(asked) > 1:
            rows, counts, numbers = _distinct(rows, counts, numbers)
        self._count(rows, counts, numbers)
        self._replace_rows(rows, counts, numbers)
        return counts

    def _find(self, rows: Array, counts: Array) -> TierRows:
        began = time.perf_counter()
        found = self._placement.find(rows, counts)
        held = self._counts
        held.spared_rows += len(found.frames)
        held.spared_values += int((found.hot_counts * self._dims).sum())
        held.decision_secs += time.perf_counter() - began
        return found

    def _count(self, rows: Array, counts: Array, lookups: Array) -> None:
        """Count the distinct rows of an update."""
        held, is_hot = self._counts, self._placement.find(rows, counts).is_hot
        hits, distinct = int(lookups[is_hot].sum()), int(is_hot.sum())
        held.hits += hits
        held.misses += int(lookups.sum()) - hits
        held.distinct_hits += distinct
        held.distinct_misses += len(rows) - distinct

    def _replace_rows(self, rows: Array, counts: Array, lookups: Array) -> None:
        """Decide after an update of distinct rows which rows are hot, and move them."""
        began = time.perf_counter()
        moves = self._placement.decide(rows, counts, lookups.astype(np.int64))
        decided = time.perf_counter()
        self._move(moves)
        self._counts.decision_secs += decided - began
        self._counts.move_secs += time.perf_counter() - decided

    def _move(self, moves: TableMoves) -> None:
        if not len(moves.rows_in):
            return
        self._write_back(moves.rows_out, moves.frames_out, moves.counts_out)
        values = self.cold.read_values(moves.rows_in, moves.counts_in)
        self._hot.write_values(moves.frames_in, moves.counts_in, values, are_changed=False)
        self._counts.rows_in += len(moves.rows_in)
        self._counts.moved_bytes += values.nbytes

    def _write_back(self, rows: Array, frames: Array, counts: Array) -> None:
        """Write the rows in these frames that were changed in the memory that trains to the cold tier."""
        changed = self._hot.are_changed(frames, counts)
        if not changed.any():
            return
        own = np.bincount(np.repeat(np.arange(len(counts)), counts)[changed], minlength=len(counts))
        values = self._hot.read_values(frames[changed], own)
        self.cold.write_values(rows[changed], own, values, are_changed=True)
        self._hot.write_values(frames[changed], own, values, are_changed=False)
        self._counts.rows_out += int(changed.sum())
        self._counts.moved_bytes += values.nbytes

    def write_back(self) -> None:
        """Give the cold tier the values of all hot rows."""
        self._write_back(*self._placement.placed())

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights, float32 [len(rows), dim], also of rows that were never read. For inspection and tests."""
        self.write_back()
        return self.cold.weights_of(table, rows)

    def table_state(self, t: int) -> TableState:
        """See :class:`~trainer.tables.stores.row_store.RowStore`."""
        self.write_back()
        return self.cold.table_state(t)

    def section_names(self, t: int) -> tuple[str, ...]:
        """See :class:`~trainer.tables.stores.row_store.RowStore`."""
        return self.cold.section_names(t)

    def load_state(self, state: Mapping[str, TableState]) -> None:
        """See :class:`~trainer.tables.stores.row_store.RowStore`; the same rows stay hot."""
        self.cold.load_state(state)
        self.read_hot()

    def read_hot(self) -> None:
        """Give all hot rows the values of the cold tier."""
        rows, frames, counts = self._placement.placed()
        self._hot.write_values(frames, counts, self.cold.read_values(rows, counts), are_changed=False)

    def begin_snapshot(self, *, most_bytes: int) -> StoreSnapshot:
        """See :class:`~trainer.tables.stores.row_store.RowStore`; hot rows are written back first."""
        self.write_back()
        return self.cold.begin_snapshot(most_bytes=most_bytes)

    def end_snapshot(self) -> None:
        """Close the snapshot, if there is one."""
        self.cold.end_snapshot()


def _distinct(rows: Array, counts: Array, lookups: Array) -> tuple[Array, Array, Array]:
    """The distinct ones of rows of each table, their numbers by table, and the lookups of each, int64."""
    found, numbers = [], []
    for own, of_rows in zip(*(np.split(one, np.cumsum(counts)[:-1]) for one in (rows, lookups)), strict=True):
        distinct, places = np.unique(own, return_inverse=True)
        found.append(distinct)
        numbers.append(np.bincount(places, of_rows, len(distinct)).astype(np.int64))
    return np.concatenate(found), np.array([len(one) for one in found], np.int64), np.concatenate(numbers)


def _of_frames(table: TableSpec, frames: int) -> TableSpec:
    """A table of the frames; of one row that is never read where there are none."""
    return replace(table, vocabulary_size=max(frames, 1))
