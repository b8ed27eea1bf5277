"""The columns of a progress bar, from rich, whose import takes longer than a small command."""

from __future__ import annotations

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text


def columns_of(unit: str) -> tuple[ProgressColumn, ...]:
    """What is done, the bar, the count of ``unit``, and the times."""
    return (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        _CountColumn(),
        TextColumn(unit, markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )


class _CountColumn(MofNCompleteColumn):
    """The count and the total, once the total is known."""

    def render(self, task: Task) -> Text:
        """The count, or nothing."""
        return Text("") if task.total is None else super().render(task)
