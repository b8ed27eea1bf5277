"""The screen of ``headrace plan hot``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType

from headrace.screens.shown import Shown
from headrace.terminal.grid import grid
from headrace.terminal.units import bytes_text, count_text, many, percent_range_text, percent_text
from trainer.planning.hot_shares import HotShare, served_shares
from trainer.tables.hot_figures import HotFigures

_SHOWN_TABLES = 40
_MEANING = (
    "A range is what the best choice of so many rows serves: a sample does not show all rows that are looked up. "
    "997 of 1,000 samples keep to it; training on more batches, or a larger statistics_share, narrows it."
)


@dataclass(frozen=True, slots=True)
class HotTableRow:
    """The hot rows of a table, and the least and the most share of its lookups that they serve."""

    name: str
    rows: int
    hot_rows: int
    hot_bytes: int
    ids_per_event: float
    served_share: float
    most_served_share: float
    statistics: str


@dataclass(frozen=True, slots=True, repr=False)
class HotRowsScreen(Shown):
    """The hot rows of all tables within ``budget_bytes``, and the least and the most share of all lookups that they serve."""

    budget_bytes: int
    hot_bytes: int
    all_bytes: int
    served_share: float
    most_served_share: float
    tables: tuple[HotTableRow, ...]

    def render(self) -> RenderableType:
        """What all hot rows serve, and the tables."""
        rows = (
            (one.name, count_text(one.rows), count_text(one.hot_rows), percent_text(one.hot_rows / one.rows), bytes_text(one.hot_bytes),
             f"{one.ids_per_event:.4g}", percent_range_text(one.served_share, one.most_served_share), one.statistics)
            for one in self.tables[:_SHOWN_TABLES]
        )  # fmt: skip
        titles = (
            "table",
            "rows>",
            "hot rows>",
            "of its rows>",
            "bytes>",
            "ids an event>",
            "lookups served>",
            "statistics*",
        )
        more = len(self.tables) - _SHOWN_TABLES
        rest = [f"… and {many(more, 'more table')}: --json lists all"] if more > 0 else []
        return Group(
            f"hot rows of {many(len(self.tables), 'table')}: {bytes_text(self.hot_bytes)} of {bytes_text(self.budget_bytes)}; "
            f"all rows take {bytes_text(self.all_bytes)}",
            f"they serve {percent_range_text(self.served_share, self.most_served_share)} of the lookups while popularity is that of the statistics",
            "",
            grid(titles, rows),
            *rest,
            *([_MEANING] if self.served_share < self.most_served_share else []),
        )


def shared_out_text(shares: Sequence[HotShare], *, are_assumed: bool) -> str:
    """What ``headrace train`` says of hot rows that it has shared out among tables; ``are_assumed``: without any statistics."""
    rows, size = sum(one.hot_rows for one in shares), sum(one.hot_bytes for one in shares)
    what = f"hot rows: {count_text(rows)} of {count_text(sum(one.rows for one in shares))} rows, {bytes_text(size)}, in this process"
    if are_assumed:
        return f"{what}; no input has statistics yet, so tables share them as if all their rows were alike"
    return f"{what}; the best rows serve {percent_range_text(*served_shares(shares))} of the lookups by the statistics of inputs"


def hot_row_lines(figures: HotFigures) -> list[str]:
    """What hot rows have done in a run."""
    lines = [
        f"{percent_text(figures.hit_share)} of {many(figures.lookups, 'lookup')} were of hot rows, at most {count_text(figures.rows)} "
        f"({bytes_text(figures.memory_bytes)}); {count_text(figures.rows_in)} became hot, {count_text(figures.rows_out)} were written back",
        f"{bytes_text(figures.wire_bytes)} to and from servers, about {figures.wire_ratio:.2f}x of what all rows on servers take",
    ]
    if figures.wire_ratio >= 1 and figures.lookups:
        lines.append("hot rows have spared nothing: give them more memory, or leave hot_rows out")
    return lines


def hot_rows_screen(
    shares: Sequence[HotShare], sources: Mapping[str, str], budget_bytes: int, all_bytes: int
) -> HotRowsScreen:
    """The screen of the hot rows of all tables; ``sources``: where the statistics of each table come from."""
    return HotRowsScreen(
        budget_bytes,
        sum(one.hot_bytes for one in shares),
        all_bytes,
        *served_shares(shares),
        tuple(
            HotTableRow(
                one.name,
                one.rows,
                one.hot_rows,
                one.hot_bytes,
                one.ids_per_event,
                one.served_share,
                one.most_served_share,
                sources.get(one.name, ""),
            )
            for one in shares
        ),
    )
