"""The examples for Airflow and Dagster, without either: both run the same commands, which exist with these options."""

from __future__ import annotations

import ast
from pathlib import Path

from typer._click import Context

from headrace.cli.lazy_group import group_of
from headrace.cli.main import COMMANDS, app
from tests.conftest import ROOT
from trainer.job.launch.role_signals import LEFT_STATUS
from transforms.errors import Busy, StorageError

EXAMPLES = {name: ROOT / "examples" / name / "headrace_daily.py" for name in ("airflow", "dagster")}
STEPS = ["append", "submit", "work", "train", "check", "export"]


def steps(path: Path) -> dict[str, list[list[str]]]:
    """The words of the commands that each step runs; a word that is no text is its source."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name in STEPS:
            calls = (one for one in ast.walk(node) if isinstance(one, ast.Call) and getattr(one.func, "id", "") == "headrace")  # fmt: skip
            found[node.name] = [[str(word.value) if isinstance(word, ast.Constant) else ast.unparse(word) for word in one.args] for one in calls]  # fmt: skip
    return found


def options(words: list[str]) -> set[str]:
    """The options of a command."""
    command = group_of(app, COMMANDS)
    for word in words:
        if not hasattr(command, "get_command"):
            break
        command = command.get_command(Context(command), word)
        assert command is not None, words
    return {name for one in command.params for name in one.opts}


def test_both_run_the_same_commands() -> None:
    first, second = (steps(path) for path in EXAMPLES.values())
    assert first == second
    assert list(first) == STEPS


def test_the_commands_have_these_options() -> None:
    for calls in steps(EXAMPLES["airflow"]).values():
        for words in calls:
            for kind in ("full", "delta") if "kind" in words else ("",):
                chosen = [kind if word == "kind" else word for word in words]
                assert {word for word in chosen if word.startswith("--")} <= options(chosen)
    assert "--config" in options(["train"])


def test_a_status_that_may_pass_is_retried() -> None:
    for path in EXAMPLES.values():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        (passing,) = (ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "PASSING")  # fmt: skip
        assert passing == (Busy.exit_status, StorageError.exit_status, LEFT_STATUS)
