"""The points of a metric history that another tool does not have yet. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace.runs.curves import PLACES
from trainer.run.history.figures import figures
from trainer.run.history.run_history import RunHistory

#: The first part of the names of what windows, or commits, have measured.
WINDOWS: Final = "windows"
COMMITS: Final = "commits"


@dataclass(frozen=True, slots=True)
class Point:
    """What a window, or a commit, has measured.

    Attributes:
        kind: :data:`WINDOWS` or :data:`COMMITS`.
        step: the last optimizer step.
        at_secs: when it ended, in epoch seconds.
        values: finite figures by name, such as ``windows/log_loss``.
    """

    kind: str
    step: int
    at_secs: float
    values: Mapping[str, float]


def new_points(history: RunHistory, known: Mapping[str, int]) -> list[Point]:
    """The points after those that are known, by step; a window that is open is none yet.

    ``known``: of each kind the last step that another tool has; 0 without any.
    """
    closed = history.windows[: len(history.windows) - history.open_windows]
    found = []
    for kind, rows in ((WINDOWS, closed), (COMMITS, history.commits)):
        columns = {name: values.tolist() for name, values in figures(history.layout, rows).items()}
        for k, step in enumerate(columns["step"]):
            if step > known.get(kind, 0):
                values = {f"{kind}/{name}": one[k] for name, one in columns.items() if name not in PLACES and math.isfinite(one[k])}  # fmt: skip
                values[f"{kind}/events"] = columns["events"][k]
                found.append(Point(kind, int(step), columns["ended_at"][k], values))
    return sorted(found, key=lambda point: (point.step, point.kind))
