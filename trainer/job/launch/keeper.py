"""A keeper: a small process that listens, and forks the process that answers again when it ends.

It loads the code and holds the listening socket: clients that connect meanwhile wait in the socket. So a child that is killed is replaced in
some milliseconds, also while it drains: SIGTERM lets the clients commit first (:mod:`trainer.servers.drain`). SIGINT, and a second SIGTERM,
end both at once. A child that ends by an error that would repeat, such as memory of other bytes than were written, is not replaced.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NoReturn, Protocol, Self

from trainer.job.launch.role_signals import end_with_supervisor
from trainer.scheduling.holds import ErrorClass, classify, describe_error
from trainer.servers.drain import Drain
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


#: Between looks of a child whether its drain is over, and how long its running requests may take then.
_LOOK_SECS, _FINISH_SECS = 0.1, 5.0
_REASON = "SIGTERM"


class Answering(Protocol):
    """What answers on the socket inside its context; :class:`~trainer.servers.service.ServerService` is one."""

    def finish(self, secs: float) -> None:
        """Begin no more requests, and wait for those that run, at most so long."""

    def __enter__(self) -> Self:
        """It answers from its construction on."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Answer no more."""


class Keeper:
    """Forks the process that answers, again and again until it is asked to end.

    Args:
        listening: the socket.
        answer: makes the service of the socket, which follows the drain; called in each child.
        drain_secs: after SIGTERM, how long clients may take to commit.
        waits: see :class:`~trainer.servers.drain.Drain`.
    """

    def __init__(
        self,
        listening: socket.socket,
        answer: Callable[[socket.socket, Drain], Answering],
        *,
        drain_secs: float,
        waits: bool = True,
    ) -> None:
        self._answer, self._listening = answer, listening
        self._drain_secs, self._waits, self._process = drain_secs, waits, secrets.randbits(53)
        self._child, self._ends_now = 0, False
        self._until_secs: float | None = None  # the end of the drain

    def run(self) -> int:
        """Until SIGTERM or SIGINT; returns an exit status."""
        for number in _ENDS:
            signal.signal(number, self._end)
        failures = 0
        while True:
            began = time.monotonic()
            with _signals_later():  # else one between the fork and its number would end no child
                if self._is_over():
                    break
                self._child = os.fork()
                if not self._child:
                    self._serve()
            status = self._wait()
            if status == 0 or self._is_over():
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

    def _is_over(self) -> bool:
        """Whether no child is to answer any more."""
        return self._ends_now or (self._until_secs is not None and time.monotonic() >= self._until_secs)

    def _wait(self) -> int:
        """The status of the child that ended; a signal as a negative number."""
        while True:
            try:
                _, status = os.waitpid(self._child, 0)
            except InterruptedError:
                continue
            return os.waitstatus_to_exitcode(status)

    def _end(self, number: int, frame: object) -> None:
        if number == signal.SIGTERM and self._until_secs is None:
            self._until_secs = time.monotonic() + self._drain_secs
        else:
            self._ends_now = True
        if self._child:
            try:
                os.kill(self._child, number)
            except ProcessLookupError:
                _LOG.debug("the process that answers has ended already")

    def _serve(self) -> NoReturn:
        """Answer in this child process, in whose threads signals are blocked, until its drain is over."""
        status = 0
        try:
            end_with_supervisor(os.getppid())
            drain = Drain(self._process, waits=self._waits)
            with self._answer(self._listening, drain) as service:
                if self._until_secs is not None:  # the child before was killed
                    drain.begin(_REASON, self._until_secs - time.monotonic(), is_resumed=True)
                if self._wait_for_end(drain):
                    service.finish(_FINISH_SECS)
        except HeadraceError as error:
            _LOG.error("error: %s", error)
            is_repeated = classify(describe_error(error)) is ErrorClass.PERMANENT
            status = error.exit_status + (_WOULD_REPEAT if is_repeated else 0)
        except BaseException:
            _LOG.exception("the process that answers failed")
            status = 70
        finally:
            os._exit(status)

    def _wait_for_end(self, drain: Drain) -> bool:
        """Wait until the child is to end; whether running requests are answered first."""
        while not (why := drain.end):
            found = signal.sigtimedwait(_ENDS, _LOOK_SECS)
            if found is None:
                continue
            if found.si_signo == signal.SIGINT or drain.is_begun:
                return False
            _LOG.info("SIGTERM: clients have up to %g s to commit; new ones are refused", self._drain_secs)
            drain.begin(_REASON, self._drain_secs)
        _LOG.info("the server ends: %s", why)
        return True


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
