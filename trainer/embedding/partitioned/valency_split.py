"""How many ids of a bag are deduplicated before the exchange, from statistics. Pure.

Most bags are short and a few are long. A program of fixed shapes has places for the same number of ids of every bag: the dense part,
which is deduplicated and pooled densely. The ids beyond it, the long tail, go without deduplication. A large dense part wastes places
on short bags; a small one moves rows more than once. The split moves the fewest values: one for a place of the dense part, used or not,
and for each id of the tail one and, in proportion to the duplicates among the ids, a row and its gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from trainer.embedding.spec import FeatureSpec
from trainer.planning.valencies import VALENCY_BOUNDS


class Valencies(Protocol):
    """What is known of a feature's bags: the counts of an engine, or :class:`~trainer.planning.feature_statistics.FeatureStatistics`."""

    @property
    def ids(self) -> float:
        """Ids in all batches."""

    @property
    def distinct_rows(self) -> float:
        """The sum over batches of distinct rows."""

    @property
    def longest_bag(self) -> int:
        """The most ids of an event."""

    @property
    def bags_by_valency(self) -> Sequence[float]:
        """Bags of each class of :data:`VALENCY_BOUNDS`."""

    @property
    def ids_by_valency(self) -> Sequence[float]:
        """The ids of these bags."""


def dense_ids_of(features: Sequence[FeatureSpec], known: Mapping[str, Valencies]) -> dict[str, int]:
    """For each feature the size of the dense part, ids of a bag; features of which no ids are known are left out."""
    found = ((one, known.get(one.name)) for one in features)
    return {one.name: _dense_ids(one.table.dim, bags) for one, bags in found if bags is not None and bags.ids}


def tail_ids(counts: Valencies, dense_ids: int) -> float:
    """The ids beyond ``dense_ids`` of their bags, for a power of 2: exact, since it bounds a class of valencies."""
    beyond = [k for k, bound in enumerate(VALENCY_BOUNDS) if bound > dense_ids]
    return sum(counts.ids_by_valency[k] - dense_ids * counts.bags_by_valency[k] for k in beyond)


def tail_id_values(dim: int, counts: Valencies) -> float:
    """The values that an id of the tail moves, beyond what its row would move once in the dense part."""
    duplicates = max(1 - counts.distinct_rows / counts.ids, 0.0)
    return 1 + 2 * dim * duplicates


def _dense_ids(dim: int, counts: Valencies) -> int:
    bags, tail_values = sum(counts.bags_by_valency), tail_id_values(dim, counts)

    def values(dense_ids: int) -> float:
        return bags * dense_ids + tail_values * tail_ids(counts, dense_ids)

    choices = [bound for bound in VALENCY_BOUNDS[1:] if bound < 2 * counts.longest_bag]
    return min(min(choices, key=values), counts.longest_bag)
