"""Progress of maintenance."""

from __future__ import annotations

from collections.abc import Callable

#: Called with the number of steps done, the number of all steps, and the current item.
Progress = Callable[[int, int, str], None]


def quiet(_done: int, _total: int, _current: str) -> None:
    """Report nothing."""
