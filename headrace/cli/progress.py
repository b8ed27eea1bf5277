"""Progress on standard error, so that standard output stays what was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Report = Callable[..., None]


@contextmanager
def progress_bar(what: str, unit: str) -> Iterator[Report]:
    """A bar that is told (done, total, what is being worked on). Without a terminal it is one line when the work ends."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit, markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True, markup=False)) as progress:
        task = progress.add_task(what, total=None)

        def report(done: int, total: int, current: str = "") -> None:
            progress.update(task, completed=done, total=total)

        yield report
