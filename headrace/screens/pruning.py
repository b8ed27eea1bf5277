"""The screen of ``headrace prune report``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rich.console import Group, RenderableType

from headrace.screens.shown import Shown
from headrace.terminal.grid import grid
from headrace.terminal.units import count_text, many, percent_text
from trainer.planning.kept_importance import KeptImportance, total_share

_SHOWN_TABLES = 40


@dataclass(frozen=True, slots=True, repr=False)
class PruningScreen(Shown):
    """What the budget of a pruned run has bought.

    Attributes:
        run: its folder.
        epochs, steps: of its newest checkpoint.
        rounds: rounds of pruning until then.
        budget: the share of the weights that there is memory for.
        tables: for each table the share of importance that its kept rows have.
        unpruned_share: the share of the weights that occurs, if all of it is kept; None: rows were pruned.
        drawing: the file of the curves; empty: none was asked for.
    """

    run: str
    epochs: int
    steps: int
    rounds: int
    budget: float
    tables: tuple[KeptImportance, ...]
    unpruned_share: float | None = None
    drawing: str = ""

    def render(self) -> RenderableType:
        """The budget, the tables, and what the columns mean."""
        rows = (
            (one.name, count_text(one.rows), count_text(one.seen_rows), count_text(one.kept_rows), percent_text(one.kept_rows / max(one.seen_rows, 1)),
             percent_text(one.importance_share), count_text(one.rows_for_most))
            for one in self.tables[:_SHOWN_TABLES]
        )  # fmt: skip
        titles = ("table", "rows>", "seen>", "kept>", "of seen>", "importance kept>", "rows of 90 %>")
        more = len(self.tables) - _SHOWN_TABLES
        rest = [f"… and {many(more, 'more table')}: --json lists all"] if more > 0 else []
        drawn = [f"curves: {self.drawing}"] if self.drawing else []
        return Group(
            f"{self.run}, after {many(self.epochs, 'epoch')}: {many(self.rounds, 'round')} of pruning in {many(self.steps, 'step')}",
            f"memory for {percent_text(self.budget)} of the weights, {percent_text(total_share(self.tables))} are kept; what is free takes new rows",
            *([] if self.unpruned_share is None else [nothing_pruned_text(self.unpruned_share)]),
            "",
            grid(titles, rows),
            *rest,
            *drawn,
            "",
            "seen: rows that events have looked up; rows of 90 %: the fewest that have 90 % of the importance of all seen ones",
        )


def nothing_pruned_text(unpruned_share: float) -> str:
    """That a budget is above what occurs; ``unpruned_share``: the share of the weights that does."""
    return (
        f"nothing was pruned: the rows that occur have {percent_text(unpruned_share)} of the weights, which the budget has space for; "
        f"next: give a pruning.budget below {_rounded_down(unpruned_share):g}"
    )


def _rounded_down(share: float) -> float:
    """A share with three digits, never more than it is."""
    scale = 10.0 ** (2 - math.floor(math.log10(share))) if share > 0.0 else 1.0
    return math.floor(share * scale) / scale
