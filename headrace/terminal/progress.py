"""Progress bars on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

Report = Callable[..., None]


class _CountColumn(MofNCompleteColumn):
    """The count and the total, once the total is known."""

    def render(self, task: Task) -> Text:
        """The count, or nothing."""
        return Text("") if task.total is None else super().render(task)


@contextmanager
def progress_bar(what: str, unit: str) -> Iterator[Report]:
    """A bar of (done, total). Without a terminal it is one line at the end; without work it is nothing."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        _CountColumn(),
        TextColumn(unit, markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True, markup=False)) as progress:
        task = progress.add_task(what, total=None)

        def report(done: int, total: int, current: str = "") -> None:
            progress.update(task, completed=done, total=total)

        try:
            yield report
        finally:
            if not progress.tasks[0].total:
                progress.remove_task(task)
