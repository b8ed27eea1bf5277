"""Random metric histories, as recorders make them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from trainer.model.heads import BINARY, Head
from trainer.model.task_heads import AnyHead, TaskHeads
from trainer.run.history.columns import HistoryLayout
from trainer.run.history.recorder import Gauges, HistoryRecorder
from trainer.run.history.run_history import RunHistory

HEADS: tuple[AnyHead, ...] = (
    BINARY,
    Head("regression", center=1.0),
    TaskHeads((("click", BINARY), ("shelf", Head("multiclass", classes=3)))),
)


class Clock:
    """A clock that goes on by a second with each look."""

    def __init__(self, at: float = 0.0) -> None:
        self._counter = itertools.count()
        self._at = at

    def __call__(self) -> float:
        return self._at + next(self._counter)


def recorder_of(history: RunHistory, head: AnyHead, gauges: Sequence[Gauges] = ()) -> HistoryRecorder:
    left = iter(gauges)
    return HistoryRecorder(history, head, lambda: next(left, Gauges()), clock=Clock(), now=Clock(1.8e9))


def train(history: RunHistory, head: AnyHead, commits: Sequence[int], *, seed: int = 0, rows: int = 3) -> RunHistory:
    """The history after more steps, with a commit after so many of them each; each step has events of its own, by its number."""
    for steps in commits:
        recorder = recorder_of(history, head)  # as after a restart
        recorder.begin(len(history.commits), 0)
        for step in range(history.step, history.step + steps):
            rng = np.random.default_rng((seed, step))
            labels = rng.integers(0, 2, (rows, *head.label_shape(0)[1:])).astype(np.float32)
            shape = (rows, head.width) if head.width > 1 else (rows,)
            recorder.add(labels, rng.normal(size=shape).astype(np.float32))
            recorder.count_step()
        recorder.pause()
        number = int(history.layout.column(history.commits, "commit")[-1]) if len(history.commits) else 0
        history = recorder.commit(number + 1)
    return history


def history_of(head: AnyHead, commits: Sequence[int], **options: int) -> RunHistory:
    return train(RunHistory.empty(HistoryLayout.of(head.each)), head, commits, **options)
