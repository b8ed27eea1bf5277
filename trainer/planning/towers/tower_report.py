"""What each tower has: features, bytes, and how its features interact inside the tower and with other towers. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trainer.planning.towers.tower_plan import TowerPlan, feature_weights


@dataclass(frozen=True, slots=True)
class TowerRow:
    """A tower.

    Attributes:
        number: from 0.
        features: by name.
        table_bytes: of its tables with their slots.
        event_bytes: of the rows that an event looks up.
        inside: the mean interaction of two of its features; None without interactions, or of a single feature.
        between: the mean interaction of one of its features with one of another tower; None without any.
    """

    number: int
    features: tuple[str, ...]
    table_bytes: int
    event_bytes: float
    inside: float | None
    between: float | None


@dataclass(frozen=True, slots=True)
class TowerReport:
    """All towers, and the mean interactions of all pairs of features in one tower, and in two."""

    towers: tuple[TowerRow, ...]
    inside: float | None
    between: float | None


def report_towers(plan: TowerPlan) -> TowerReport:
    """The report of towers."""
    tables, loads = feature_weights(plan.features, "bytes"), feature_weights(plan.features, "load")
    tower_of = plan.tower_of()
    owners = np.array([tower_of[one.name] for one in plan.features])
    together = (owners[:, None] == owners[None, :]) & ~np.eye(len(owners), dtype=bool)
    apart = owners[:, None] != owners[None, :]
    rows = []
    for number, names in enumerate(plan.towers):
        ours = (owners == number)[:, None]
        rows.append(
            TowerRow(
                number,
                names,
                round(math.fsum(tables[name] for name in names)),
                math.fsum(loads[name] for name in names),
                _mean(plan, together & ours),
                _mean(plan, apart & ours),
            )
        )
    return TowerReport(tuple(rows), _mean(plan, together), _mean(plan, apart))


def _mean(plan: TowerPlan, pairs: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> float | None:
    if plan.interactions is None or not pairs.any():
        return None
    return float(plan.interactions.matrix()[pairs].mean())
