"""Training steps in order, on the engine of the weights; staleness says how far a lookup runs ahead.

With a staleness of 0 a step looks its rows up, trains the dense part and updates the rows, one after the other. With 1 the rows of
step n + 1 are looked up, and those of step n - 1 updated before that, while the dense part of step n runs: a lookup misses the
update of exactly one step. That is the order of effects of TensorFlow's embedding pipelining pass. With t the rows of step n + t are
looked up while that of step n runs, and a lookup misses the updates of exactly the t steps before; fewer after a drain. That is hybrid
training with a bounded staleness (Persia: Lian et al., KDD 2022, arXiv:2111.05897). The order does not depend on timing, so equal
batches give equal bits.

A lookup is *begun* in that order, and ends one step before its dense part: weights on servers may have t - 1 lookups on their way.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, TypeAlias

import numpy as np

from trainer.errors import NonFiniteLoss
from trainer.run.reading.batches import Batch
from trainer.run.weights.dense_step import DenseStep, LookedUp, TableGradients
from trainer.run.weights.row_delay import NO_DELAY, SAMPLED_LOOKUPS, measure_delay
from trainer.run.weights.staleness import StalenessCounts
from trainer.tables.batches import IdBatch
from transforms.arrays import Array

#: The most bytes of the batches of a call on a slice, but for the last one of them.
MOST_CALL_BYTES = 1 << 30
#: Ends a lookup that was begun.
_End: TypeAlias = Callable[[], LookedUp]


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
        """The batch whose step failed, else that of the newest dense step."""

    @property
    def staleness(self) -> StalenessCounts:
        """The updates that were missing at each lookup, as counted when it began."""

    @property
    def wait_secs(self) -> float:
        """How long dense parts have waited for lookups, with the lookups that run between them."""

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


class TableSteps(Protocol):
    """Weights whose tables and dense part are called apart, see :class:`~trainer.run.weights.run_state.Weights`."""

    def begin_look_up(self, batch: Batch) -> Callable[[], LookedUp]:
        """Begin the lookup of a batch."""

    def send(self, batch: Batch, looked_up: LookedUp) -> None:
        """Send what the dense part of a step needs to its devices, while an earlier step works there."""

    def differentiate(self, batch: Batch, looked_up: LookedUp) -> DenseStep:
        """The dense part of a step."""

    def apply_dense(self, batch: Batch, step: DenseStep) -> TableGradients:
        """Finish a dense step."""

    def update_tables(self, batch: Batch, gradients: TableGradients) -> None:
        """The updates of the rows of a batch."""


class WholeSteps(Protocol):
    """Weights that train whole steps, several a call, see :class:`~trainer.run.weights.tpu_weights.TpuWeights`."""

    @property
    def steps_per_call(self) -> int:
        """The most steps of a call."""

    @property
    def staleness(self) -> int:
        """The updates that a lookup within a call misses."""

    def begin(self, batches: Sequence[Batch]) -> Callable[[], list[Array]]:
        """Send what a call reads, perhaps while the call before runs. The result trains the batches; it returns the logits of each before its step."""


class StepPipeline:
    """The :class:`Steps` of weights in memory.

    Tables are read and updated in a thread of their own, in an order that ``staleness`` fixes: the update of step n - staleness - 1, then
    the beginning of the lookup of step n, and the end of that of step n - staleness + 1. The dense part of step n - staleness runs meanwhile.

    Args:
        staleness: the updates that a lookup misses. At most twice as many batches and their activations or gradients are in memory, and two
            more.
        tables: the table of each feature of the batches; empty: which rows the missed updates are of is not measured.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        weights: TableSteps,
        staleness: int,
        tables: Sequence[str] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._weights, self._staleness, self._table_names = weights, staleness, tuple(tables)
        self._clock, self._wait_secs = clock, 0.0
        self._tables = ThreadPoolExecutor(1, "tables") if staleness else None
        self._begun: deque[tuple[Batch, Future[_End]]] = deque()
        self._ahead: deque[tuple[Batch, Future[LookedUp]]] = deque()
        self._due: tuple[Batch, TableGradients] | None = None
        self._latest: Batch | None = None
        self._failed: Batch | None = None
        self._failure: BaseException | None = None
        self._looked_up = self._updated = 0
        self._missed = [0] * (staleness + 1)
        self._rows = NO_DELAY
        #: The batches that were looked up last: those whose updates are missing, and the newest one.
        self._recent: deque[IdBatch] = deque(maxlen=staleness + 1)

    @property
    def is_ahead(self) -> bool:
        """See :class:`Steps`."""
        return bool(self._begun or self._ahead) or self._due is not None

    @property
    def latest(self) -> Batch:
        """See :class:`Steps`."""
        latest = self._failed or self._latest
        assert latest is not None
        return latest

    @property
    def staleness(self) -> StalenessCounts:
        """See :class:`Steps`."""
        return StalenessCounts.of(dict(enumerate(self._missed)), self._rows)

    @property
    def wait_secs(self) -> float:
        """See :class:`Steps`."""
        return self._wait_secs

    def train(self, batch: Batch) -> Sequence[TrainedBatch]:
        """See :class:`Steps`."""
        if self._tables is None:
            self._latest = batch
            with self._waiting():
                looked_up = self._weights.begin_look_up(batch)()
            step = self._weights.differentiate(batch, looked_up)
            self._weights.update_tables(batch, self._weights.apply_dense(batch, step))
            self._note_lookup(batch, 0)
            return [_finite(batch, step.logits)]
        self._raise_failure()
        self._begun.append((batch, self._tables.submit(self._update_and_begin, self._take_due(), batch)))
        self._end_lookups(self._tables, self._staleness - 1)
        return self._train_dense() if len(self._begun) + len(self._ahead) > self._staleness else []

    def drain(self) -> Sequence[TrainedBatch]:
        """See :class:`Steps`."""
        if self._tables is None:
            return []
        trained: list[TrainedBatch] = []
        self._end_lookups(self._tables, 0)
        while self._ahead:
            self._tables.submit(self._update, self._take_due())
            trained += self._train_dense()
        self._tables.submit(self._update, self._take_due()).result()
        return trained

    def _end_lookups(self, tables: ThreadPoolExecutor, most: int) -> None:
        """Let at most so many lookups be begun and not ended."""
        while len(self._begun) > most:
            batch, beginning = self._begun.popleft()
            self._ahead.append((batch, tables.submit(self._end, batch, beginning)))

    def _train_dense(self) -> Sequence[TrainedBatch]:
        """The dense part of the oldest step; its update is due after it."""
        batch, looking_up = self._ahead.popleft()
        with self._waiting():
            looked_up = looking_up.result()
        self._latest = batch
        step = self._weights.differentiate(batch, looked_up)
        self._due = batch, self._weights.apply_dense(batch, step)
        return [_finite(batch, step.logits)]

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        began = self._clock()
        try:
            yield
        finally:
            self._wait_secs += self._clock() - began

    def _take_due(self) -> tuple[Batch, TableGradients] | None:
        due, self._due = self._due, None
        return due

    def _update_and_begin(self, due: tuple[Batch, TableGradients] | None, batch: Batch) -> _End:
        self._update(due)
        with self._failing(batch):
            self._note_lookup(batch, self._looked_up - self._updated)
            self._looked_up += 1
            return self._weights.begin_look_up(batch)

    def _note_lookup(self, batch: Batch, missed: int) -> None:
        """Count a lookup that misses the updates of so many of the newest batches."""
        if self._table_names:
            if sum(self._missed) % SAMPLED_LOOKUPS == 1:
                recent = list(self._recent)
                before = recent[-1] if recent else None
                self._rows += measure_delay(self._table_names, batch.ids, before, recent[len(recent) - missed :])
            self._recent.append(batch.ids)
        self._missed[missed] += 1

    def _end(self, batch: Batch, beginning: Future[_End]) -> LookedUp:
        end = beginning.result()  # it is done, in this thread
        with self._failing(batch):
            found = end()
            self._weights.send(batch, found)
            return found

    def _update(self, due: tuple[Batch, TableGradients] | None) -> None:
        self._raise_failure()
        if due is not None:
            with self._failing(due[0]):
                self._weights.update_tables(*due)
                self._updated += 1

    @contextmanager
    def _failing(self, batch: Batch) -> Iterator[None]:
        """Work on the tables for a batch; after an error there is no more of it."""
        try:
            yield
        except BaseException as error:
            self._failed, self._failure = batch, error
            raise

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> StepPipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tables is not None:
            self._tables.shutdown(cancel_futures=error is not None)


