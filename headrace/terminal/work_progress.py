"""A worker's progress on standard error: a bar on a terminal, else a line every 30 seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.terminal.output import say
from headrace.terminal.parent import Progress, parent_of
from headrace.terminal.units import bytes_text, count_text, many, secs_text

if TYPE_CHECKING:
    from pipelines.worker.progress import WorkProgress

#: The time between two lines without a terminal.
_LINE_SECS = 30.0


@contextmanager
def work_progress(clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[WorkProgress], None]]:
    """A function that shows a worker's progress. ``clock``: monotonic seconds."""
    if (parent := parent_of.get()) is not None:
        yield lambda done: parent.progress(
            Progress(f"memoizing: {progress_text(done)}", done.tasks_done, _total(done), "memos")
        )
        return
    if not sys.stderr.isatty():
        yield _lines(clock)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True, markup=False, soft_wrap=True)

    with Bars(
        TextColumn("memoizing"), BarColumn(), TextColumn("{task.description}", markup=False), console=console
    ) as bar:
        task = bar.add_task("", total=None)

        def show(done: WorkProgress) -> None:
            bar.update(task, completed=done.tasks_done, total=_total(done), description=progress_text(done))

        yield show


def _total(done: WorkProgress) -> int:
    return max(done.tasks_total, done.tasks_done + done.waits_for)


def _lines(clock: Callable[[], float]) -> Callable[[WorkProgress], None]:
    shown_at = [clock()]

    def show(done: WorkProgress) -> None:
        if clock() - shown_at[0] >= _LINE_SECS:
            shown_at[0] = clock()
            say(f"memoizing: {progress_text(done)}")

    return show


def progress_text(done: WorkProgress) -> str:
    """``12/40 memos, 3 fragments, 1,200 rows, 2.0 MiB read, about 8.0 s left``."""
    text = (
        f"{count_text(done.tasks_done)}/{count_text(done.tasks_total)} memos, {many(done.fragments, 'fragment')}, "
        f"{many(done.rows, 'row')}, {bytes_text(done.raw_bytes)} read"
    )
    if done.waits_for:
        return f"{text}; waiting for {many(done.waits_for, 'memo')} leased by other workers or delayed after a failure"
    return text if done.left_secs is None else f"{text}, about {secs_text(done.left_secs)} left"
