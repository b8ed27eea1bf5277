"""A keeper: a small process that listens, and forks the process that answers again when it ends.

It loads the code and holds the listening socket: clients that connect meanwhile wait in the socket. So a child that is killed is replaced in
some milliseconds. A child that ends by an error that would repeat, such as memory of other bytes than were written, is not replaced.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NoReturn

from trainer.launch.role_signals import end_with_supervisor
from trainer.scheduling.holds import ErrorClass, classify, describe_error
from transforms.errors import HeadraceError

_LOG = logging.getLogger(__name__)
#: A child that lived for so long counts as started.
_STARTED_SECS = 1.0
#: Children that end sooner, one after the other, before the keeper gives up, and the wait after each of them.
_MOST_FAILURES, _WAIT_SECS = 20, 0.02
#: What a child adds to its exit status after an error that would repeat; other statuses are below.
_WOULD_REPEAT = 128
#: The signals that end a keeper.
_ENDS = (signal.SIGTERM, signal.SIGINT)


class Keeper:
    """Forks the process that answers, again and again until it is asked to end.

    ``answer``: makes the service of the socket, which answers inside its context; called in each child.
    """

    def __init__(
        self, listening: socket.socket, answer: Callable[[socket.socket], AbstractContextManager[object]]
    ) -> None:
        self._answer, self._listening = answer, listening
        self._child, self._is_ending = 0, False

    def run(self) -> int:
        """Until SIGTERM or SIGINT; returns an exit status."""
        for number in _ENDS:
            signal.signal(number, self._end)
        failures = 0
        while True:
            began = time.monotonic()
            with _signals_later():  # else one between the fork and its number would end no child
                if self._is_ending:
                    break
                self._child = os.fork()
                if not self._child:
                    self._serve()
            status = self._wait()
            if self._is_ending or status == 0:
                break
            if status >= _WOULD_REPEAT:
                _LOG.error("the process that answers would end by the same error again: it is not started again")
                return status - _WOULD_REPEAT
            failures = failures + 1 if time.monotonic() - began < _STARTED_SECS else 0
            _LOG.warning("the process that answers %s; the next one takes its place", describe_end(status))
            time.sleep(failures * _WAIT_SECS)
            if failures >= _MOST_FAILURES:
                _LOG.error(
                    "%s processes ended at once, one after the other; the last one %s", failures, describe_end(status)
                )
                return 1 if status < 0 else status
        return 0

    def _wait(self) -> int:
        """The status of the child that ended; a signal as a negative number."""
        while True:
            try:
                _, status = os.waitpid(self._child, 0)
            except InterruptedError:
                continue
            return os.waitstatus_to_exitcode(status)

    def _end(self, number: int, frame: object) -> None:
        self._is_ending = True
        if self._child:
            try:
                os.kill(self._child, signal.SIGTERM)
            except ProcessLookupError:
                _LOG.debug("the process that answers has ended already")

    def _serve(self) -> NoReturn:
        """Answer in this child process until SIGTERM."""
        status = 0
        try:
            signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the keeper's
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)
            end_with_supervisor(os.getppid())
            with self._answer(self._listening):
                while True:
                    signal.pause()
        except HeadraceError as error:
            _LOG.error("error: %s", error)
            is_repeated = classify(describe_error(error)) is ErrorClass.PERMANENT
            status = error.exit_status + (_WOULD_REPEAT if is_repeated else 0)
        except BaseException:
            _LOG.exception("the process that answers failed")
            status = 70
        finally:
            os._exit(status)


def describe_end(status: int) -> str:
    """How a process has ended, by its status; a signal is a negative number."""
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


@contextmanager
def _signals_later() -> Iterator[None]:
    """Signals that end a keeper come after the block."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)
