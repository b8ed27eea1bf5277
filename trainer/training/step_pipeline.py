"""Training steps whose table work runs beside the dense work of another step; staleness says how far.

With a staleness of 0 a step looks its rows up, trains the dense part and updates the rows, one after the other. With 1 the rows of
step n + 1 are looked up, and those of step n - 1 updated before that, while the dense part of step n runs: a lookup misses the
update of exactly one step. That is the order of effects of TensorFlow's embedding pipelining pass. It does not depend on timing, so
equal batches give equal bits.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from trainer.reading.batches import Batch
from trainer.training.run_state import LookedUp, TableGradients, Weights

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class TrainedBatch:
    """A batch whose dense step is done, and its logits before it, float32 [batch.rows] or [batch.rows, classes]."""

    batch: Batch
    logits: Array


class StepPipeline:
    """Trains batches in order. Call :meth:`drain` before the weights are read; leave the context to end its thread.

    ``staleness``: 0 or 1.
    """

    def __init__(self, weights: Weights, staleness: int) -> None:
        self._weights = weights
        self._tables = ThreadPoolExecutor(1, "tables") if staleness else None
        self._pending: tuple[Batch, LookedUp] | None = None
        self._due: tuple[Batch, TableGradients] | None = None
        self._latest: Batch | None = None

    @property
    def is_ahead(self) -> bool:
        """Whether a step is begun and not done: :meth:`drain` finishes it."""
        return self._pending is not None or self._due is not None

    @property
    def latest(self) -> Batch:
        """The batch of the newest dense step, done or failed."""
        assert self._latest is not None
        return self._latest

    def train(self, batch: Batch) -> TrainedBatch | None:
        """Take a batch; return the one whose dense step was done, which is this one or that before it. Raises what training raises."""
        if self._tables is None:
            self._latest = batch
            return TrainedBatch(batch, self._weights.train(batch))
        return self._advance(batch)

    def drain(self) -> TrainedBatch | None:
        """Finish all steps; return the last batch, if :meth:`train` has not returned it."""
        if self._tables is None:
            return None
        trained = self._advance(None)
        self._update_tables()
        return trained

    def _advance(self, batch: Batch | None) -> TrainedBatch | None:
        assert self._tables is not None
        looking_up = self._tables.submit(self._work_on_tables, batch)
        pending, trained, dense = self._pending, None, None
        try:
            if pending is not None:
                self._latest = pending[0]
                dense = self._weights.differentiate(*pending)
        finally:
            looked_up = looking_up.result()
        if pending is not None and dense is not None:
            self._due = pending[0], self._weights.apply_dense(pending[0], dense)
            trained = TrainedBatch(pending[0], dense.logits)
        self._pending = None if batch is None or looked_up is None else (batch, looked_up)
        return trained

    def _work_on_tables(self, batch: Batch | None) -> LookedUp | None:
        self._update_tables()
        return None if batch is None else self._weights.look_up(batch)

    def _update_tables(self) -> None:
        if self._due is not None:
            due, self._due = self._due, None
            self._weights.update_tables(*due)

    def __enter__(self) -> StepPipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tables is not None:
            self._tables.shutdown()
