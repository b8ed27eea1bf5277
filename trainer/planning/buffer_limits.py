"""Limits of request buffers from the statistics of features. Pure.

Rows of a table are spread cyclically over partitions, and a batch's events evenly. A partition asks every other one for the rows that its
events need, in a buffer of fixed size: for each stack of tables a number of ids, distinct pairs of an event and an id, and a number of
distinct rows. Both are sums of independent parts, by event and by row; Bernstein's inequality bounds them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from trainer.errors import ConfigError
from trainer.planning.feature_statistics import FeatureStatistics
from trainer.planning.valencies import VALENCY_BOUNDS

#: The chance that any buffer of a batch is too small, if batches are like the sample.
OVERFLOW: Final = 1e-6
#: By how much batches may have more ids than the sample: popularity drifts, and a sample is not exact.
SPARE: Final = 1.25
_PADDING: Final = 8


@dataclass(frozen=True, slots=True)
class BufferLimits:
    """What one partition may ask another one for in a batch: ids, and distinct rows."""

    ids: int
    rows: int


def limits_of(
    stacks: Mapping[str, Sequence[FeatureStatistics]], batch_events: int, partitions: int
) -> dict[str, BufferLimits]:
    """The limits of each stack, whose features are given by their statistics.

    ``batch_events``: events of a batch on all partitions. Raises :class:`ConfigError` for options out of range.
    """
    if batch_events < 1 or partitions < 1:
        raise ConfigError(
            "batch_events and partitions must be in range", value=(batch_events, partitions), allowed=">= 1"
        )
    buffers = 2 * partitions * partitions * max(len(stacks), 1)
    log_chance = math.log(buffers / OVERFLOW)
    events = math.ceil(batch_events / partitions)
    return {name: _limits(features, events, partitions, log_chance) for name, features in stacks.items()}


def _limits(features: Sequence[FeatureStatistics], events: int, partitions: int, log_chance: float) -> BufferLimits:
    """The limits of one stack, for a partition with so many events."""
    busiest = [_busiest_share(one, partitions) for one in features]
    means = [SPARE * events * one.mean_valency * share for one, share in zip(features, busiest, strict=True)]
    variance = math.fsum(
        SPARE * events * _second_moment(one, share) for one, share in zip(features, busiest, strict=True)
    )
    longest = float(max((one.longest_bag for one in features), default=0))
    most_ids = math.fsum(float(events * one.longest_bag) for one in features)
    ids = min(_bernstein(math.fsum(means), variance, longest, log_chance), most_ids)
    distinct = math.fsum(_distinct(one, _most_ids(one, events, log_chance), partitions) for one in features)
    stored = math.fsum(float(math.ceil(one.frequencies.rows / partitions)) for one in features)
    rows = min(_bernstein(distinct, distinct, 1.0, log_chance), ids, stored)
    return BufferLimits(_padded(ids), _padded(rows))


def _busiest_share(one: FeatureStatistics, partitions: int) -> float:
    """The share of the ids that the partition with the most of them has."""
    own = [0.0] * partitions
    for row, share in one.frequencies.head:
        own[row % partitions] += share
    rest = max(1.0 - math.fsum(own), 0.0)
    return min(max(own) + rest / partitions, 1.0)


def _second_moment(one: FeatureStatistics, share: float) -> float:
    """An upper bound of the mean square of the ids that an event has for a partition with this share."""
    squares = math.fsum(ids * bound for ids, bound in zip(one.ids_by_valency, VALENCY_BOUNDS, strict=True))
    return (one.mean_valency * share + squares / one.events * share * share) if one.events else 0.0


def _most_ids(one: FeatureStatistics, events: int, log_chance: float) -> float:
    """The ids of so many events, exceeded with the chance only."""
    found = _bernstein(
        SPARE * events * one.mean_valency,
        SPARE * events * _second_moment(one, 1.0),
        float(one.longest_bag),
        log_chance,
    )
    return min(found, float(events * one.longest_bag))


def _distinct(one: FeatureStatistics, ids: float, partitions: int) -> float:
    """The expected distinct rows among so many ids on the partition that has the most."""
    own = [0.0] * partitions
    for row, share in one.frequencies.head:
        own[row % partitions] += -math.expm1(ids * math.log1p(-min(share, 1.0 - 1e-12)))
    rest = max(one.frequencies.distinct(ids) - math.fsum(own), 0.0)
    return max(own) + rest / partitions


def _bernstein(mean: float, variance: float, largest: float, log_chance: float) -> float:
    """What a sum of independent parts, each at most ``largest``, exceeds with a chance of exp(-``log_chance``) at most."""
    third = largest * log_chance / 3.0
    return mean + third + math.sqrt(third * third + 2.0 * variance * log_chance)


def _padded(count: float) -> int:
    return max(math.ceil(count / _PADDING), 1) * _PADDING
