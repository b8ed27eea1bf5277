"""Being told to stop: what Ctrl-C does, SIGTERM does too."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: What a shell makes of a process that SIGTERM ended.
SIGTERM_STATUS = 128 + signal.SIGTERM


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """While this is entered, SIGTERM leaves through every ``finally``: leases are given back, remote jobs cancelled.

    The process ends with status 143. Only the main thread can be told; elsewhere nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(SIGTERM_STATUS))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
