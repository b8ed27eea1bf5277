"""The screen of ``headrace towers``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType

from headrace.screens.json_fields import fields_of
from headrace.screens.shown import Shown
from headrace.terminal.grid import grid
from headrace.terminal.units import bytes_text, count_text, many
from trainer.planning.towers.agreement import Agreement
from trainer.planning.towers.tower_document import towers_fingerprint
from trainer.planning.towers.tower_plan import TowerPlan
from trainer.planning.towers.tower_report import TowerRow, report_towers

_SHOWN_TOWERS = 64


@dataclass(frozen=True, slots=True, repr=False)
class TowersScreen(Shown):
    """Towers of features.

    Attributes:
        file: empty if they are in none.
        fingerprint: their identity.
        strategy, balance, seed: how they were made.
        features: their number.
        towers: each tower.
        imbalance: the largest tower by the mean, of the quantity that is balanced.
        source: where the interactions come from; empty: they are not known.
        sampled_events: of the interactions; 0 without.
        inside, between: the mean interaction of two features of one tower, and of two towers; None without any.
        plane_error: the root of the mean squared error of distances in the plane; None without points.
        agreement: of the two trainings that the interactions come from; None of one training, or without interactions.
    """

    file: str
    fingerprint: str
    strategy: str
    balance: str
    seed: int
    features: int
    towers: tuple[TowerRow, ...]
    imbalance: float
    source: str
    sampled_events: int
    inside: float | None
    between: float | None
    plane_error: float | None
    agreement: Agreement | None

    def json_fields(self) -> dict[str, Any]:
        """The fields, and whether the log says which features interact."""
        found = None if self.agreement is None else {**fields_of(self.agreement), "is_found": self.agreement.is_found}
        return {**fields_of(self), "agreement": found}

    def render(self) -> RenderableType:
        """How the features interact, and the towers."""
        rows = (
            (str(one.number), str(len(one.features)), bytes_text(one.table_bytes), bytes_text(one.event_bytes),
             _mean_text(one.inside), _mean_text(one.between), ", ".join(one.features))
            for one in self.towers[:_SHOWN_TOWERS]
        )  # fmt: skip
        titles = ("tower>", "features>", "bytes>", "looked up an event>", "interaction inside>", "between>", "names*")
        more = len(self.towers) - _SHOWN_TOWERS
        head = f"{many(len(self.towers), 'tower')} of {many(self.features, 'feature')}, {self.strategy}, balanced by {self.balance}"
        return Group(
            f"{head}: the largest has {self.imbalance:.3f} of the mean" + (f": {self.file}" if self.file else ""),
            *self._interactions(),
            "",
            grid(titles, rows),
            *([f"… and {many(more, 'more tower')}: --json lists all"] if more > 0 else []),
        )

    def _interactions(self) -> list[str]:
        if not self.source:
            return ["interactions of features are not known: strided towers do not need them"]
        lines = [
            f"interactions over {count_text(self.sampled_events)} events: inside towers {_mean_text(self.inside)}, between {_mean_text(self.between)}",
            f"by {self.source}",
            self._agreement(),
        ]
        if self.plane_error is not None:
            lines.append(
                f"distances in the plane differ from those wanted by {self.plane_error:.3f} (root mean square)"
            )
        return lines

    def _agreement(self) -> str:
        if self.agreement is None:
            return "by one training: whether another one would find them is not known; without --run-dir two are trained and compared"
        found = f"the two trainings agree by r = {self.agreement.correlation:.2f} (chance {self.agreement.chance:.3f}); unrelated features have {self.agreement.floor:.3f}"
        if self.agreement.is_found:
            return found
        return f"{found}: no more than by chance, so these towers are no better than others of equal size; --strategy strided makes such towers at no cost"


def _mean_text(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def towers_screen(file: str, plan: TowerPlan) -> TowersScreen:
    """The screen of towers."""
    report = report_towers(plan)
    return TowersScreen(
        file=file,
        fingerprint=towers_fingerprint(plan),
        strategy=plan.strategy,
        balance=plan.balance,
        seed=plan.seed,
        features=len(plan.features),
        towers=report.towers,
        imbalance=plan.imbalance,
        source=plan.source,
        sampled_events=0 if plan.interactions is None else plan.interactions.events,
        inside=report.inside,
        between=report.between,
        plane_error=plan.plane_error if plan.points else None,
        agreement=plan.agreement,
    )
