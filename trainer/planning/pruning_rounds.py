"""When a round of pruning begins, from a sample of the importance of rows. Pure.

AdaEmbed (Lai et al., OSDI 2023, section 4.2): the cut-off is estimated from a sample, and a round begins when more than a share of the rows that are
kept has crossed it since the last round.
"""

from __future__ import annotations

import math

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


def kept_rows(group: RowGroup, spare_share: float) -> int:
    """The rows of a group that have places after a round, at least one: all but a share, which rows get that are looked up afterwards."""
    return max(group.rows - int(group.rows * spare_share), 1)


def cut_off(importance: Array, kept: int) -> float:
    """The importance above which at most ``kept`` of the sampled rows lie, and with which more than those do; 0 where fewer rows have any."""
    if kept >= len(importance):
        return 0.0
    return float(np.partition(importance, len(importance) - kept - 1)[len(importance) - kept - 1])


def crossing_share(importance: Array, is_kept: Array) -> float:
    """The share of a sample's rows with places that a round would have to replace.

    The cut-off lies where as many rows are above it as the sample has with places. Rows without a place that are above it have crossed upwards, those with a
    place below it downwards. Each row that has crossed upwards leaves a place to a row at the cut-off or below, so the two numbers differ only by rows of just
    this importance, which may be on either side. The larger number counts: a round makes at least so many changes.
    """
    kept = int(np.count_nonzero(is_kept))
    if not kept:
        return 0.0
    least = np.float32(cut_off(importance, kept))
    upwards = np.count_nonzero((importance > least) & ~is_kept)
    downwards = np.count_nonzero((importance < least) & is_kept)
    return max(upwards, downwards) / kept
