"""Refreshes of a screen: until Ctrl-C, drawn over each other on a terminal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.terminal.display import ONCE, Display, display_of, in_place, repeat, show_as

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_refreshes_go_on_until_ctrl_c_and_leave_the_display_as_it_was() -> None:
    seen: list[Display] = []
    slept: list[float] = []

    def sleep(secs: float) -> None:
        slept.append(secs)
        if len(slept) == 3:
            raise KeyboardInterrupt

    repeat(
        lambda: seen.append(display_of.get()),
        2.5,
        sleep=sleep,
        clock=lambda: START + timedelta(seconds=2.5 * len(slept)),
    )
    assert slept == [2.5] * 3
    assert [one.number for one in seen] == [0, 1, 2]
    assert seen[2].heading == "2026-03-01 12:00:05 UTC, every 2.5 s"
    assert display_of.get() is ONCE


def test_ctrl_c_within_a_refresh_ends_it_too() -> None:
    def show() -> None:
        raise KeyboardInterrupt

    repeat(show, 1.0, sleep=lambda _: None)
    assert display_of.get() is ONCE


def test_an_error_leaves_the_display_as_it_was() -> None:
    def show() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        show_as(Display(as_csv=True), show)
    assert display_of.get() is ONCE


class Terminal:
    """The rows of a terminal that understands the commands of a refresh."""

    def __init__(self, rows: int) -> None:
        self.rows = [""] * rows
        self.at = 0

    def write(self, text: str) -> None:
        while text:
            if text.startswith("\x1b[2J"):
                self.rows, text = [""] * len(self.rows), text[4:]
            elif text.startswith("\x1b[H"):
                self.at, text = 0, text[3:]
            elif text.startswith("\x1b[J"):
                self.rows[self.at :], text = [""] * (len(self.rows) - self.at), text[3:]
            else:
                line, _, text = text.partition("\x1b[K\n")
                self.rows[self.at] = line
                self.at += 1
                assert self.at < len(self.rows), "the terminal scrolls"


LINES = st.lists(st.text("abc ", max_size=5), min_size=1, max_size=12)


@given(st.lists(LINES, min_size=1, max_size=4), st.integers(3, 10))
def test_a_terminal_shows_the_last_refresh_alone(refreshes: list[list[str]], rows: int) -> None:
    terminal = Terminal(rows)
    terminal.rows = ["old"] * rows
    for number, lines in enumerate(refreshes):
        terminal.write(in_place("\n".join(lines) + "\n", rows, is_first=number == 0))
    left = "\n".join(refreshes[-1]).rstrip("\n").split("\n")
    shown = left if len(left) <= rows - 1 else [*left[: rows - 2], f"… {len(left) - rows + 2} more lines"]
    assert terminal.rows == shown + [""] * (rows - len(shown))
