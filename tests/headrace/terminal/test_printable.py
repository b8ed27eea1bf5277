"""Text from outside has no control and no invisible character on a terminal."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import io
import json
import logging
import pkgutil
import types
import typing
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

import headrace.screens
from headrace.cli.main import run
from headrace.runs.comparison import Difference
from headrace.terminal.logs import PrintableFormatter
from headrace.terminal.output import document, emit, emit_line, record_to
from headrace.terminal.printable import json_printable, printable, printable_screen
from tests.warehouse.scenes import write_partition
from trainer.checkpoints.local_run import LocalRun
from trainer.checkpoints.run_files import RunFiles

#: A colour, a title of the window, an override of direction, markup, an emoji's name, a C1 control, a surrogate, a line.
HOSTILE = "a\x1b[31mb\x1b]0;title\x07\u202ec[red]d[/red]:smile:\x9b2J\ud800\u2028e"
_LEFT = "[red]d[/red]:smile:"


def screens() -> Iterator[type]:
    """Every screen that a command may print."""
    for module in pkgutil.iter_modules(headrace.screens.__path__):
        for found in vars(importlib.import_module(f"headrace.screens.{module.name}")).values():
            if isinstance(found, type) and dataclasses.is_dataclass(found) and hasattr(found, "render"):
                yield found


def filled(kind: Any) -> Any:
    """A value of a type, all of whose texts are hostile."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is str or kind is Any or kind is object:
        return HOSTILE
    if kind in (int, float, bool):
        return kind(1)
    if kind is datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)
    if kind is Path:
        return Path("x")
    if kind is RunFiles:
        return LocalRun(Path("x"))
    if origin is Literal:
        return args[0]
    if origin in (typing.Union, types.UnionType):
        return filled(next(arg for arg in args if arg is not type(None)))
    if origin is tuple:
        return (filled(args[0]),) if args[1:] in ((), (...,)) else tuple(filled(arg) for arg in args)
    if origin is not None and issubclass(origin, Mapping):
        return {filled(args[0]): filled(args[1])}
    if dataclasses.is_dataclass(origin):
        return origin(
            **{field.name: filled(args[0] if field.type == "T" else str) for field in dataclasses.fields(origin)}
        )
    if origin is not None:
        return [filled(args[0])] if origin is not frozenset else frozenset({filled(args[0])})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    hints = typing.get_type_hints(kind, localns=type_names(inspect.getmodule(kind)))
    given = {
        field.name: _given(kind, field.name, hints[field.name]) for field in dataclasses.fields(kind) if field.init
    }
    return kind(**given)


def type_names(module: types.ModuleType) -> dict[str, Any]:
    """What a module imports for its annotations only."""
    blocks = [
        statement.body
        for statement in ast.parse(inspect.getsource(module)).body
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"
    ]
    imports = [each for block in blocks for each in block if isinstance(each, ast.ImportFrom)]
    return {
        alias.name: getattr(importlib.import_module(each.module), alias.name)
        for each in imports
        for alias in each.names
        if each.module
    }


#: What is no text from outside: words of ours by which a screen chooses its own.
_OURS = {
    "kind": "overlay",
    "action": "retry",
    "columns_read": {"load": 1},
    "changes": [{"sentence": HOSTILE}],
    "schema": {"format": HOSTILE, "time": {"column": HOSTILE, "unit": HOSTILE}},
}


