"""A TPU engine behind the interface of all engines: one program for a lookup, one for an update, without a dense part.

Training compiles whole steps (:mod:`trainer.tables.tpu.training_loop`). This is for tables that are looked up and trained batch by
batch, as the engines in memory are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from trainer.errors import BadBatch
from trainer.tables.batch_checks import check_batch
from trainer.tables.batches import IdBatch
from trainer.tables.engine import NO_HASHED_COUNTS, TableState
from trainer.tables.feature_counts import FeatureCounts
from trainer.tables.gradient_checks import check_gradients
from trainer.tables.kernels.finite_gradients import check_finite
from trainer.tables.kernels.threads import Team
from trainer.tables.spec import FeatureSpec, TableSpec
from trainer.tables.tpu.engine import TpuEngine
from trainer.tables.tpu.slices import TpuSlice
from trainer.tables.tpu.table_snapshot import CopiedTables
from transforms.arrays import Array

_ONE_THREAD = Team(1)


class SteppedTables:
    """An :class:`~trainer.tables.engine.EmbeddingEngine` over an ``engine`` of ``slice_``, for batches up to the events of its step."""

    may_predict = False
    hashed_counts = NO_HASHED_COUNTS

    def __init__(self, engine: TpuEngine, slice_: TpuSlice) -> None:
        self._engine = engine
        self._look_up, self._update = slice_.lookup(engine), slice_.update(engine)

    @property
    def features(self) -> tuple[FeatureSpec, ...]:
        """The features, in the order of a batch."""
        return self._engine.features

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """The tables, in the order of their first use."""
        return self._engine.tables

    @property
    def width(self) -> int:
        """Columns of the activations."""
        return self._engine.width

    def lookup(self, batch: IdBatch) -> Array:
        """Activations, float32 [batch.rows, width]. Raises :class:`BadBatch`."""
        found: Array = self._look_up(self._padded(batch))[: batch.rows]
        return found

    def freeze(self) -> None:
        """See :meth:`EmbeddingEngine.freeze <trainer.tables.engine.EmbeddingEngine.freeze>`: lookups change nothing anyway."""

    def apply_gradients(self, batch: IdBatch, gradients: Array) -> None:
        """One update of each distinct row. Raises :class:`BadBatch` and :class:`~trainer.errors.NonFiniteLoss`; nothing is changed then."""
        padded = self._padded(batch)
        check_gradients(batch, gradients, self.width)
        check_finite(np.ascontiguousarray(gradients).reshape(-1), self.features, _ONE_THREAD)
        self._engine.update_learning_rates()
        self._update(padded, np.pad(gradients, ((0, padded.rows - batch.rows), (0, 0))))
        self._engine.count_step(batch)

    def _padded(self, batch: IdBatch) -> IdBatch:
        """The (checked) batch with empty bags up to the events of a step."""
        check_batch(batch, self.features)
        events = self._engine.events * self._engine.replicas
        if batch.rows > events:
            raise BadBatch(
                "a batch must fit in a step of the slice", value=f"{batch.rows} events", allowed=f"<= {events}"
            )
        return replace(batch, offsets=np.pad(batch.offsets, ((0, 0), (0, events - batch.rows)), mode="edge"))

    def state(self) -> dict[str, TableState]:
        """A copy of all changed rows, by table name."""
        return self._engine.state()

    def section_names(self, t: int) -> tuple[str, ...]:
        """See :meth:`SavedTables.section_names <trainer.tables.engine.SavedTables.section_names>`."""
        return self._engine.section_names(t)

    def load_state(self, state: Mapping[str, TableState]) -> None:
        """Restore the state of any engine. Raises :class:`~trainer.errors.TornCheckpoint` if it does not fit."""
        self._engine.load_state(state)

    def statistics(self) -> dict[str, FeatureCounts]:
        """The counts of each feature, by name."""
        return self._engine.statistics()

    def begin_snapshot(self, *, most_bytes: int) -> CopiedTables:
        """See :meth:`TpuEngine.begin_snapshot <trainer.tables.tpu.engine.TpuEngine.begin_snapshot>`."""
        return self._engine.begin_snapshot(most_bytes=most_bytes)

    def end_snapshot(self) -> None:
        """Release the snapshot, if there is one."""
        self._engine.end_snapshot()
