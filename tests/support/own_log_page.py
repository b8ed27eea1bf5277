"""The chapters of a page of the manual: their model files and their commands."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

_DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Chapter:
    """A chapter's model file and its commands, in order."""

    model: str
    commands: tuple[tuple[str, ...], ...]


def chapter(title: str, page: str = "your-own-log.md") -> Chapter:
    """The chapter of a page of ``docs/`` that begins with ``title``; one without a model file has an empty one."""
    text = (_DOCS / page).read_text(encoding="utf-8")
    blocks = _BLOCK.findall(next(part for part in text.split("\n## ") if part.startswith(title)))
    lines = [line for kind, block in blocks if kind == "sh" for line in block.strip().split("\n")]
    model = next((block for kind, block in blocks if kind == "python"), "")
    return Chapter(model, tuple(tuple(shlex.split(line)) for line in lines))
