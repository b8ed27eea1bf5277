"""Progress bars on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.terminal.logs import log_settings, write_line
from headrace.terminal.parent import Parent, Progress, parent_of

Report = Callable[..., None]
#: The time between two lines of a command whose lines are JSON.
_LINE_SECS = 30.0


@contextmanager
def progress_bar(what: str, unit: str, clock: Callable[[], float] = time.monotonic) -> Iterator[Report]:
    """A bar of (done, total), and what is being done now. Without a terminal it is one line at the end; without work it is nothing.

    Of a command whose lines are JSON it is a line now and then, and of a quiet one nothing. ``clock``: monotonic seconds.
    """
    if (parent := parent_of.get()) is not None:
        yield _sent_to(parent, what, unit)
        return
    if log_settings().is_json or log_settings().is_quiet:
        yield _lines(what, unit, clock)
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


def _lines(what: str, unit: str, clock: Callable[[], float]) -> Report:
    shown_at = clock()

    def report(done: int, total: int, current: str = "") -> None:
        nonlocal shown_at
        if clock() - shown_at >= _LINE_SECS:
            shown_at = clock()
            write_line(f"{current or what}: {done:,} of {total:,} {unit}")

    return report


def _sent_to(parent: Parent, what: str, unit: str) -> Report:
    def report(done: int, total: int, current: str = "") -> None:
        parent.progress(Progress(current or what, done, total, unit))

    return report
