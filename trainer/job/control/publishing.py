"""The publication of commits: one at a time, in a thread, repeated until its outcome is certain."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from trainer.errors import CommitConflict, LeaseLost
from trainer.scheduling.events import CommitFailed, Event, Published
from trainer.scheduling.holds import describe_error
from trainer.scheduling.orders import Publish
from transforms.errors import DataError, HeadraceError, InputError, NotFound
from transforms.metrics.instruments import Histogram
from transforms.tracing.spans import span
from warehouse.scheduling.backoff import Backoff

_LOG = logging.getLogger(__name__)
_BACKOFF = Backoff(first_secs=0.5, most_secs=30.0, jitter=0.0)


class NotPublished(HeadraceError):
    """A commit is certainly not published, and this order will not publish it."""

    exit_status = 6


class CommitPublisher(Protocol):
    """Publishes commits atomically."""

    def publish(self, order: Publish) -> None:
        """Publish the commit of an attempt, durably. A repetition after a success has no effect.

        Raises :class:`DataError`, :class:`InputError`, :class:`NotFound`, :class:`CommitConflict` or :class:`NotPublished` only if the
        commit is certainly not published: a part is damaged or missing, or another commit has its place. After any other error the
        same order is repeated, since the commit may be published.
        """


#: Errors after which a commit is certainly not published.
_CERTAIN = (NotPublished, CommitConflict, DataError, InputError, NotFound)


class Publishing:
    """A thread that publishes.

    Args:
        publisher: of the job's checkpoints.
        check_lease: raises :class:`LeaseLost`; called before each attempt.
        report: receives :class:`Published` or :class:`CommitFailed`, whose times the controller sets.
        end: called with an error that ends the controller.
        times: of publications that succeed.
        on_point: called between steps, by tests that end the process there.
    """

    def __init__(
        self,
        publisher: CommitPublisher,
        *,
        check_lease: Callable[[], None],
        report: Callable[[Event], None],
        end: Callable[[Exception], None],
        backoff: Backoff = _BACKOFF,
        times: Histogram | None = None,
        on_point: Callable[[str], None] = lambda point: None,
    ) -> None:
        self._publisher, self._check_lease = publisher, check_lease
        self._report, self._end, self._backoff, self._on_point = report, end, backoff, on_point
        self._times = Histogram() if times is None else times
        self._changed = threading.Condition()
        self._order: Publish | None = None
        self._is_ending = False
        self.problem = ""
        self._thread = threading.Thread(target=self._run, name="publishing", daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """Whether an order is not followed yet."""
        return self._order is not None

    def begin(self, order: Publish) -> None:
        """Publish. An order that is being followed is not begun again."""
        with self._changed:
            if self._order is None:
                self._order = order
                self._changed.notify_all()

    def close(self, timeout_secs: float = 1.0) -> None:
        """End the thread after its current attempt; it is not waited for longer than ``timeout_secs``."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
        self._thread.join(timeout_secs)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._order is not None or self._is_ending)
                order = self._order
            if order is None or self._is_ending:
                return
            outcome = self._outcome(order)
            with self._changed:
                self._order = None
            if outcome is not None:
                self._report(outcome)

    def _outcome(self, order: Publish) -> Event | None:
        """Published, or failed with certainty; None if the controller ends before that is known."""
        failed = 0
        while True:
            try:
                self._check_lease()
                self._on_point("before publish")
                with self._times.timed(), span("publish", attempt=order.attempt):
                    self._publisher.publish(order)
                self._on_point("after publish")
            except LeaseLost as error:
                self._end(error)
                return None
            except Exception as error:
                if isinstance(error, _CERTAIN):
                    self.problem = ""
                    _LOG.error("the commit of attempt %d is not published: %s", order.attempt, error)
                    return CommitFailed(0.0, order.attempt, describe_error(error))
                failed += 1
                self.problem = f"the commit of attempt {order.attempt} is published again: {_first_line(error)}"
                _LOG.warning("%s", self.problem)
            else:
                self.problem = ""
                return Published(0.0, order.attempt)
            if self._wait(self._backoff.wait_secs(failed, 1.0)):
                return None

    def _wait(self, secs: float) -> bool:
        """Wait between attempts; whether the controller ends."""
        end = time.monotonic() + secs
        with self._changed:
            return self._changed.wait_for(lambda: self._is_ending, max(0.0, end - time.monotonic()))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