def _given(kind: type, name: str, hint: Any) -> Any:
    is_mapping = "Mapping" in str(hint) or "dict" in str(hint)
    is_ours = name in _OURS and (name not in ("changes", "schema") or is_mapping) and name != "kind"
    if is_ours or (name == "kind" and kind.__name__ == "Change"):
        return _OURS[name]
    if (kind.__name__, name) == ("PlannedAnalysis", "state"):
        return "new"
    if (kind.__name__, name) == ("Submission", "name"):
        return "job"
    if (kind.__name__, name) == ("DenseArray", "dtype"):
        return "<f4"
    if (kind.__name__, name) == ("LinkTable", "files"):
        return dict.fromkeys(("ids", "values", "removed"), HOSTILE)
    if kind.__name__ == "Curve" and name != "run":
        return np.array([1.0, 2.0])
    if (kind.__name__, name) == ("RunIdentity", "inputs"):
        return ({"name": HOSTILE, "fingerprint": HOSTILE},)
    if kind.__name__ == "RunComparison" and name in ("figures", "common_epochs"):
        figures = {f"{HOSTILE}/normalized_entropy": 0.5}
        return (Difference(HOSTILE, *((0.5, None) if name == "figures" else (figures, figures))),)
    return filled(hint)


def check(shown: str) -> None:
    """Nothing but plain characters and line feeds."""
    assert printable(shown) == shown


@pytest.mark.parametrize("kind", sorted(screens(), key=lambda one: one.__name__), ids=lambda one: one.__name__)
def test_no_screen_shows_a_command_to_the_terminal(kind: type) -> None:
    screen = filled(kind)
    for as_json in (False, True):
        said = io.StringIO()
        with redirect_stdout(said):
            emit(screen, as_json=as_json)
        check(said.getvalue())
        said.getvalue().encode("utf-8")
        if as_json:
            assert json.loads(said.getvalue()) == json.loads(json.dumps(document(screen))), "a program gets what it was"


def test_markup_and_the_names_of_emoji_stay_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A real table, with a column of a hostile name, and errors about it."""
    name = HOSTILE.replace("\ud800", "")
    write_partition(tmp_path / "log", 0, pa.table({name: [1, 2], "two\nlines": ["x", "y"]}))
    home = ["--home", str(tmp_path / "home")]
    assert run(["table", "add", "log", str(tmp_path / "log"), *home]) == 0
    capsys.readouterr()
    assert run(["table", "show", "log", *home]) == 0
    shown = capsys.readouterr().out
    check(shown)
    assert _LEFT in shown
    assert "\\x1b[31mb" in shown
    assert "two\\nlines" in shown
    assert run(["table", "show", "log", "--json", *home]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert name in {column["name"] for column in listed["columns"]}
    for unknown, status in ((name, 4), (HOSTILE, 2)):
        assert run(["table", "show", unknown, *home]) == status
        told = capsys.readouterr().err
        check(told)
        assert _LEFT in told


def test_text_that_people_write_stays() -> None:
    for text in ("Zürich", "日本語", "👩\u200d👩\u200d👧", "می\u200cخواهم", "a\nb", "שלום", ""):
        assert printable(text) == text
        assert json_printable(text) == text
    assert printable("a\nb\tc", lines=False) == "a\\nb\\tc"
    assert json.loads(json_printable(json.dumps({"a": HOSTILE}, ensure_ascii=False))) == {"a": HOSTILE}


def test_values_keep_their_kinds() -> None:
    class Colour(Enum):
        RED = "\x1b"

    value = {"\x1b": [("\x1b", 1, None, Colour.RED)]}
    assert printable_screen(value) == {"\\x1b": [("\\x1b", 1, None, Colour.RED)]}


def test_what_is_logged_is_printable() -> None:
    record = logging.LogRecord("x", logging.WARNING, "x", 1, "of %s", (HOSTILE,), None)
    check(PrintableFormatter().format(record))


@dataclasses.dataclass(frozen=True)
class Line:
    """A screen of one line."""

    name: str

    def line(self) -> str:
        return self.name


def test_lines_are_printed_one_after_the_other_and_the_last_is_recorded(capsys, tmp_path):
    recorded = record_to.set(str(tmp_path / "record.json"))
    try:
        for name, as_json in (("one\x1b", False), ("two", True)):
            emit_line(Line(name), as_json=as_json)
    finally:
        record_to.reset(recorded)
    assert capsys.readouterr().out == 'one\\x1b\n{"name": "two"}\n'
    assert json.loads((tmp_path / "record.json").read_text()) == {"name": "two"}
