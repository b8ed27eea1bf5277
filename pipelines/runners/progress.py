"""The progress of a running job, for its caller."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Called with the number done, the total, and the name of the step.
OnProgress = Callable[[int, int, str], None]

_POLL_SECS = 0.2


@contextmanager
def report_progress(
    step: str, count_done: Callable[[], int], total: int, progress: OnProgress | None
) -> Iterator[None]:
    """Call ``progress(count_done(), total, step)`` a few times per second while the block runs, and once at its end.

    Workers on other machines share only the storage with the caller, so ``count_done`` counts there.
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
