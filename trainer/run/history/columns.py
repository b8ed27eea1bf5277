"""The columns of a metric history, and how the rows of several windows become one. Pure.

A window is a row of float64. Every column is a sum over the window or the value at its end, so that windows join exactly, in any grouping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

import numpy as np

from trainer.model.heads import Head
from transforms.analysis.target import Task
from transforms.arrays import Array

#: Columns whose value is that at the end of a window: ``step`` counts the run's optimizer steps, ``ended_at`` is in epoch seconds.
LAST: Final = ("step", "commit", "epoch", "pass_number", "ended_at", "hidden_units", "idle_units")
#: Columns that are sums over a window; a mean is a sum over its number, which is 0 where nothing was measured.
SUMS: Final = (
    "steps",
    "events",
    "secs",
    "data_wait_secs",
    "row_wait_secs",
    "missed_updates",
    "lookups",
    "gradient_norms",
    "gradient_steps",
    "fullness",
    "fullness_samples",
)
#: Sums over the events with a label, by task. ``baseline`` is the loss of the best constant prediction, and ``pairs`` are pairs of a positive
#: and a negative, of which ``ranked`` are in the right order: both inside the parts of a window.
LABEL_SUMS: Final[Mapping[Task, tuple[str, ...]]] = MappingProxyType(
    {
        "binary": ("events", "loss", "positives", "predicted", "pairs", "ranked"),
        "multiclass": ("events", "loss", "hits", "baseline"),
        "regression": ("events", "squared", "absolute", "baseline"),
    }
)
#: Columns of whole numbers.
WHOLE: Final = frozenset(
    ("step", "commit", "epoch", "pass_number", "hidden_units", "idle_units", "steps", "events", "missed_updates",
     "lookups", "gradient_steps", "fullness_samples", "positives", "hits")
)  # fmt: skip


@dataclass(frozen=True)
class HistoryLayout:
    """The columns of the history of a model.

    Attributes:
        labels: the name and the task of each label; the name of an only label is "".
    """

    labels: tuple[tuple[str, Task], ...]

    @classmethod
    def of(cls, heads: Sequence[tuple[str, Head]]) -> HistoryLayout:
        """The columns of a model with these heads."""
        return cls(tuple((name, head.task) for name, head in heads))

    @cached_property
    def names(self) -> tuple[tuple[str | None, str], ...]:
        """The label and the name of each column; None for what is no label's."""
        own = tuple((None, name) for name in (*LAST, *SUMS))
        return own + tuple((label, name) for label, task in self.labels for name in LABEL_SUMS[task])

    @cached_property
    def places(self) -> Mapping[tuple[str | None, str], int]:
        """The place of each column."""
        return {name: place for place, name in enumerate(self.names)}

    @cached_property
    def is_sum(self) -> Array:
        """Whether each column is a sum, bool [columns]."""
        return np.arange(self.width) >= len(LAST)

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.names)

    def column(self, rows: Array, name: str, label: str | None = None) -> Array:
        """A column of rows [windows, columns], float64 [windows]."""
        found: Array = rows[:, self.places[label, name]]
        return found

    def row(self, values: Mapping[str, float], label_sums: Array) -> Array:
        """A row [1, columns]: the values of the columns of no label by name, then those of all labels."""
        return np.array([[*(values[name] for _, name in self.names[: len(values)]), *label_sums]], np.float64)

    def no_rows(self) -> Array:
        """No windows."""
        return np.zeros((0, self.width))

    def joined(self, rows: Array, groups: Array) -> Array:
        """One row for each run of equal ``groups``, whole numbers [windows]."""
        if not len(rows):
            return rows
        starts = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
        last = np.concatenate([starts[1:], [len(rows)]]) - 1
        return np.where(self.is_sum, np.add.reduceat(rows, starts, axis=0), rows[last])
