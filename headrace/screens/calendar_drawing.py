"""Partitions as SVG: a row a day with a cell an hour, or a row a week with a cell a day. Deterministic text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from html import escape

from headrace.terminal.printable import printable

_CELL, _LEFT, _TOP, _LEGEND = 24, 88, 26, 34
_LEGEND_WIDTH = _LEFT + 400
#: The most rows: the newest ones are drawn.
MOST_ROWS = 62
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_STYLE = (
    "text{fill:#1a2230;font:12px system-ui,sans-serif}.cell{fill:#f3d7c6;stroke:#fff}.full{fill:#2f6fb3}.none{fill:#eceff4;stroke:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#e6eaf1}.cell{fill:#6b3d26;stroke:#14181f}.full{fill:#6aa9e9}.none{fill:#232b37;stroke:#14181f}}"
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One partition.

    Attributes:
        start: Its first second, in UTC.
        share: The share that is there, from 0 to 1: the part of the cell that is filled.
        title: What it is.
    """

    start: datetime
    share: float
    title: str


def calendar_svg(cells: Sequence[Cell], full: str, empty: str) -> str:
    """The cells as a calendar; ``full`` and ``empty`` name the two colours. Cells of one hour, or day, lie over each other: the emptiest is seen."""
    is_daily = all(one.start.astimezone(UTC).timetz().replace(tzinfo=None) == datetime.min.time() for one in cells)
    placed: dict[tuple[date, int], Cell] = {}
    for one in cells:
        place = _place(one.start.astimezone(UTC), is_daily=is_daily)
        if place not in placed or one.share < placed[place].share:
            placed[place] = one
    rows = _rows(sorted({row for row, _ in placed}), timedelta(days=7 if is_daily else 1))
    columns = 7 if is_daily else 24
    width, height = max(_LEFT + columns * _CELL + 8, _LEGEND_WIDTH), _TOP + len(rows) * _CELL + _LEGEND
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>{escape(full)} and {escape(empty)} by partition</title>",
        f"<style>{_STYLE}</style>",
    ]
    for column in range(columns):
        name = _DAYS[column] if is_daily else f"{column:02d}"
        if is_daily or column % 3 == 0:
            parts.append(f'<text x="{_LEFT + (column + 0.5) * _CELL:.0f}" y="{_TOP - 8}" text-anchor="middle">{name}</text>')  # fmt: skip
    for k, row in enumerate(rows):
        y = _TOP + k * _CELL
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 16}" text-anchor="end">{row:%Y-%m-%d}</text>')
        for column in range(columns):
            parts += _drawn(placed.get((row, column)), _LEFT + column * _CELL, y)
    y = _TOP + len(rows) * _CELL + 12
    for x, style, name in ((_LEFT, "full", full), (_LEFT + 150, "cell", empty), (_LEFT + 300, "none", "no partition")):
        parts.append(f'<rect class="{style}" x="{x}" y="{y}" width="14" height="14"/>')
        parts.append(f'<text x="{x + 20}" y="{y + 11}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"])


def _place(start: datetime, *, is_daily: bool) -> tuple[date, int]:
    """The row and the column of a time."""
    day = start.date()
    if is_daily:
        return day - timedelta(days=day.weekday()), day.weekday()
    return day, start.hour


def _rows(known: Sequence[date], apart: timedelta) -> list[date]:
    """The newest rows without gaps; at most :data:`MOST_ROWS`."""
    if not known:
        return []
    count = min((known[-1] - known[0]) // apart + 1, MOST_ROWS)
    return [known[-1] - apart * (count - 1 - k) for k in range(count)]


def _drawn(cell: Cell | None, x: int, y: int) -> list[str]:
    inner = _CELL - 1
    if cell is None:
        return [f'<rect class="none" x="{x}" y="{y}" width="{inner}" height="{inner}"/>']
    title = f"<title>{escape(printable(cell.title))}</title>"
    filled = inner * min(max(cell.share, 0.0), 1.0)
    return [
        f'<g>{title}<rect class="cell" x="{x}" y="{y}" width="{inner}" height="{inner}"/>'
        f'<rect class="full" x="{x}" y="{y + inner - filled:.1f}" width="{inner}" height="{filled:.1f}"/></g>'
    ]
