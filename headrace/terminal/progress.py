"""Progress bars on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.terminal.parent import Parent, Progress, parent_of

Report = Callable[..., None]


@contextmanager
def progress_bar(what: str, unit: str) -> Iterator[Report]:
    """A bar of (done, total), and what is being done now. Without a terminal it is one line at the end; without work it is nothing."""
    if (parent := parent_of.get()) is not None:
        yield _sent_to(parent, what, unit)
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    from headrace.terminal.progress_columns import columns_of

    with Bars(*columns_of(unit), console=Console(stderr=True, markup=False)) as progress:
        task = progress.add_task(what, total=None)

        def report(done: int, total: int, current: str = "") -> None:
            progress.update(task, completed=done, total=total, description=current or what)

        try:
            yield report
        finally:
            if not progress.tasks[0].total:
                progress.remove_task(task)


def _sent_to(parent: Parent, what: str, unit: str) -> Report:
    def report(done: int, total: int, current: str = "") -> None:
        parent.progress(Progress(current or what, done, total, unit))

    return report
