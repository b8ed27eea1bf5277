"""Records the metric history while a process trains: a few array operations a window, and two copies a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from trainer.model.task_heads import AnyHead
from trainer.run.history.columns import HistoryLayout
from trainer.run.history.label_sums import label_sums
from trainer.run.history.run_history import RunHistory
from transforms.arrays import Array

T = TypeVar("T")

#: Events whose predictions are held; a window of more is several parts.
_MOST_EVENTS: Final = 1 << 16
#: Parts that join the history together, since that copies it.
_MOST_PARTS: Final = 64


@dataclass(frozen=True, slots=True)
class Gauges:
    """What a process has measured since it began to train, or measures now. Its steps may be ahead of those that are counted.

    Attributes:
        row_wait_secs: how long dense parts have waited for rows of tables.
        missed_updates, lookups: the updates that all lookups have missed, and the lookups.
        gradient_norms, gradient_steps: the sum of the norms of the dense gradient, and of how many steps.
        hidden_units, idle_units: those that are counted, and those that are off now.
        fullness: the filled share of the buffer of units now; None without one.
    """

    row_wait_secs: float = 0.0
    missed_updates: int = 0
    lookups: int = 0
    gradient_norms: float = 0.0
    gradient_steps: int = 0
    hidden_units: int = 0
    idle_units: int = 0
    fullness: float | None = None


class HistoryRecorder:
    """Adds the steps of a process to a history.

    Args:
        history: up to the last commit.
        head: the model's task, or tasks.
        look: measures now.
        clock: monotonic seconds.
        now: epoch seconds.
    """

    def __init__(
        self,
        history: RunHistory,
        head: AnyHead,
        look: Callable[[], Gauges],
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._history, self._head, self._look = history, head, look
        self._clock, self._now = clock, now
        self._step, self._steps, self._events = history.step, 0, 0
        width = head.width
        self._no_labels = np.zeros(head.label_shape(0), np.float32)
        self._no_logits = np.zeros((0, width) if width > 1 else (0,), np.float32)
        self._labels, self._logits = [self._no_labels], [self._no_logits]
        self._place = (0, 0)
        self._parts: list[Array] = []
        self._since = history.layout.no_rows()
        self._before = look()
        self._waited_secs = 0.0
        self._began = clock()

    @property
    def layout(self) -> HistoryLayout:
        """The columns."""
        return self._history.layout

    def begin(self, epoch: int, pass_number: int) -> None:
        """Begin or go on to train an epoch. The time after :meth:`pause` does not count."""
        self._end_part()
        self._place = epoch, pass_number
        self._began = self._clock()

    def pause(self) -> None:
        """Training stops, until :meth:`begin`."""
        self._end_part()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for data."""
        began = self._clock()
        try:
            yield
        finally:
            self._waited_secs += self._clock() - began

    def timed(self, items: Iterator[T]) -> Iterator[T]:
        """The items; the time that each takes is that of waiting for data."""
        while True:
            with self.waiting():
                item = next(items, None)
            if item is None:
                return
            yield item

    def add(self, labels: Array, logits: Array) -> None:
        """Add predictions of the step that is counted next; ``labels`` and ``logits`` are copied."""
        self._labels.append(np.array(labels, np.float32))
        self._logits.append(np.array(logits, np.float32))
        self._events += len(labels)

    def count_step(self) -> None:
        """The predictions of a step are added."""
        self._step += 1
        self._steps += 1
        if self._step % self._history.window_steps == 0 or self._events >= _MOST_EVENTS:
            self._end_part()

    def commit(self, number: int) -> RunHistory:
        """The history up to now, with the commit of this number."""
        self._end_part()
        self._take_parts()
        if len(self._since):
            row = self._since.copy()
            row[:, self.layout.places[None, "commit"]] = number
            self._history = self._history.with_commit(row)
            self._since = self.layout.no_rows()
        return self._history

    def _take_parts(self) -> None:
        if self._parts:
            parts = np.concatenate(self._parts)
            self._parts = []
            self._history = self._history.with_parts(parts)
            both = np.concatenate([self._since, parts])
            self._since = self.layout.joined(both, np.zeros(len(both)))

    def _end_part(self) -> None:
        if not self._steps:
            return
        now, secs = self._look(), self._clock() - self._began
        before, (epoch, pass_number) = self._before, self._place
        commits = self.layout.column(self._history.commits, "commit")
        values: dict[str, float] = {
            "step": self._step,
            "commit": commits[-1] if len(commits) else 0,
            "epoch": epoch,
            "pass_number": pass_number,
            "ended_at": self._now(),
            "hidden_units": now.hidden_units,
            "idle_units": now.idle_units,
            "steps": self._steps,
            "events": self._events,
            "secs": max(secs, 0.0),
            "data_wait_secs": self._waited_secs,
            "row_wait_secs": max(now.row_wait_secs - before.row_wait_secs, 0.0),
            "missed_updates": now.missed_updates - before.missed_updates,
            "lookups": now.lookups - before.lookups,
            "gradient_norms": max(now.gradient_norms - before.gradient_norms, 0.0),
            "gradient_steps": now.gradient_steps - before.gradient_steps,
            "fullness": now.fullness or 0.0,
            "fullness_samples": int(now.fullness is not None),
        }
        labels, logits = (np.concatenate(parts) for parts in (self._labels, self._logits))
        self._parts.append(self.layout.row(values, label_sums(self._head, labels, logits)))
        if len(self._parts) == _MOST_PARTS:
            self._take_parts()
        self._labels, self._logits = [self._no_labels], [self._no_logits]
        self._steps = self._events = 0
        self._before, self._waited_secs = now, 0.0
        self._began += secs
