"""When a round of pruning begins, from a sample of the importance of rows. Pure.

AdaEmbed (Lai et al., OSDI 2023, section 4.2): the cut-off is estimated from a sample, and a round begins when more than a share of the rows that are
kept has crossed it since the last round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainer.planning.row_groups import RowGroup
from transforms.arrays import Array

#: The chance that a share of a sample is further from that of all rows than the deviation.
_DOUBT = 0.01


def sample_rows(deviation: float) -> int:
    """The rows of a sample of which every share above a value is within ``deviation`` of that of all rows.

    By the inequality of Dvoretzky, Kiefer and Wolfowitz with Massart's constant, with a chance of 99 %.
    """
    return math.ceil(math.log(2 / _DOUBT) / (2 * deviation * deviation))


@dataclass(frozen=True, slots=True, eq=False)
class DrawnRows:
    """The rows of a table that a sample has.

    Attributes:
        rows: their numbers, int64 and ascending; in a large table one may be there several times.
        times: how often each was drawn, int64.
    """

    rows: Array
    times: Array


def draw_rows(draw: np.random.Generator, sizes: Sequence[int], count: int) -> list[DrawnRows]:
    """Draw ``count`` rows of tables with ``sizes`` rows, any row as often as it is drawn. Tables with fewer rows than that are counted row by row."""
    total, ends = sum(sizes), np.cumsum(np.array(sizes, np.int64))
    drawn = draw.integers(0, total, count)
    if total < count:
        times = np.bincount(drawn, minlength=total)
        rows = np.flatnonzero(times)
        times = times[rows]
    else:
        rows = np.sort(drawn)
        times = np.ones(count, np.int64)
    cuts = np.searchsorted(rows, ends[:-1])
    firsts = ends - np.array(sizes, np.int64)
    return [
        DrawnRows(own - first, often)
        for own, often, first in zip(np.split(rows, cuts), np.split(times, cuts), firsts.tolist(), strict=True)
    ]


def kept_rows(group: RowGroup, spare_share: float) -> int:
    """The rows of a group that have places after a round, at least one: all but a share, which rows get that are looked up afterwards."""
    return max(group.rows - int(group.rows * spare_share), 1)


def cut_off(importance: Array, kept: int) -> float:
    """The importance above which at most ``kept`` of the sampled rows lie, and with which more than those do; 0 where fewer rows have any."""
    if kept >= len(importance):
        return 0.0
    return float(np.partition(importance, len(importance) - kept - 1)[len(importance) - kept - 1])


def crossing_share(importance: Array, is_kept: Array, times: Array | None = None) -> float:
    """The share of a sample's rows with places that a round would have to replace; ``times``: how often each row was drawn, None: once.

    The cut-off lies where as many rows are above it as the sample has with places. Rows without a place that are above it have crossed upwards, those with a
    place below it downwards. Each row that has crossed upwards leaves a place to a row at the cut-off or below, so the two numbers differ only by rows of just
    this importance, which may be on either side. The larger number counts: a round makes at least so many changes.
    """
    times = np.ones(len(importance), np.int64) if times is None else times
    kept = int(times[is_kept].sum())
    if not kept:
        return 0.0
    least = np.float32(_cut_off_of_times(importance, times, kept))
    upwards = int(times[(importance > least) & ~is_kept].sum())
    downwards = int(times[(importance < least) & is_kept].sum())
    return max(upwards, downwards) / kept


def _cut_off_of_times(importance: Array, times: Array, kept: int) -> float:
    """As :func:`cut_off`, of rows that are in a sample several times."""
    drawn = int(times.sum())
    if drawn == len(times):
        return cut_off(importance, kept)
    if kept >= drawn:
        return 0.0
    order = np.argsort(importance)
    return float(importance[order[np.searchsorted(np.cumsum(times[order]), drawn - kept)]])
