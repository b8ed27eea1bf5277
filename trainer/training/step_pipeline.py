"""Training steps in order, on the engine of the weights; staleness says how far a lookup runs ahead.

With a staleness of 0 a step looks its rows up, trains the dense part and updates the rows, one after the other. With 1 the rows of
step n + 1 are looked up, and those of step n - 1 updated before that, while the dense part of step n runs: a lookup misses the
update of exactly one step. That is the order of effects of TensorFlow's embedding pipelining pass. It does not depend on timing, so
equal batches give equal bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from trainer.errors import NonFiniteLoss
from trainer.reading.batches import Batch
from trainer.training.run_state import LookedUp, TableGradients, Weights
from trainer.training.tpu_weights import TpuWeights

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class TrainedBatch:
    """A batch whose dense step is done, and its logits before it, float32 [batch.rows] or [batch.rows, classes]."""

    batch: Batch
    logits: Array


class Steps(Protocol):
    """Trains batches in order. Call :meth:`drain` before the weights are read; leave the context at the end."""

    @property
    def is_ahead(self) -> bool:
        """Whether a step is begun and not done: :meth:`drain` finishes it."""

    @property
    def latest(self) -> Batch:
        """The batch of the newest dense step, done or failed."""

    def train(self, batch: Batch) -> Sequence[TrainedBatch]:
        """Take a batch; return those whose dense steps are done and were not returned before.

        Raises what training raises: :class:`NonFiniteLoss` for a gradient or a prediction that is not finite.
        """

    def drain(self) -> Sequence[TrainedBatch]:
        """Finish all steps; return the batches that :meth:`train` has not returned."""

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""


def steps_of(weights: Weights | TpuWeights, staleness: int) -> Steps:
    """The steps of a model: on its slice, or in this process."""
    return SliceSteps(weights) if isinstance(weights, TpuWeights) else StepPipeline(weights, staleness)


class StepPipeline:
    """The :class:`Steps` of weights in memory. ``staleness``: 0 or 1."""

    def __init__(self, weights: Weights, staleness: int) -> None:
        self._weights = weights
        self._tables = ThreadPoolExecutor(1, "tables") if staleness else None
        self._pending: tuple[Batch, LookedUp] | None = None
        self._due: tuple[Batch, TableGradients] | None = None
        self._latest: Batch | None = None

    @property
    def is_ahead(self) -> bool:
        """See :class:`Steps`."""
        return self._pending is not None or self._due is not None

    @property
    def latest(self) -> Batch:
        """See :class:`Steps`."""
        assert self._latest is not None
        return self._latest

    def train(self, batch: Batch) -> Sequence[TrainedBatch]:
        """See :class:`Steps`."""
        if self._tables is None:
            self._latest = batch
            return [_finite(batch, self._weights.train(batch))]
        return self._advance(batch)

    def drain(self) -> Sequence[TrainedBatch]:
        """See :class:`Steps`."""
        if self._tables is None:
            return []
        trained = self._advance(None)
        self._update_tables()
        return trained

    def _advance(self, batch: Batch | None) -> Sequence[TrainedBatch]:
        assert self._tables is not None
        looking_up = self._tables.submit(self._work_on_tables, batch)
        pending, dense = self._pending, None
        try:
            if pending is not None:
                self._latest = pending[0]
                dense = self._weights.differentiate(*pending)
        finally:
            looked_up = looking_up.result()
        if pending is not None and dense is not None:
            self._due = pending[0], self._weights.apply_dense(pending[0], dense)
        self._pending = None if batch is None or looked_up is None else (batch, looked_up)
        return [] if pending is None or dense is None else [_finite(pending[0], dense.logits)]

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


class SliceSteps:
    """The :class:`Steps` of a model on TPUs, which trains several steps a call; its engine says whether lookups run ahead."""

    def __init__(self, weights: TpuWeights) -> None:
        self._weights = weights
        self._pending: list[Batch] = []
        self._latest: Batch | None = None

    @property
    def is_ahead(self) -> bool:
        """See :class:`Steps`."""
        return bool(self._pending)

    @property
    def latest(self) -> Batch:
        """See :class:`Steps`."""
        assert self._latest is not None
        return self._latest

    def train(self, batch: Batch) -> Sequence[TrainedBatch]:
        """See :class:`Steps`."""
        self._pending.append(batch)
        return self.drain() if len(self._pending) == self._weights.steps_per_call else []

    def drain(self) -> Sequence[TrainedBatch]:
        """See :class:`Steps`."""
        batches, self._pending = self._pending, []
        found = []
        for batch, logits in zip(batches, self._weights.train(batches) if batches else (), strict=True):
            self._latest = batch
            found.append(_finite(batch, logits))
        return found

    def __enter__(self) -> SliceSteps:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left behind."""


def _finite(batch: Batch, logits: Array) -> TrainedBatch:
    """A trained batch. Raises :class:`NonFiniteLoss` for logits that are not finite."""
    if not np.isfinite(logits).all():
        raise NonFiniteLoss("training diverged: a prediction is NaN or infinite")
    return TrainedBatch(batch, logits)
