"""How fast a run was between its commits, and what it waited for. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from headrace.runs.history import History


@dataclass(frozen=True, slots=True)
class CommitSpeed:
    """What was trained up to a commit from the one before; None: not measured.

    Attributes:
        commit: its number.
        ended_secs: when, in epoch seconds.
        events: that were trained.
        rows_per_sec, steps_per_sec: the speed, without the time between epochs.
        data_wait_share, row_wait_share: of the time, in which training waited for batches, or for rows of tables.
        buffer_fullness: the filled share of a host's buffer.
    """

    commit: int
    ended_secs: float
    events: int
    rows_per_sec: float | None
    steps_per_sec: float | None
    data_wait_share: float | None
    row_wait_share: float | None
    buffer_fullness: float | None


_MEASURED = ("rows_per_sec", "steps_per_sec", "data_wait_share", "row_wait_share", "buffer_fullness")


def newest_speeds(history: History, most: int) -> tuple[CommitSpeed, ...]:
    """The speeds up to the newest ``most`` commits, ascending."""
    columns = history.commits
    count = len(columns["commit"])
    events = np.diff(columns["events"], prepend=0.0)
    return tuple(
        CommitSpeed(int(columns["commit"][k]), float(columns["ended_at"][k]), int(events[k]), *(_known(columns[name][k]) for name in _MEASURED))
        for k in range(max(0, count - most), count)
    )  # fmt: skip


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
