"""The metric history of a run up to a commit: its windows of steps, and its commits. Pure.

A window is the steps ``(k * n, (k + 1) * n]``, so windows depend on the number of steps alone, however often a run is killed. There are at
most :data:`MOST_WINDOWS`: with one more, n doubles, and windows are joined pairwise. Of more than :data:`MOST_COMMITS` commits the older ones
are joined pairwise, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from trainer.run.history.columns import HistoryLayout
from transforms.arrays import Array

#: The steps of a window of a short run.
FIRST_WINDOW_STEPS: Final = 16
#: A run of 32,768 steps has so many windows of 16 steps; a longer one at least half as many.
MOST_WINDOWS: Final = 2048
MOST_COMMITS: Final = 1024


@dataclass(frozen=True, eq=False)
class RunHistory:
    """What the windows and the commits of a run have measured.

    Attributes:
        layout: the columns.
        first_step: the steps before the history: those of an earlier release, which kept none.
        window_steps: the steps of a whole window.
        windows: float64 [windows, columns], ascending. The last one may be open: with fewer steps, which the next ones join.
        commits: likewise, a row for what was trained between a commit and the one before.
    """

    layout: HistoryLayout
    first_step: int
    window_steps: int
    windows: Array
    commits: Array

    @classmethod
    def empty(cls, layout: HistoryLayout, first_step: int = 0) -> RunHistory:
        """The history of a run that goes on after so many steps."""
        return cls(layout, first_step, FIRST_WINDOW_STEPS, layout.no_rows(), layout.no_rows())

    @property
    def step(self) -> int:
        """The last step."""
        return int(self.layout.column(self.windows, "step")[-1]) if len(self.windows) else self.first_step

    @property
    def open_windows(self) -> int:
        """1 if the last window has fewer steps than it will have, else 0."""
        return int(len(self.windows) > 0 and self.step % self.window_steps != 0)

    def with_parts(self, parts: Array) -> RunHistory:
        """With the next steps; ``parts``: rows [parts, columns], of which none has steps of two windows."""
        rows, steps = np.concatenate([self.windows, parts]), self.window_steps
        rows = self._grouped(rows, steps)
        while len(rows) > MOST_WINDOWS:
            steps *= 2
            rows = self._grouped(rows, steps)
        return replace(self, windows=rows, window_steps=steps)

    def with_commit(self, commit: Array) -> RunHistory:
        """With what was trained up to the next commit, a row [1, columns]."""
        rows = np.concatenate([self.commits, commit])
        if len(rows) > MOST_COMMITS:
            pairs = np.arange(len(rows)) // 2
            pairs[-1] += len(rows) % 2 == 0  # the newest one stays alone
            rows = self.layout.joined(rows, pairs)
        return replace(self, commits=rows)

    def _grouped(self, rows: Array, window_steps: int) -> Array:
        return self.layout.joined(rows, (self.layout.column(rows, "step").astype(np.int64) - 1) // window_steps)