class SliceSteps:
    """The :class:`Steps` of a model on TPUs, which trains several steps a call; its engine says whether lookups run ahead.

    A call runs in a thread of its own. Meanwhile the batches of the next one are read, and sent to the machines of the slice; so batches are returned
    a call late, and those of two calls are in memory. So a call has at most so many steps as their batches have ``most_bytes``.
    """

    def __init__(self, weights: WholeSteps, *, most_bytes: int = MOST_CALL_BYTES) -> None:
        self._weights, self._most_bytes, self._pending_bytes = weights, most_bytes, 0
        self._calls = ThreadPoolExecutor(1, "slice")
        self._pending: list[Batch] = []
        self._running: tuple[list[Batch], Future[list[Array]]] | None = None
        self._latest: Batch | None = None
        self._missed = StalenessCounts()

    @property
    def is_ahead(self) -> bool:
        """See :class:`Steps`."""
        return bool(self._pending) or self._running is not None

    @property
    def latest(self) -> Batch:
        """See :class:`Steps`."""
        assert self._latest is not None
        return self._latest

    @property
    def staleness(self) -> StalenessCounts:
        """See :class:`Steps`; what the pipelining of the engine misses."""
        return self._missed

    @property
    def wait_secs(self) -> float:
        """See :class:`Steps`: lookups are a part of each call."""
        return 0.0

    def train(self, batch: Batch) -> Sequence[TrainedBatch]:
        """See :class:`Steps`."""
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes
        is_full = len(self._pending) == self._weights.steps_per_call or self._pending_bytes >= self._most_bytes
        return self._begin() if is_full else []

    def drain(self) -> Sequence[TrainedBatch]:
        """See :class:`Steps`."""
        return [*(self._begin() if self._pending else ()), *self._finish()]

    def _begin(self) -> Sequence[TrainedBatch]:
        """Begin a call of the batches that were taken, after the one that runs; return the batches of that."""
        batches, self._pending, self._pending_bytes = self._pending, [], 0
        run = self._weights.begin(batches)
        trained = self._finish()
        self._running = batches, self._calls.submit(run)
        return trained

    def _finish(self) -> Sequence[TrainedBatch]:
        """Wait for the call that runs, if one does."""
        if self._running is None:
            return []
        (batches, call), self._running = self._running, None
        found = []
        self._latest = batches[0]
        for batch, logits in zip(batches, call.result(), strict=True):
            self._latest = batch
            found.append(_finite(batch, logits))
        # The first lookup of a call misses nothing.
        ahead = (len(found) - 1) * self._weights.staleness
        self._missed += StalenessCounts.of({0: len(found) - ahead, 1: ahead})
        return found

    def __enter__(self) -> SliceSteps:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the call that runs."""
        self._calls.shutdown()


def _finite(batch: Batch, logits: Array) -> TrainedBatch:
    """A trained batch. Raises :class:`NonFiniteLoss` for logits that are not finite."""
    if not np.isfinite(logits).all():
        raise NonFiniteLoss("training diverged: a prediction is NaN or infinite")
    return TrainedBatch(batch, logits)
