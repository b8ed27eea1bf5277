"""Divides features into towers: by how they interact, balanced, or simply in turns. Pure and deterministic.

Luo et al., "Disaggregated Multi-Tower" (MLSys 2024), the tower partitioner, and the naive strided assignment that it is compared with there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainer.errors import ConfigError
from trainer.planning.towers.agreement import Agreement
from trainer.planning.towers.balanced_groups import balanced_groups
from trainer.planning.towers.interactions import Interactions
from trainer.planning.towers.plane import STRIDED, PlanePoints, distances_of, embed
from trainer.planning.towers.tower_plan import BALANCES, TowerFeature, TowerPlan, check_tower_count, feature_weights


def make_towers(
    features: Sequence[TowerFeature],
    towers: int,
    *,
    strategy: str,
    balance: str = "features",
    seed: int = 0,
    interactions: Interactions | None = None,
    source: str = "",
    agreement: Agreement | None = None,
    largest: float = 1.0,
) -> TowerPlan:
    """Towers of ``features``; features that share a table stay together. Equal input gives equal towers.

    Args:
        features: all features, in the model's order.
        towers: their number.
        strategy: ``diverse``, ``coherent`` or ``strided``; the first two need ``interactions``.
        balance: what towers get about equally much of; numbers of features differ by at most one, if no table is shared.
        seed: of the points and groups.
        interactions: of all features in their order.
        source: where they come from, in words.
        agreement: of the two trainings that they come from; None for one.
        largest: the most that a tower may have of what is balanced, by the mean; 1: all have equally much. Strided towers are not asked.

    Raises:
        ConfigError: for more towers than tables, an unknown strategy or quantity, and interactions that are missing or of other features.
    """
    tables = list(dict.fromkeys(one.table for one in features))
    check_tower_count(towers, len(tables), of="tables" if len(tables) < len(features) else "features")
    if balance not in BALANCES:
        raise ConfigError(
            "towers must be balanced by a known quantity", value=balance[:80], allowed=", ".join(BALANCES)
        )
    if strategy != STRIDED and interactions is None:
        raise ConfigError("this strategy needs interactions", where=f"strategy {strategy}", value="none",
                          next_step="give a trained run, or take the strategy strided")  # fmt: skip
    plane = _plane(interactions, strategy, seed)
    if strategy == STRIDED:
        group = {table: number % towers for number, table in enumerate(tables)}
    else:
        assert plane is not None
        group = _groups(features, tables, towers, balance, seed, plane, largest)
    return TowerPlan(
        features=tuple(features),
        towers=tuple(tuple(one.name for one in features if group[one.table] == number) for number in range(towers)),
        strategy=strategy,
        balance=balance,
        seed=seed,
        source=source,
        interactions=interactions,
        points=() if plane is None else plane.points,
        plane_error=0.0 if plane is None else plane.error,
        agreement=agreement,
        largest=largest,
    )


def _plane(interactions: Interactions | None, strategy: str, seed: int) -> PlanePoints | None:
    """The points of a strategy; strided towers are drawn where coherent ones would be, if interactions are known."""
    if interactions is None:
        return None
    return embed(distances_of(interactions, "coherent" if strategy == STRIDED else strategy), seed=seed)


def _groups(
    features: Sequence[TowerFeature],
    tables: Sequence[str],
    towers: int,
    balance: str,
    seed: int,
    plane: PlanePoints,
    largest: float,
) -> dict[str, int]:
    """The tower of each table, in the order in which towers are first used. The point of a table is the mean of its features' points."""
    at, weights = plane.array(), feature_weights(features, balance)
    members = [[place for place, one in enumerate(features) if one.table == table] for table in tables]
    points = np.stack([at[places].mean(axis=0) for places in members])
    of_table = np.array([sum(weights[features[place].name] for place in places) for places in members])
    labels = balanced_groups(points, of_table, towers, seed=seed, largest=largest).tolist()
    number = {label: place for place, label in enumerate(dict.fromkeys(labels))}
    return {table: number[label] for table, label in zip(tables, labels, strict=True)}
