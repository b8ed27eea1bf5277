"""Compares the output that a page of the manual shows with the output of the command.

A page may shorten what it shows: a line ``…`` stands for any lines, and ``…`` at the end of a line for the rest of it. Times, rates, sizes and
digests differ from run to run, and may be any; a number with a decimal point may differ by a tenth, since sums of floats do so between machines.
All else must be equal, but for the widths of columns and blank lines.
"""

from __future__ import annotations

import re

#: What differs from run to run. A match of one stands for any match of the same one.
_ANY = (
    ("<time>", re.compile(r"\b[\d,.]+ (?:ns|µs|ms|s|min|h)\b")),
    ("<rate>", re.compile(r"\b[\d,.]+ a second\b")),
    ("<size>", re.compile(r"\b[\d,.]+ (?:B|KiB|MiB|GiB)(?!\w)")),
    ("<digest>", re.compile(r"\b(?=\w*\d)[0-9a-f]{12,64}\b")),
)
_FIGURE = re.compile(r"[+-]?\d[\d,]*\.\d+")
_SHORTENED = "…"


def difference(shown: str, printed: str) -> str | None:
    """The first shown line that the printed output does not have in this place; ``None`` if it has all of them."""
    lines, at, any_lines = _lines(printed), 0, False
    for line in _lines(shown):
        if line == _SHORTENED:
            any_lines = True
            continue
        found = next((place for place in range(at, len(lines)) if _equal(line, lines[place])), None)
        if found is None or (found > at and not any_lines):
            return f"shown: {line!r}, printed: {lines[at] if at < len(lines) else 'no more lines'!r}"
        at, any_lines = found + 1, False
    return None if any_lines or at == len(lines) else f"shown: no more lines, printed: {lines[at]!r}"


def _lines(text: str) -> list[str]:
    """Lines without what may differ: times, sizes, digests, widths of columns, blank lines."""
    found = []
    for line in text.splitlines():
        for name, pattern in _ANY:
            line = pattern.sub(name, line)
        line = re.sub("─+", "─", line)
        if words := " ".join(line.split()):
            found.append(words)
    return found


def _equal(shown: str, printed: str) -> bool:
    """Whether a line is the shown one, which ``…`` may shorten."""
    begins = shown.endswith(f" {_SHORTENED}")
    parts = _FIGURE.split(shown.removesuffix(f" {_SHORTENED}"))
    pattern = f"({_FIGURE.pattern})".join(re.escape(part) for part in parts)
    found = re.fullmatch(pattern + (" .*" if begins else ""), printed)
    return found is not None and all(
        _near(one, other) for one, other in zip(_FIGURE.findall(shown), found.groups(), strict=True)
    )


def _near(shown: str, printed: str) -> bool:
    first, second = float(shown.replace(",", "")), float(printed.replace(",", ""))
    return abs(first - second) <= max(0.02, abs(first) / 10)
