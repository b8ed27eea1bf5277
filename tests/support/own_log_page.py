"""The chapters of a page of the manual: their model files, their commands and the outputs that the page shows."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

_DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
#: A command, the time that it took, and its output.
_SHOWN = re.compile(r"```sh\n([^\n]*)\n```\n\nAfter \d+ s(?: \([^)]*\))?:\n\n```text\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Chapter:
    """A chapter's model file and its commands, in order."""

    model: str
    commands: tuple[tuple[str, ...], ...]


def chapter(title: str, page: str = "your-own-log.md") -> Chapter:
    """The chapter of a page of ``docs/`` that begins with ``title``; one without a model file has an empty one."""
    blocks = _BLOCK.findall(_text(title, page))
    lines = [line for kind, block in blocks if kind == "sh" for line in block.strip().split("\n")]
    model = next((block for kind, block in blocks if kind == "python"), "")
    return Chapter(model, tuple(tuple(shlex.split(line)) for line in lines))


def shown_outputs(title: str, page: str = "your-own-log.md") -> dict[tuple[str, ...], str]:
    """The output that a chapter shows of each command, after the time that it took."""
    return {tuple(shlex.split(command)): output for command, output in _SHOWN.findall(_text(title, page))}


def _text(title: str, page: str) -> str:
    text = (_DOCS / page).read_text(encoding="utf-8")
    return next(part for part in text.split("\n## ") if part.startswith(title))
