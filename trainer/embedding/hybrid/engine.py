"""The embedding engine of two tiers: hot rows in the accelerator's memory, all others in a cold tier, such as servers.

After each batch rows move between the tiers, slots of the optimizer included, as :mod:`trainer.planning.hot_rows` decides. A hot row is
changed in the accelerator's memory only, and written back when it leaves, and before a state or a snapshot is read.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trainer.embedding.batch_checks import check_batch
from trainer.embedding.batches import IdBatch
from trainer.embedding.cpu.engine import CpuEngine
from trainer.embedding.cpu.finite_gradients import check_finite
from trainer.embedding.cpu.layout import feature_columns, feature_layout, table_layout
from trainer.embedding.cpu.outputs import OutputPool
from trainer.embedding.cpu.threads import Team, available_threads
from trainer.embedding.engine import NO_HASHED_COUNTS, TablesSnapshot, TableState
from trainer.embedding.feature_counts import BatchCounter, FeatureCounts
from trainer.embedding.gradient_checks import check_gradients
from trainer.embedding.hybrid import kernels
from trainer.embedding.hybrid.cold_tier import ColdTier
from trainer.embedding.hybrid.placement import Placement, PlacementCounts, TableMoves, TierRows
from trainer.embedding.partitioned.gathered_rows import GatheredRows
from trainer.embedding.partitioned.request_kernels import count_lookups
from trainer.embedding.partitioned.requests import RequestMaker, Requests
from trainer.embedding.partitioned.table_parts import TableParts
from trainer.embedding.spec import FeatureSpec, TableSpec
from trainer.embedding.table_checks import engine_tables
from trainer.errors import ConfigError
from trainer.planning.hot_rows import MOVE_LOOKUPS

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(slots=True, eq=False)
class _Asked:
    """The distinct rows that a batch needs, and the lookups of each; where they were ``found`` after so many ``moves``."""

    requests: Requests
    lookups: Array
    found: TierRows | None = None
    moves: int = 0

    @property
    def rows(self) -> Array:
        """The rows, table after table."""
        return self.requests.reads.rows

    @property
    def counts(self) -> Array:
        """Their numbers by table."""
        counts: Array = self.requests.reads.counts[0]
        return counts


class HybridEngine:
    """Lookups and updates over the tables of ``features``, of which each has some hot rows.

    Activations and updates are those of :class:`~trainer.embedding.cpu.engine.CpuEngine`, whichever rows are hot. The accelerator's
    memory is a dense array of frames in the memory of the process.

    Args:
        features: the features, in the order of batches.
        seed: what initial weights are drawn from.
        hot_rows: the frames of each table by its name; a table without any has no hot rows.
        threads: threads of the loops; 0 for one a processor.
        cold: holds all rows, its tables are those of the features; None: a cpu engine.
        move_lookups: what a move costs, see :class:`~trainer.planning.hot_rows.HotRows`.
        held: batches between a lookup and its update, for which it keeps what both need.

    Raises :class:`ConfigError` for what the cpu engine refuses, for other tables of ``cold``, and for the name of no table.
    """

    may_predict = False
    hashed_counts = NO_HASHED_COUNTS

    def __init__(
        self, features: Sequence[FeatureSpec], *, seed: int, hot_rows: Mapping[str, int], threads: int = 0, cold: ColdTier | None = None,
        move_lookups: float = MOVE_LOOKUPS, held: int = 2,
    ) -> None:  # fmt: skip
        self.features, self.tables = tuple(features), engine_tables(features)
        self._placement = Placement(self.tables, hot_rows, move_lookups=move_lookups)
        if cold is None:
            cold = CpuEngine([FeatureSpec(one.name, one) for one in self.tables], seed=seed, threads=threads)
        self._cold = cold
        if self._cold.tables != self.tables:
            raise ConfigError("the cold tier must have the tables of the features", value=[one.name for one in self._cold.tables],
                              allowed=", ".join(one.name for one in self.tables))  # fmt: skip
        self._hot = CpuEngine([FeatureSpec(one.name, _of_frames(one, frames))
                               for one, frames in zip(self.tables, self._placement.frames, strict=True)],
                              seed=seed, threads=threads)  # fmt: skip
        of_features = feature_layout(self.features, self.tables)
        layout = table_layout(of_features, self.tables, seed)
        self._of_features, self._dims = of_features, layout.dims
        self._width = sum(feature.width for feature in self.features)
        self._team = Team(threads or available_threads())
        parts = TableParts(self.tables, 1, None)
        self._requests = RequestMaker(
            self.features, of_features, layout, parts=parts, core=0, dense_ids=None, team=self._team
        )
        self._gathered = GatheredRows(of_features, layout, self._width, self._team)
        self._memory, self._held = OutputPool(spare=0.25, kept=4 + held), held
        self._counts, self._moves = PlacementCounts(), 0
        self._begin()

    def _begin(self) -> None:
        self._asked: deque[_Asked] = deque(maxlen=self._held)
        self._counter = BatchCounter(self.features, self._of_features.table)

    @property
    def width(self) -> int:
        """Columns of the activations: the sum of the features' widths."""
        return self._width

    @property
    def columns(self) -> dict[str, slice]:
        """Feature name to its columns in the activations."""
        return feature_columns(self.features, self._of_features)

    @property
    def counts(self) -> PlacementCounts:
        """What placement has done since the engine was made, up to now."""
        return replace(self._counts)

    @property
    def hot_rows(self) -> dict[str, Array]:
        """The rows of each table that are hot, int64 in the order of their frames, by name."""
        rows, _, counts = self._placement.placed()
        return dict(zip((one.name for one in self.tables), np.split(rows, np.cumsum(counts)[:-1]), strict=True))

    def lookup(self, batch: IdBatch) -> Array:
        """Activations, float32 [batch.rows, width]; an empty bag gives zeros.

        Raises :class:`~trainer.errors.BadBatch` for an id outside its table or offsets that do not fit, before anything is read.
        """
        asked = self._asked_of(batch)
        found = self._find(asked)
        self._count(asked, found)
        hot = self._hot.read_rows(found.frames, found.hot_counts)
        cold = self._cold.read_rows(found.cold_rows, found.cold_counts)
        weights = self._memory.take(len(hot) + len(cold))
        kernels.join_tiers(found.is_hot, asked.counts, self._dims, hot, cold, weights)
        return self._gathered.combine(asked.requests, weights)

    def freeze(self) -> None:
        """See :meth:`EmbeddingEngine.freeze <trainer.embedding.engine.EmbeddingEngine.freeze>`: lookups change nothing anyway."""

    def apply_gradients(self, batch: IdBatch, gradients: Array) -> None:
        """One optimizer update for each distinct row of ``batch``, by float32 ``gradients`` [batch.rows, width]; then rows may move.

        Raises :class:`~trainer.errors.BadBatch`, or :class:`~trainer.errors.NonFiniteLoss` for NaN and infinity; nothing is changed then.
        """
        asked = self._asked_of(batch)
        check_gradients(batch, gradients, self._width)
        flat = np.ascontiguousarray(gradients).reshape(-1)
        check_finite(flat, self.features, self._team)
        found = self._find(asked)
        sums = self._memory.take(int((asked.counts * self._dims).sum()))
        self._gathered.sum_gradients(asked.requests, flat, sums)
        hot, cold = (self._memory.take(int((one * self._dims).sum())) for one in (found.hot_counts, found.cold_counts))
        kernels.split_tiers(found.is_hot, asked.counts, self._dims, sums, hot, cold)
        self._hot.update_rows([(found.frames, found.hot_counts)], [hot])
        self._cold.update_rows([(found.cold_rows, found.cold_counts)], [cold])
        self._counter.add(batch.offsets, asked.counts)
        self._replace_rows(asked)

    def _asked_of(self, batch: IdBatch) -> _Asked:
        """The distinct rows of a batch, which is checked first."""
        for one in self._asked:
            if one.requests.batch is batch:
                return one
        check_batch(batch, self.features)
        requests = self._requests.make(batch)
        began = time.perf_counter()
        lookups = np.zeros(len(requests.reads.rows), np.int64)
        count_lookups(requests.bags, self._of_features, requests.layout, lookups)
        self._counts.decision_secs += time.perf_counter() - began
        self._asked.append(_Asked(requests, lookups))
        return self._asked[-1]

    def _find(self, asked: _Asked) -> TierRows:
        """Where the rows of a batch are: worked out once for a lookup and its update, between which rows may move."""
        if asked.found is None or asked.moves != self._moves:
            began = time.perf_counter()
            asked.found, asked.moves = self._placement.find(asked.rows, asked.counts), self._moves
            self._counts.decision_secs += time.perf_counter() - began
        return asked.found

    def _count(self, asked: _Asked, found: TierRows) -> None:
        held, hits = self._counts, int(asked.lookups[found.is_hot].sum())
        held.hits += hits
        held.misses += int(asked.lookups.sum()) - hits
        held.distinct_hits += len(found.frames)
        held.distinct_misses += len(found.cold_rows)

    def _replace_rows(self, asked: _Asked) -> None:
        """Decide after a batch which rows are hot, and move them."""
        began = time.perf_counter()
        moves = self._placement.decide(asked.rows, asked.counts, asked.lookups)
        decided = time.perf_counter()
        self._move(moves)
        self._counts.decision_secs += decided - began
        self._counts.move_secs += time.perf_counter() - decided

    def _move(self, moves: TableMoves) -> None:
        if not len(moves.rows_in):
            return
        self._moves += 1
        self._write_back(moves.rows_out, moves.frames_out, moves.counts_out)
        values = self._cold.read_values(moves.rows_in, moves.counts_in)
        self._hot.write_values(moves.frames_in, moves.counts_in, values, are_changed=False)
        self._counts.rows_in += len(moves.rows_in)
        self._counts.moved_bytes += values.nbytes

    def _write_back(self, rows: Array, frames: Array, counts: Array) -> None:
        """Write the rows in these frames that were changed in the accelerator's memory to the cold tier."""
        changed = self._hot.are_changed(frames, counts)
        if not changed.any():
            return
        own = np.bincount(np.repeat(np.arange(len(counts)), counts)[changed], minlength=len(counts))
        values = self._hot.read_values(frames[changed], own)
        self._cold.write_values(rows[changed], own, values, are_changed=True)
        self._hot.write_values(frames[changed], own, values, are_changed=False)
        self._counts.rows_out += int(changed.sum())
        self._counts.moved_bytes += values.nbytes

    def _write_back_all(self) -> None:
        self._write_back(*self._placement.placed())

    def statistics(self) -> dict[str, FeatureCounts]:
        """The counts of each feature since this engine was made or loaded, by name."""
        return self._counter.by_feature()

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights, float32 [len(rows), dim], also of rows that were never read. For inspection and tests."""
        self._write_back_all()
        return self._cold.weights_of(table, rows)

    def state(self) -> dict[str, TableState]:
        """A copy of all changed rows, by table name: that of any other engine."""
        self._write_back_all()
        return self._cold.state()

    def section_names(self, t: int) -> tuple[str, ...]:
        """See :meth:`SavedTables.section_names <trainer.embedding.engine.SavedTables.section_names>`."""
        return self._cold.section_names(t)

    def load_state(self, state: Mapping[str, TableState]) -> None:
        """Restore a :meth:`state` of any engine; the same rows stay hot. Raises :class:`~trainer.errors.TornCheckpoint` if it does not fit."""
        self._cold.load_state(state)
        self._begin()
        rows, frames, counts = self._placement.placed()
        self._hot.write_values(frames, counts, self._cold.read_values(rows, counts), are_changed=False)

    def begin_snapshot(self, *, most_bytes: int) -> TablesSnapshot:
        """See :meth:`CpuEngine.begin_snapshot <trainer.embedding.cpu.engine.CpuEngine.begin_snapshot>`; hot rows are written back first."""
        self._write_back_all()
        return self._cold.begin_snapshot(most_bytes=most_bytes)

    def end_snapshot(self) -> None:
        """Close the snapshot, if there is one."""
        self._cold.end_snapshot()


def _of_frames(table: TableSpec, frames: int) -> TableSpec:
    """A table of the frames; of one row that is never read where there are none."""
    return replace(table, vocabulary_size=max(frames, 1))
