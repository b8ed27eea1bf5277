"""A drawing of lines in the characters of a terminal: each one has 2 x 4 dots. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

#: The dots of a character by column and row, as bits of the Braille block.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BLANK = 0x2800
STYLES = ("blue", "yellow", "green", "magenta", "cyan", "red")


@dataclass(frozen=True, slots=True)
class Line:
    """The points of a line, x ascending, all finite."""

    x: Sequence[float]
    y: Sequence[float]


def line_plot(lines: Sequence[Line], width: int, height: int, low: float, high: float, right: float) -> list[Text]:
    """The rows of a drawing of ``width`` x ``height`` characters; x goes from 0 to ``right``, y from ``low`` to ``high``.

    Where lines cross, the later one is seen.
    """
    dots = [[0] * width for _ in range(height)]
    owner = [[-1] * width for _ in range(height)]
    for number, line in enumerate(lines):
        for column, row in _dots_of(line, 2 * width, 4 * height, low, high, right):
            dots[row // 4][column // 2] |= _DOTS[column % 2][row % 4]
            owner[row // 4][column // 2] = number
    rows = []
    for bits, owners in zip(dots, owner, strict=True):
        text = Text()
        for one, number in zip(bits, owners, strict=True):
            text.append(chr(_BLANK + one) if one else " ", Style(color=STYLES[number % len(STYLES)]) if one else None)
        rows.append(text)
    return rows


def _dots_of(line: Line, columns: int, rows: int, low: float, high: float, right: float) -> list[tuple[int, int]]:
    """The dots of a line, each column from the dot of the column before to its own."""
    found: list[tuple[int, int]] = []
    before: tuple[int, int] | None = None
    for x, y in zip(line.x, line.y, strict=True):
        column = min(columns - 1, max(0, math.floor(x / right * columns))) if right else 0
        share = (y - low) / (high - low) if high > low else 0.5
        row = min(rows - 1, max(0, rows - 1 - math.floor(share * (rows - 1) + 0.5)))
        found += [(column, row)] if before is None else _between(before, (column, row))
        before = column, row
    return found


def _between(first: tuple[int, int], last: tuple[int, int]) -> list[tuple[int, int]]:
    """The dots of a straight line after its first one."""
    count = max(abs(last[0] - first[0]), abs(last[1] - first[1]), 1)
    steps = (k / count for k in range(1, count + 1))
    return [(round(first[0] + (last[0] - first[0]) * k), round(first[1] + (last[1] - first[1]) * k)) for k in steps]
