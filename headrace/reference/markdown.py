"""The parts of Markdown that generated pages consist of."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

#: What the first paragraph of each page ends with.
GENERATED = "`make reference` generates this page from the code; do not edit it."

_BAR = re.compile(r" ?\|+ ?")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells. A ``|`` in a cell, which not all readers of Markdown escape alike, is an "or"."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(_BAR.sub(' or ', cell) for cell in line)} |" for line in lines) + "\n"


def with_links(text: str) -> str:
    """A text whose names of pages, such as ``docs/joins.md``, are links, and whose signs of HTML are escaped."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
    return re.sub(r"\b(?:docs/)?([a-z-]+\.md)\b", r"[\1](\1)", escaped)


def summary_of(value: object) -> str:
    """The first paragraph of the docstring of a class or function, as Markdown."""
    return from_docstring((inspect.getdoc(value) or "").split("\n\n")[0])


def from_docstring(text: str) -> str:
    """A paragraph of a docstring as Markdown: its double backticks and roles become code."""
    return re.sub(r"(?::[a-z]+:)?``?~?([^`]+)``?", r"`\1`", " ".join(text.split()))
