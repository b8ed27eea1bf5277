"""The part of a plane that curves are drawn in. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace.runs.curves import Axis, Curve

#: The share of the values at each end that may lie outside, if they are further from the others than this share of their range: the first
#: windows of a run say little.
_OUTSIDE: Final = 0.02
_FAR: Final = 0.5
_MARGIN: Final = 0.06
#: Units of time, and their seconds.
_TIMES: Final = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))
#: The least number of a unit that an axis has.
_LEAST_UNITS: Final = 2.0


@dataclass(frozen=True, slots=True)
class PlotRange:
    """From 0 to ``right`` and from ``low`` to ``high``; lines end at its edges.

    Attributes:
        right: in the unit of the axis.
        low, high: of the figure.
        unit: that of x in one of the axis.
        name: of the axis.
    """

    right: float
    low: float
    high: float
    unit: float
    name: str


def range_of(curves: Sequence[Curve], axis: Axis) -> PlotRange:
    """A range with the smoothed lines of these curves but for a few outliers."""
    right = max((float(one.x[-1]) for one in curves if len(one.x)), default=0.0) or 1.0
    name, unit = {"step": ("optimizer steps", 1.0), "events": ("events", 1.0)}.get(axis, _time(right))
    values = np.concatenate([np.zeros(0), *(one.smooth for one in curves)])
    if not len(values):
        return PlotRange(right / unit, 0.0, 1.0, unit, name)
    least, low, high, most = (float(one) for one in np.quantile(values, [0.0, _OUTSIDE, 1.0 - _OUTSIDE, 1.0]))
    far = (high - low) * _FAR
    low, high = max(least, low - far), min(most, high + far)
    ends = [float(one.smooth[-1]) for one in curves if len(one.smooth)]
    low, high = min([low, *ends]), max([high, *ends])
    margin = (high - low) * _MARGIN or abs(high) * _MARGIN or 1.0
    return PlotRange(right / unit, low - margin, high + margin, unit, name)


def time_unit(secs: float) -> tuple[str, float]:
    """The largest unit of time of which so many seconds have some, and its seconds."""
    return next((one for one in _TIMES if secs >= _LEAST_UNITS * one[1]), _TIMES[-1])


def _time(right: float) -> tuple[str, float]:
    name, secs = time_unit(right)
    return f"{name} of training", secs
