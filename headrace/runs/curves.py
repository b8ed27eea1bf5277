"""Learning curves: a figure of a run over its steps, its events or its time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np

from headrace.runs.history import History, Rows
from transforms.arrays import Array
from transforms.errors import InputError, nearest

#: What curves are drawn over; ``time`` is seconds of training, without the time between epochs.
Axis = Literal["step", "events", "time"]
AXES: Final[tuple[Axis, ...]] = get_args(Axis)
#: Columns that say where a row is, and are no figures.
PLACES: Final = ("step", "commit", "epoch", "pass", "events", "secs", "ended_at", "steps")


@dataclass(frozen=True, eq=False)
class Curve:
    """A figure of a run.

    Attributes:
        run: the name of the run.
        x: ascending, float64 [points].
        y: the figure, without points where it is not defined.
        smooth: the same, smoothed.
    """

    run: str
    x: Array
    y: Array
    smooth: Array

    @property
    def last(self) -> float | None:
        """The newest smoothed value; None without points."""
        return float(self.smooth[-1]) if len(self.smooth) else None


def curve_of(name: str, history: History, metric: str, axis: Axis, smoothing: float, rows: Rows = "windows") -> Curve:
    """The curve of a figure. Raises :class:`InputError` for a figure that the run does not have."""
    columns = history.columns(rows)
    known = [one for one in columns if one not in PLACES]
    if metric not in known:
        raise InputError("a metric must be a figure of the run's history", where="--metric", value=metric, allowed=nearest(metric, known),
                         next_step=f"one of: {', '.join(known)}")  # fmt: skip
    y = columns[metric]
    x = columns["secs" if axis == "time" else axis]
    is_known = np.isfinite(y)
    return Curve(name, x[is_known], y[is_known], smoothed(y[is_known], smoothing))


def smoothed(values: Array, smoothing: float) -> Array:
    """The moving mean of the values so far, each of which counts ``smoothing`` times as much as the one after it.

    Args:
        values: float64 [points], finite.
        smoothing: in [0, 1); 0 changes nothing.

    As TensorBoard smooths, so the first values are not drawn towards 0.
    """
    found, mean, weight = np.empty(len(values)), 0.0, 0.0
    for k, value in enumerate(values.tolist()):
        mean = mean * smoothing + (1.0 - smoothing) * value
        weight = weight * smoothing + (1.0 - smoothing)
        found[k] = mean / weight
    return found


def common_metrics(histories: Sequence[History], rows: Rows = "windows") -> list[str]:
    """The figures that all of these have, in the order of the first."""
    first, *others = (one.columns(rows) for one in histories)
    return [one for one in first if one not in PLACES and all(one in other for other in others)]


def default_metric(histories: Sequence[History]) -> str:
    """The first figure of these that all runs have: the loss divided by that of the best constant. Raises :class:`InputError` for runs with none in common."""
    figures = common_metrics(histories)
    found = next((one for one in figures if one.endswith(("normalized_entropy", "normalized_error"))), None)
    if found is None:
        raise InputError("runs must have a label in common to be drawn together", where="--metric", value="none is given",
                         next_step=f"give --metric, one of: {', '.join(figures)}")  # fmt: skip
    return found
