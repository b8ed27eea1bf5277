"""Which feature is in which tower. A tower is a group of features whose tables are on one host, or on equally many hosts. Immutable; no I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Final

from trainer.errors import ConfigError
from trainer.options.towers import check_members, check_towers
from trainer.planning.towers.agreement import Agreement
from trainer.planning.towers.interactions import Interactions
from trainer.planning.towers.plane import STRATEGIES, STRIDED
from transforms.derived_documents import whole
from transforms.errors import listed

#: What towers have about equally much of: features, bytes of tables, or bytes that events look up.
BALANCES: Final = ("features", "bytes", "load")
MOST_TOWERS: Final = 4096
#: The most bytes of a table. The vocabulary of a hashed table may be larger, of which the options of training say how much is kept.
MOST_TABLE_BYTES: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class TowerFeature:
    """A feature as towers take it.

    Attributes:
        name: the feature.
        table: its table; features with one table are in one tower.
        table_bytes: of the table with its slots; of a hashed one, of as many rows as it may have.
        event_bytes: of the rows that an event looks up, in the mean.
    """

    name: str
    table: str
    table_bytes: Annotated[int, whole(most=MOST_TABLE_BYTES)]
    event_bytes: float

    def __post_init__(self) -> None:
        if not self.name or not self.table:
            raise ConfigError('a feature of a tower needs "name" and "table"', value=(self.name, self.table))
        if self.table_bytes < 0 or not (math.isfinite(self.event_bytes) and self.event_bytes >= 0):
            raise ConfigError("the bytes of a feature must be finite numbers", where=f"feature {self.name}",
                              value=(self.table_bytes, self.event_bytes), allowed=">= 0")  # fmt: skip


@dataclass(frozen=True, slots=True)
class TowerPlan:
    """A partition of a model's features into towers. Raises :class:`ConfigError` for members that make no partition.

    Attributes:
        features: all features, in the model's order.
        towers: the features of each tower by name, in the model's order.
        strategy: one of :data:`~trainer.planning.towers.plane.STRATEGIES`.
        balance: one of :data:`BALANCES`.
        seed: of the points and groups.
        source: where the interactions come from, in words; empty: there are none.
        interactions: of all features in their order; None if they are not known, which only ``strided`` allows.
        points: the place of each feature in the plane; empty if there are no interactions.
        plane_error: the root of the mean squared error of the points' distances.
        agreement: of the two trainings whose mean interactions these are; None of a single training.
        largest: the most that a tower may have of what is balanced, by the mean, where groups were free to be as near as possible.
    """

    features: tuple[TowerFeature, ...]
    towers: tuple[tuple[str, ...], ...]
    strategy: str
    balance: str
    seed: int = 0
    source: str = ""
    interactions: Interactions | None = None
    points: tuple[tuple[float, float], ...] = ()
    plane_error: float = 0.0
    agreement: Agreement | None = None
    largest: float = 1.0

    def __post_init__(self) -> None:
        names = [one.name for one in self.features]
        if len(set(names)) != len(names):
            raise ConfigError("the features of towers must be distinct", value=listed(sorted({one for one in names if names.count(one) > 1})))  # fmt: skip
        check_tower_count(len(self.towers), len(names))
        check_towers(self.towers)
        check_members({one.name: one.table for one in self.features}, self.towers)
        self._check_order(names)
        if self.strategy not in STRATEGIES:
            raise ConfigError(
                "a strategy of towers must be known", value=self.strategy[:80], allowed=", ".join(STRATEGIES)
            )
        if self.balance not in BALANCES:
            raise ConfigError(
                "towers must be balanced by a known quantity", value=self.balance[:80], allowed=", ".join(BALANCES)
            )
        if self.interactions is None and self.strategy != STRIDED:
            raise ConfigError("this strategy needs interactions", where=f"strategy {self.strategy}", value="none")
        if self.interactions is not None and list(self.interactions.features) != names:
            raise ConfigError("interactions must list the features of the towers, in their order",
                              value=listed(self.interactions.features), allowed=listed(names))  # fmt: skip
        if len(self.points) != (0 if self.interactions is None else len(names)):
            raise ConfigError("towers with interactions must have a point for each feature", value=len(self.points))
        if self.agreement is not None and self.interactions is None:
            raise ConfigError("an agreement must be one of interactions", where="agreement", value="no interactions")
        if not 1 <= self.largest < math.inf:
            raise ConfigError("the largest tower must be at least the mean", where="largest", value=self.largest, allowed=">= 1")  # fmt: skip
        if not all(math.isfinite(value) for point in self.points for value in point) or not self.plane_error >= 0:
            raise ConfigError("points of features must be finite", value=self.points[:4])

    def _check_order(self, names: Sequence[str]) -> None:
        order = {name: place for place, name in enumerate(names)}
        for number, tower in enumerate(self.towers):
            if any(order[one] > order[other] for one, other in pairwise(tower)):
                raise ConfigError(
                    "the features of a tower must be in the model's order", where=f"tower {number}", value=listed(tower)
                )

    def tower_of(self) -> dict[str, int]:
        """The number of each feature's tower."""
        return {name: number for number, tower in enumerate(self.towers) for name in tower}

    def weights(self) -> tuple[float, ...]:
        """What each tower has of the quantity that is balanced."""
        of_feature = feature_weights(self.features, self.balance)
        return tuple(math.fsum(of_feature[name] for name in tower) for tower in self.towers)

    @property
    def imbalance(self) -> float:
        """The largest of :meth:`weights` by their mean; 1 is perfect."""
        found = self.weights()
        total = math.fsum(found)
        return max(found) * len(found) / total if total else 1.0


def feature_weights(features: Sequence[TowerFeature], balance: str) -> dict[str, float]:
    """What each feature has of a quantity of :data:`BALANCES`; the bytes of a table count with its first feature."""
    if balance == "features":
        return {one.name: 1.0 for one in features}
    if balance == "load":
        return {one.name: one.event_bytes for one in features}
    first = {one.table: one.name for one in reversed(features)}
    return {one.name: float(one.table_bytes) if first[one.table] == one.name else 0.0 for one in features}


def check_tower_count(towers: int, most: int, *, of: str = "features", where: str = "towers") -> None:
    """Raises :class:`ConfigError` for fewer towers than one and for more than the ``most`` features, or other things ``of`` which each has one."""
    if not 1 <= towers <= min(most, MOST_TOWERS):
        raise ConfigError(f"the number of towers must be at least 1 and at most that of the {of}", where=where, value=towers,
                          allowed=f"1 to {min(most, MOST_TOWERS)}")  # fmt: skip


def check_hosts(towers: int, hosts: int, *, where: str = "hosts") -> int:
    """The hosts of each tower. Raises :class:`ConfigError` for more towers than hosts, and for hosts that cannot be divided equally."""
    if hosts < 1 or towers > hosts or hosts % towers:
        raise ConfigError("the number of hosts must be a multiple of the number of towers", where=where, value=hosts,
                          allowed=f"{towers}, {2 * towers}, {3 * towers}, …", next_step="make other towers: headrace towers make --towers")  # fmt: skip
    return hosts // towers
