"""Retries with exponential backoff: the number of attempts, the waits, and the loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from transforms.errors import InputError

_T = TypeVar("_T")
_LARGEST_EXPONENT = 60


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with jitter, within limits.

    Attributes:
        first_secs: The longest wait after the first failed attempt; it doubles with each further one.
        most_secs: The longest wait after any attempt.
        jitter: The share of a wait that is random. 0.5: between half of it and all of it.
        attempts: How many attempts are made, the first one included; None: any number.
        limit_secs: No attempt begins so long after the first one.
        shortens_last: Whether a wait that would pass the limit is shortened to end there; else it is not begun.
    """

    first_secs: float
    most_secs: float
    jitter: float = 0.5
    attempts: int | None = None
    limit_secs: float = math.inf
    shortens_last: bool = True

    def __post_init__(self) -> None:
        self._check("first_secs", self.first_secs, 0 <= self.first_secs <= self.most_secs, "from 0 to most_secs")
        self._check("jitter", self.jitter, 0 <= self.jitter <= 1, "from 0 to 1")
        self._check("attempts", self.attempts, self.attempts is None or self.attempts >= 1, "at least 1, or None")
        self._check("limit_secs", self.limit_secs, self.limit_secs >= 0, "at least 0")

    def _check(self, name: str, value: object, holds: bool, rule: str) -> None:
        if not holds:
            raise InputError(f"{name} must be {rule}", where=str(self), value=value)

    def wait_secs(self, failed: int, draw: float) -> float:
        """The wait after failed attempt number ``failed`` (from 1); ``draw`` is a random number in ``[0, 1)``."""
        longest = min(self.most_secs, self.first_secs * 2.0 ** min(failed - 1, _LARGEST_EXPONENT))
        return longest * (1 - self.jitter + self.jitter * draw)

    def next_wait_secs(self, failed: int, passed_secs: float, draw: float) -> float | None:
        """The wait after ``failed`` attempts, ``passed_secs`` after the first one began; None: no attempt is left."""
        left_secs = self.limit_secs - passed_secs
        if left_secs <= 0 or (self.attempts is not None and failed >= self.attempts):
            return None
        wait_secs = self.wait_secs(failed, draw)
        if wait_secs <= left_secs:
            return wait_secs
        return left_secs if self.shortens_last else None


#: For a transaction: it fails after 6 to 12 seconds of waits, time enough to restart a database server.
TRANSACTION_BACKOFF = Backoff(first_secs=0.05, most_secs=5.0, attempts=9)


def _ignore(_failed: int, _passed_secs: float, _error: Exception) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Retry:
    """Repeats an action while it raises a transient error.

    Attributes:
        backoff: How many attempts are made, and the waits between them.
        is_transient: Whether the same action may succeed later. Other errors are raised at once.
        sleep: Waits a number of seconds.
        draw: Returns a random number in ``[0, 1)``.
        clock: Returns monotonic seconds, for the backoff's limit; None: only the waits count, not the attempts.
        on_retry: Called before each wait with the number of failed attempts, the seconds passed and the last error.
    """

    backoff: Backoff
    is_transient: Callable[[Exception], bool]
    sleep: Callable[[float], None]
    draw: Callable[[], float]
    clock: Callable[[], float] | None = None
    on_retry: Callable[[int, float, Exception], None] = _ignore

    def call(self, action: Callable[[], _T]) -> _T:
        """What ``action`` returns; raises the error of the last attempt when no attempt is left."""
        start_secs = self.clock() if self.clock else 0.0
        waited_secs, failed = 0.0, 0
        while True:
            try:
                return action()
            except Exception as error:
                if not self.is_transient(error):
                    raise
                failed += 1
                passed_secs = self.clock() - start_secs if self.clock else waited_secs
                wait_secs = self.backoff.next_wait_secs(failed, passed_secs, self.draw())
                if wait_secs is None:
                    raise
                self.on_retry(failed, passed_secs, error)
            self.sleep(wait_secs)
            waited_secs += wait_secs
