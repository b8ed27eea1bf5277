"""How long maintenance has to go."""

from __future__ import annotations

from collections.abc import Callable

#: Told how many steps are done, of how many, and what is being worked on.
Progress = Callable[[int, int, str], None]


def quiet(_done: int, _total: int, _current: str) -> None:
    """Report nothing."""
