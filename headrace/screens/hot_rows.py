"""The screen of ``headrace plan hot``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType

from headrace.terminal.grid import grid
from headrace.terminal.units import bytes_text, count_text, many, percent_text
from trainer.planning.hot_shares import HotShare, served_share

_SHOWN_TABLES = 40


@dataclass(frozen=True, slots=True)
class HotTableRow:
    """The hot rows of a table, and the share of its lookups that they serve."""

    name: str
    rows: int
    hot_rows: int
    hot_bytes: int
    ids_per_event: float
    served_share: float
    statistics: str


@dataclass(frozen=True, slots=True)
class HotRowsScreen:
    """The hot rows of all tables within ``budget_bytes``."""

    budget_bytes: int
    hot_bytes: int
    all_bytes: int
    served_share: float
    tables: tuple[HotTableRow, ...]

    def render(self) -> RenderableType:
        """What all hot rows serve, and the tables."""
        rows = (
            (one.name, count_text(one.rows), count_text(one.hot_rows), percent_text(one.hot_rows / one.rows), bytes_text(one.hot_bytes),
             f"{one.ids_per_event:.4g}", percent_text(one.served_share), one.statistics)
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
            f"they serve {percent_text(self.served_share)} of the lookups while popularity is that of the statistics",
            "",
            grid(titles, rows),
            *rest,
        )  # fmt: skip


def hot_rows_screen(
    shares: Sequence[HotShare], sources: Mapping[str, str], budget_bytes: int, all_bytes: int
) -> HotRowsScreen:
    """The screen of the hot rows of all tables; ``sources``: where the statistics of each table come from."""
    return HotRowsScreen(
        budget_bytes,
        sum(one.hot_bytes for one in shares),
        all_bytes,
        served_share(shares),
        tuple(
            HotTableRow(
                one.name,
                one.rows,
                one.hot_rows,
                one.hot_bytes,
                one.ids_per_event,
                one.served_share,
                sources.get(one.name, ""),
            )
            for one in shares
        ),
    )
