"""Every command that a page, an example, an alert or an error names is one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer._click import Context

from headrace.cli.lazy_group import group_of
from headrace.cli.main import COMMANDS, app
from tests.conftest import ROOT

_NAMED = re.compile(r"(?<!import )\bheadrace ([a-z]+)\b(?: ([a-z][a-z-]*))?")
#: Sentences, no commands.
_SENTENCES = {("prune", "needs")}
PLACES = ("README.md", "docs", "examples", "deploy", "headrace", "trainer", "warehouse", "pipelines", "transforms")


def texts(place: str) -> Iterator[tuple[Path, str]]:
    start = ROOT / place
    for path in [start] if start.is_file() else sorted(start.rglob("*")):
        if path.suffix in (".md", ".py", ".yml", ".yaml", ".json"):
            yield path, path.read_text(encoding="utf-8")


def commands() -> dict[str, set[str]]:
    """The commands of each group; none of a command that is no group."""
    root = group_of(app, COMMANDS)
    context = Context(root)
    found = {name: root.get_command(context, name) for name in root.list_commands(context)}
    return {
        name: set(one.list_commands(context)) if hasattr(one, "list_commands") else set() for name, one in found.items()
    }


@pytest.mark.parametrize("place", PLACES)
def test_a_command_that_is_named_is_there(place):
    known, wrong = commands(), []
    for path, text in texts(place):
        for found in _NAMED.finditer(text):
            group, command = found[1], found[2]
            inner = known.get(group, set())
            if inner and command and command not in inner and (group, command) not in _SENTENCES:
                wrong.append(f"{path.name}: {found[0]}")
    assert wrong == []


def test_a_wrong_command_would_be_found():
    assert _NAMED.findall("headrace holds show RUN; import headrace as hr") == [("holds", "show")]
    assert "show" not in commands()["holds"]
