"""The look of every table on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from headrace.screens.printable import printable


def grid(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> Table:
    """A plain table. A column whose name ends in ``>`` is set to the right; one ending in ``*`` takes the free width."""
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        title=title or None,
        title_justify="left",
        title_style="bold",
    )
    for column in columns:
        # Names and numbers never wrap; only the column that carries prose does.
        table.add_column(
            column.rstrip(">*"),
            justify="right" if column.endswith(">") else "left",
            overflow="fold",
            no_wrap=not column.endswith("*"),
        )
    prose = [column.endswith("*") for column in columns]
    for row in rows:
        table.add_row(*(Text(printable(cell, lines=wraps)) for cell, wraps in zip(row, prose, strict=True)))
    return table


def facts(pairs: Iterable[tuple[str, str]], title: str = "") -> Table:
    """Name and value, one pair a line."""
    table = Table(
        box=None, show_header=False, title=title or None, title_justify="left", pad_edge=False, title_style="bold"
    )
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(Text(name), Text(value))
    return table
