"""Screen of ``headrace stats lookups``."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType

from headrace.screens.shown import Shown
from headrace.terminal.grid import grid
from headrace.terminal.units import count_text, many, percent_text
from trainer.planning.lookup_tail import FEW_LOOKUPS, TAIL_LOOKUPS, LookupTail, PruningOutlook


@dataclass(frozen=True, slots=True, repr=False)
class LookupsScreen(Shown):
    """How often the rows of a model's tables are looked up.

    Attributes:
        model, version: the model.
        events: that were read.
        tables: in the order of the model's inputs.
        outlook: what pruning would find; None: no row of a table that is not hashed occurs.
    """

    model: str
    version: int
    events: int
    tables: tuple[LookupTail, ...]
    outlook: PruningOutlook | None

    def render(self) -> RenderableType:
        """One line a table, the meaning of the columns, and whether pruning pays."""
        titles = ("table", "rows>", "occur>", "lookups>", "median>", "rows of 90 %>", "rows of 99 %>", "once>", f"at most {FEW_LOOKUPS}>")  # fmt: skip
        lines = (
            (one.name, "no limit" if one.rows is None else count_text(one.rows), count_text(one.seen_rows), count_text(one.lookups),
             count_text(one.median_lookups), _share(one.rows_of_90, one), _share(one.rows_of_99, one), _share(one.once_rows, one),
             _share(one.few_rows, one))
            for one in self.tables
        )  # fmt: skip
        return Group(
            f"{self.model}@{self.version}: {many(self.events, 'event')} of the log, nothing was trained",
            "",
            grid(titles, lines),
            "",
            "median: half of the rows that occur are looked up so often or less",
            "rows of 90 %, 99 %: the fewest that have so many of the lookups, as a share of the rows that occur",
            f"once, at most {FEW_LOOKUPS}: rows that are looked up so often, as a share of the rows that occur",
            *([] if self.outlook is None else [outlook_text(self.outlook)]),
        )


def outlook_text(outlook: PruningOutlook) -> str:
    """Whether pruning pays, with the figures that say so."""
    weights = percent_text(outlook.tail_weights)
    if outlook.pays:
        return (
            f"pruning pays: {weights} of the weights that occur are of rows that are looked up at most {FEW_LOOKUPS} times, and have "
            f'{percent_text(outlook.tail_lookups)} of the lookups; the others fit "pruning": {{"budget": {_up(outlook.budget):g}}}'
        )
    times = many(outlook.median_lookups, "time")
    if outlook.median_lookups <= FEW_LOOKUPS:
        return (
            f"this log says little about pruning: half of the rows that occur are looked up at most {times}, and yet the rarest ones, with "
            f"{percent_text(outlook.tail_lookups)} of the lookups, have {weights} of the weights only; next: count a longer range"
        )
    return (
        f"pruning costs: half of the rows that occur are looked up {times} or more, and learn; only {weights} of the weights are of rows that are "
        f"looked up at most {FEW_LOOKUPS} times and have at most {percent_text(TAIL_LOOKUPS)} of the lookups"
    )


def _up(budget: float) -> float:
    """A budget with two digits, never less than it is, and one that is allowed."""
    scale = 100.0
    while budget * scale < 10.0 and scale < 1e9:
        scale *= 10.0
    return min(max(-(-budget * scale // 1) / scale, 1 / scale), 1.0)


def _share(rows: int, table: LookupTail) -> str:
    return percent_text(rows / table.seen_rows) if table.seen_rows else "-"
