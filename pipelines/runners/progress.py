"""What a caller sees while a job runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Called with how many are done, how many there are, and what is being done.
OnProgress = Callable[[int, int, str], None]

_POLL_SECS = 0.2


@contextmanager
def report_progress(
    step: str, count_done: Callable[[], int], total: int, progress: OnProgress | None
) -> Iterator[None]:
    """Report ``progress(count_done(), total, step)`` a few times a second while the block runs, and once at its end.

    Workers may run anywhere; what they share with the caller is storage, so progress is counted there.
    """
    if progress is None:
        yield
        return
    stop = threading.Event()

    def report() -> None:
        while not stop.wait(_POLL_SECS):
            progress(count_done(), total, step)

    thread = threading.Thread(target=report, name=f"progress of {step}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    progress(count_done(), total, step)
