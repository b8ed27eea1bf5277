"""Signal handling: SIGTERM like Ctrl-C."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from headrace.terminal.output import say, say_error
from transforms.errors import HeadraceError

#: The exit status of a process that SIGTERM ended.
SIGTERM_STATUS = 128 + signal.SIGTERM


@contextmanager
def ended_by_signals(first: Callable[[], None] | None = None) -> Iterator[None]:
    """Within the block, SIGTERM unwinds the stack like Ctrl-C: leases are released, remote jobs cancelled.

    The process exits with status 143, or 130 for Ctrl-C. On a signal ``first`` runs in a thread of its own, to end whatever
    the main thread waits for: an error that this causes, and that reaches the main thread first, ends the process as the signal does.
    In other threads than the main one the block changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    steps = logging.getLogger("apache_beam.runners.common")
    received: list[int] = []

    def end(number: int) -> NoReturn:
        if number == signal.SIGTERM:
            sys.exit(SIGTERM_STATUS)
        raise KeyboardInterrupt

    def stop(number: int, _: FrameType | None) -> None:
        received.append(number)
        steps.disabled = True  # it logs a trace of every interrupted step
        if first is not None:  # not in this thread, which may hold any lock
            threading.Thread(target=first, name="stop", daemon=True).start()
        end(number)

    # A shell makes its background processes ignore Ctrl-C, which is meant for the foreground.
    in_foreground = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    numbers = (signal.SIGTERM, signal.SIGINT) if in_foreground else (signal.SIGTERM,)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    except Exception as error:
        if not received:
            raise
        logging.getLogger(__name__).info("after a signal: %s: %s", type(error).__name__, error)
        end(received[-1])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        steps.disabled = False


@contextmanager
def interrupt_is_request(said: str) -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed within the block; ``said`` is printed at the first time, and the second time interrupts as ever.

    In other threads than the main one, and in a background process of a shell, the block changes nothing.
    """
    asked: list[int] = []
    in_foreground = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or not in_foreground:
        yield lambda: False
        return

    def ask(number: int, _: FrameType | None) -> None:
        asked.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        say(said)

    signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def end_process(error: HeadraceError) -> NoReturn:
    """End this process with an error, from whichever thread, whatever the others wait for."""
    say_error(f"error: {error}")
    logging.shutdown()
    os._exit(error.exit_status)
