"""Trying again what failed for a passing reason: exponential backoff with jitter, within a limit."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from transforms.errors import InputError

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how patiently.

    Before attempt ``n + 2`` a random time of up to ``first_wait_secs * 2**n`` is waited, at most ``longest_wait_secs``.
    ``attempts`` counts the first one. No attempt begins after ``limit_secs``.
    """

    attempts: int = 10
    first_wait_secs: float = 0.5
    longest_wait_secs: float = 30.0
    limit_secs: float = 120.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or not 0 <= self.first_wait_secs <= self.longest_wait_secs or not self.limit_secs >= 0:
            raise InputError("not a retry policy", value=self,
                             allowed="attempts >= 1, 0 <= first_wait_secs <= longest_wait_secs, limit_secs >= 0")  # fmt: skip

    def wait_secs(self, failed: int, drawn: float) -> float:
        """The wait after ``failed`` attempts; ``drawn`` is a random number in [0, 1)."""
        return drawn * min(self.longest_wait_secs, self.first_wait_secs * 2.0 ** min(failed - 1, 60))


class GaveUp(Exception):
    """Every attempt failed for a passing reason; ``__cause__`` is the last one's error."""

    def __init__(self, attempts: int, last: Exception) -> None:
        super().__init__(f"{attempts} attempts, the last one: {last}")
        self.attempts = attempts


@dataclass(frozen=True)
class Retrying:
    """A decorator: the call is made again while it raises what ``is_passing`` says may pass.

    Anything else is raised as it is. Raises :class:`GaveUp` when the policy allows no further attempt.
    """

    policy: RetryPolicy
    is_passing: Callable[[Exception], bool]
    sleep: Callable[[float], None] = field(default=time.sleep)
    clock: Callable[[], float] = field(default=time.monotonic)
    draw: Callable[[], float] = field(default=random.random)

    def __call__(self, call: Callable[[], _T]) -> Callable[[], _T]:
        """``call``, made again when it fails in passing."""

        @functools.wraps(call)
        def patient() -> _T:
            begun = self.clock()
            failed = 0
            while True:
                try:
                    return call()
                except Exception as error:
                    if not self.is_passing(error):
                        raise
                    failed += 1
                    wait_secs = self.policy.wait_secs(failed, self.draw())
                    late = self.clock() - begun + wait_secs > self.policy.limit_secs
                    if failed >= self.policy.attempts or late:
                        raise GaveUp(failed, error) from error
                self.sleep(wait_secs)

        return patient
