"""How long to wait before an attempt is made again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Up to ``attempts`` attempts; waits double from ``first_secs`` to ``most_secs``.

    Each wait is between half of that and all of it, so that processes that failed together do not come back together.
    By default an attempt is given up after 6 to 12 seconds of waiting: time enough for a server to be restarted.
    """

    attempts: int = 9
    first_secs: float = 0.05
    most_secs: float = 5.0

    def wait_secs(self, attempt: int, draw: float) -> float:
        """The wait after attempt number ``attempt`` (from 1) failed; ``draw`` is a random number in ``[0, 1)``."""
        whole = min(self.most_secs, self.first_secs * 2.0 ** (attempt - 1))
        return whole * (1 + draw) / 2
