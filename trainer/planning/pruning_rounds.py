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


def cut_off(importance: Array, kept_share: float) -> float:
    """The importance above which so large a share of the sampled rows lies; 0 where fewer rows have any."""
    kept = math.floor(kept_share * len(importance))
    if kept >= len(importance):
        return 0.0
    return float(np.partition(importance, len(importance) - kept - 1)[len(importance) - kept - 1])


def crossing_share(importance: Array, is_kept: Array, kept_share: float) -> float:
    """The share of the rows that may be kept that are pruned, and are above the cut-off."""
    if not len(importance) or kept_share <= 0:
        return 0.0
    crossed = (importance > cut_off(importance, kept_share)) & ~is_kept
    return float(crossed.mean()) / kept_share
