"""How the processes of roles meet the signals of their system, and the end of their supervisor."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

#: The exit status of a role that leaves a job which goes on, so that a cluster starts it again.
LEFT_STATUS = 75
_PR_SET_PDEATHSIG = 1
_LOOK_SECS = 1.0


def on_termination(act: Callable[[], None]) -> None:
    """Call ``act`` in a thread at the first SIGTERM; a further one ends the process. SIGINT is left to the supervisor."""

    def handle(number: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        threading.Thread(target=act, name="sigterm", daemon=True).start()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def end_with_supervisor(supervisor: int) -> None:
    """End this process when the process ``supervisor``, its parent, is gone: by the kernel where it can, else by looking."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        threading.Thread(target=_watch, args=(supervisor,), name="supervisor", daemon=True).start()
    if os.getppid() != supervisor:
        os._exit(1)


def _watch(supervisor: int) -> None:
    while os.getppid() == supervisor:
        threading.Event().wait(_LOOK_SECS)
    os._exit(1)
