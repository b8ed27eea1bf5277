"""How many ids of a bag are deduplicated before the exchange, from statistics. Pure.

Most bags are short and a few are long. A program of fixed shapes has places for the same number of ids of every bag: the dense part,
which is deduplicated and pooled densely. The ids beyond it, the long tail, go without deduplication. A large dense part wastes places
on short bags; a small one sends rows twice.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainer.embedding.feature_counts import VALENCY_BOUNDS, FeatureCounts
from trainer.errors import ConfigError

#: What an id of the tail costs, in places of the dense part: its row crosses to the core and its gradient back, duplicates included.
TAIL_COST = 4.0


def dense_ids_of(counts: Mapping[str, FeatureCounts], *, tail_cost: float = TAIL_COST) -> dict[str, int]:
    """For each feature the size of the dense part, ids of a bag, of least cost; features without ids are left out.

    Raises :class:`ConfigError` for a cost that is not above 0.
    """
    if not 0 < tail_cost < float("inf"):
        raise ConfigError("tail_cost must be a finite number > 0", value=tail_cost, allowed="> 0")
    return {name: _dense_ids(one, tail_cost) for name, one in counts.items() if one.ids}


def tail_ids(counts: FeatureCounts, dense_ids: int) -> int:
    """The ids beyond ``dense_ids`` of their bags, for a power of 2: exact, since it bounds a class of valencies."""
    beyond = [k for k, bound in enumerate(VALENCY_BOUNDS) if bound > dense_ids]
    return sum(counts.ids_by_valency[k] - dense_ids * counts.bags_by_valency[k] for k in beyond)


def _dense_ids(counts: FeatureCounts, tail_cost: float) -> int:
    bags = sum(counts.bags_by_valency)
    choices = [bound for bound in VALENCY_BOUNDS[1:] if bound < 2 * counts.longest_bag]

    def cost(dense_ids: int) -> float:
        return bags * dense_ids + tail_cost * tail_ids(counts, dense_ids)

    return min(min(choices, key=cost), counts.longest_bag)
