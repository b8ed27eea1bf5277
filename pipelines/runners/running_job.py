"""A job that is waited for in one thread and may be ended from another."""

from __future__ import annotations

import logging
import threading

from apache_beam.runners.runner import PipelineResult, PipelineState

_LOG = logging.getLogger(__name__)


class RunningJob:
    """One job of a runner's, before it is submitted and after. Thread-safe.

    A runner on other machines goes on with a job whose client is gone; so whoever stops waiting ends it first. One in this
    process cannot be cancelled: its steps look at :attr:`end_requested`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._result: PipelineResult | None = None
        self._why: BaseException | None = None

    @property
    def end_requested(self) -> bool:
        """Whether somebody asked for its end."""
        with self._lock:
            return self._why is not None

    def began(self, result: PipelineResult) -> None:
        """The runner took the job; it is ended at once if it was to be ended meanwhile."""
        with self._lock:
            self._result = result
            why = self._why
        if why is not None:
            _cancel(result, why)

    def end(self, why: BaseException) -> None:
        """Ask whoever runs the job to end it, now or when it begins. If that fails, ``why`` says so in a note."""
        with self._lock:
            self._why = why
            result = self._result
        if result is not None:
            _cancel(result, why)


class JobEnded(Exception):
    """Somebody asked for the end of the job that this is a part of."""


def _cancel(result: PipelineResult, why: BaseException) -> None:
    try:
        if not PipelineState.is_terminal(result.state):
            _LOG.warning("cancelling the job: %s", type(why).__name__)
            result.cancel()
    except Exception as error:
        why.add_note(f"the job may go on: it could not be cancelled: {error}")
        _LOG.warning("the job may go on: it could not be cancelled: %s", error)
