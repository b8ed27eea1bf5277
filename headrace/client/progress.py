"""Shows the progress of a command: in a notebook as a bar, on a terminal as the command itself does, elsewhere not at all."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from headrace.terminal.parent import Progress

#: The shortest time between two updates of a notebook's bar.
_LEAST_SECS = 0.25

Show = Callable[[Progress], None]


@contextmanager
def shown_progress(*, is_shown: bool) -> Iterator[Show]:
    """A function that shows progress until the block ends."""
    if not is_shown:
        yield _nothing
    elif _is_notebook():
        with _notebook_bar() as show:
            yield show
    elif sys.stderr.isatty():
        with _terminal_bar() as show:
            yield show
    else:
        yield _nothing


def _nothing(now: Progress) -> None:
    del now


def _is_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which shows what IPython displays."""
    found = sys.modules.get("IPython")
    shell = None if found is None else found.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def _notebook_bar(clock: Callable[[], float] = time.monotonic) -> Iterator[Show]:
    from IPython.display import HTML, display

    handle: Any = None
    updated_at = -_LEAST_SECS
    last: Progress | None = None

    def update(now: Progress) -> None:
        nonlocal handle
        if handle is None:
            handle = display(HTML(bar_html(now)), display_id=True)
        else:
            handle.update(HTML(bar_html(now)))

    def show(now: Progress) -> None:
        nonlocal updated_at, last
        last = now
        if clock() - updated_at >= _LEAST_SECS:
            updated_at = clock()
            update(now)

    try:
        yield show
    finally:
        if last is not None:
            update(last)


def bar_html(now: Progress) -> str:
    """Progress as HTML, escaped."""
    value = f' value="{now.done}" max="{now.total}"' if now.total > 0 else ""
    count = f"{now.done:,} of {now.total:,}" if now.total > 0 else f"{now.done:,}"
    what = html.escape(now.what)
    return f"<div><progress{value}></progress> {what}: {count} {html.escape(now.unit)}</div>"


@contextmanager
def _terminal_bar() -> Iterator[Show]:
    from headrace.terminal.progress import Report, progress_bar

    unit: str | None = None
    report: Report = _nothing

    with ExitStack() as bar:

        def show(now: Progress) -> None:
            nonlocal unit, report
            if now.unit != unit:
                bar.close()  # a terminal shows one bar at a time
                unit, report = now.unit, bar.enter_context(progress_bar(now.what, now.unit))
            report(now.done, now.total, now.what)

        yield show
