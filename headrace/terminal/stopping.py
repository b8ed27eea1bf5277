"""Being told to stop: what Ctrl-C does, SIGTERM does too."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

#: What a shell makes of a process that SIGTERM ended.
SIGTERM_STATUS = 128 + signal.SIGTERM


@contextmanager
def ended_by_signals(first: Callable[[], None] | None = None) -> Iterator[None]:
    """While this is entered, SIGTERM leaves through every ``finally`` as Ctrl-C does: leases are given back, remote jobs cancelled.

    The process ends with status 143, or 130 for Ctrl-C. ``first`` is called then in a thread of its own: it ends what would be
    waited for. Only the main thread can be told; elsewhere nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    steps = logging.getLogger("apache_beam.runners.common")

    def told(number: int, _: FrameType | None) -> None:
        steps.disabled = True  # it logs a trace of every step that does not reach its end
        if first is not None:  # not in this thread, which may hold any lock
            threading.Thread(target=first, name="told to stop", daemon=True).start()
        if number == signal.SIGTERM:
            sys.exit(SIGTERM_STATUS)
        raise KeyboardInterrupt

    # A shell lets what it starts in the background ignore Ctrl-C, which is meant for what runs in front.
    in_front = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    numbers = (signal.SIGTERM, signal.SIGINT) if in_front else (signal.SIGTERM,)
    before = {number: signal.signal(number, told) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        steps.disabled = False
