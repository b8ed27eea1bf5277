"""The compose file of ``deploy/compose``, as values: its services with merged defaults, and the commands of their containers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "compose"
FILE = FOLDER / "compose.yaml"
_VARIABLE = re.compile(r"\$\$|\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}")


def document() -> dict[str, Any]:
    """The file with YAML's merges done, and no variable replaced."""
    found: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return found


def interpolated(text: str) -> str:
    """A text with the defaults of its variables, and ``$`` for ``$$``, as a container has it."""
    return _VARIABLE.sub(lambda found: "$" if found[0] == "$$" else found["default"] or "", text)


def command_of(service: dict[str, Any], *words: str) -> list[str]:
    """What the container of a service runs; ``words``: in place of its command."""
    return [interpolated(word) for word in (*service.get("entrypoint", ()), *(words or service["command"]))]
