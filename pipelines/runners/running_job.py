"""A job that one thread waits for and another may end."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apache_beam.runners.runner import PipelineResult

_LOG = logging.getLogger(__name__)


class RunningJob:
    """One job of a runner, before and after its submission. Thread-safe.

    A runner on other machines continues a job whose client ended, so a client that stops waiting cancels it. A job in this
    process cannot be cancelled: its steps check :attr:`end_requested`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._result: PipelineResult | None = None
        self._why: BaseException | None = None

    @property
    def end_requested(self) -> bool:
        """Whether :meth:`end` was called."""
        with self._lock:
            return self._why is not None

    def record_start(self, result: PipelineResult) -> None:
        """Record that the runner accepted the job; cancel it if its end was requested before."""
        with self._lock:
            self._result = result
            why = self._why
        if why is not None:
            _cancel(result, why)

    def end(self, why: BaseException) -> None:
        """Cancel the job, now or when it starts. If that fails, ``why`` gets a note."""
        with self._lock:
            self._why = why
            result = self._result
        if result is not None:
            _cancel(result, why)


class JobEnded(Exception):
    """The end of this step's job was requested."""


def _cancel(result: PipelineResult, why: BaseException) -> None:
    from apache_beam.runners.runner import PipelineState

    try:
        if not PipelineState.is_terminal(result.state):
            _LOG.warning("cancelling the job: %s", type(why).__name__)
            result.cancel()
    except Exception as error:
        why.add_note(f"the job may still run: it could not be cancelled: {error}")
        _LOG.warning("the job may still run: it could not be cancelled: %s", error)
