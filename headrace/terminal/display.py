"""How a command shows its screen: as a table, JSON or CSV, once or again every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_CLEAR: Final = "\x1b[2J"
_TOP: Final = "\x1b[H"
_CLEAR_LINE: Final = "\x1b[K"
_CLEAR_BELOW: Final = "\x1b[J"


@dataclass(frozen=True, slots=True)
class Display:
    """How a screen is shown.

    Attributes:
        as_csv: as CSV, in place of a table.
        every_secs: seconds between two refreshes; 0: the screen is shown once.
        number: of the refresh, from 0.
        now: the time of the refresh.
    """

    as_csv: bool = False
    every_secs: float = 0.0
    number: int = 0
    now: datetime = datetime.min

    @property
    def is_repeated(self) -> bool:
        """Whether the screen is shown again and again."""
        return self.every_secs > 0

    @property
    def heading(self) -> str:
        """The line above a refresh."""
        return f"{self.now:%Y-%m-%d %H:%M:%S} UTC, every {self.every_secs:g} s"


#: As a table or JSON, once.
ONCE: Final = Display()
#: How the command that runs now shows its screen.
display_of: ContextVar[Display] = ContextVar("display_of", default=ONCE)


def _utc_now() -> datetime:
    return datetime.now(UTC)


def show_as(display: Display, show: Callable[[], None]) -> None:
    """Call ``show``, which emits a screen, with this display."""
    token = display_of.set(display)
    try:
        show()
    finally:
        display_of.reset(token)


def repeat(
    show: Callable[[], None],
    every_secs: float,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], datetime] = _utc_now,
) -> None:
    """Call ``show``, which emits a screen, every ``every_secs`` seconds until Ctrl-C."""
    number = 0
    try:
        while True:
            show_as(Display(every_secs=every_secs, number=number, now=clock()), show)
            sys.stdout.flush()
            sleep(every_secs)
            number += 1
    except KeyboardInterrupt:
        return


def in_place(text: str, rows: int, *, is_first: bool) -> str:
    """What draws ``text`` over the refresh before it, on a terminal of ``rows`` rows.

    Lines that do not fit are counted in the last row: a terminal that scrolls would leave them behind.
    """
    lines = text.rstrip("\n").split("\n")
    most = max(rows - 1, 2)
    if len(lines) > most:
        lines = [*lines[: most - 1], f"… {len(lines) - most + 1} more lines"]
    drawn = "".join(f"{line}{_CLEAR_LINE}\n" for line in lines)
    return f"{_CLEAR if is_first else ''}{_TOP}{drawn}{_CLEAR_BELOW}"
