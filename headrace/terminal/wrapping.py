"""Wraps text at spaces, and after commas and brackets, but not inside names."""

from __future__ import annotations

import re

from rich.cells import cell_len, chop_cells

_PIECE = re.compile(r"[^\s,;(/=]*[,;(/=]*\s*")


def wrapped(text: str, width: int) -> list[str]:
    """The lines of ``text``, each at most ``width`` terminal cells wide.

    A line ends at a space if that fills half of it, else after a comma, a bracket, a slash or an equals sign. Only a name
    longer than ``width`` is cut.
    """
    return [line for paragraph in text.split("\n") for line in _paragraph(paragraph, max(width, 1))]


def _paragraph(text: str, width: int) -> list[str]:
    lines: list[str] = []
    rest = text.rstrip()
    while cell_len(rest) > width:
        end = _line_end(rest, width)
        lines.append(rest[:end].rstrip())
        rest = rest[end:].lstrip()
    return [*lines, rest] if rest or not lines else lines


def _line_end(text: str, width: int) -> int:
    """The end of the first line of a text that does not fit."""
    at_space = at_mark = end = 0
    for found in _PIECE.finditer(text):
        piece = found.group()
        if cell_len(text[: end + len(piece.rstrip())]) > width:
            break
        end += len(piece)
        at_mark = end
        if piece[-1:].isspace():
            at_space = end
    if cell_len(text[:at_space]) * 2 >= width:
        return at_space
    return at_mark or len(chop_cells(text, width)[0]) or 1
