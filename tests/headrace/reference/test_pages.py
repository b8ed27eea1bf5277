"""The generated pages of the manual equal the code, and are complete."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import headrace
from headrace.cli.main import run
from headrace.reference import annotations
from headrace.reference.annotations import fields_of_class
from headrace.reference.commands import commands
from headrace.reference.documents import shape_of
from headrace.reference.errors import error_classes
from headrace.reference.json_page import documents, schemas_text
from headrace.reference.pages import PAGES
from headrace.reference.shapes import (
    ANY,
    NOTHING,
    NULL,
    NUMBER,
    TEXT,
    TRUTH,
    WHOLE,
    Either,
    Items,
    Object,
    either,
    merged,
)
from headrace.reference.training_options import meanings_of
from tests.conftest import ROOT
from tests.support.checked_documents import check_document
from trainer.options.config import TrainConfig
from transforms.errors import HeadraceError

DOCS = ROOT / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_gives(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run: make reference"


@pytest.mark.slow
def test_pages_are_equal_in_every_process(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "headrace.reference", str(tmp_path)],
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )
    assert {one.name: one.read_text(encoding="utf-8") for one in tmp_path.iterdir()} == {
        name: page() for name, page in PAGES.items()
    }


def test_every_command_and_visible_option_has_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    for words, command in commands():
        assert f"\n## {words}\n" in page
        assert command.help, words
        for one in command.params:
            assert getattr(one, "hidden", False) or one.name == "help" or getattr(one, "help", ""), (words, one.name)
    assert run(["--help"]) == 0
    listed = capsys.readouterr().out
    assert all(words.split()[1] in listed for words, _ in commands())


def test_every_training_option_has_a_meaning() -> None:
    without = {one.name for one in dataclasses.fields(TrainConfig)} - set(meanings_of(TrainConfig))
    assert without == set()


def test_every_error_is_listed() -> None:
    """Also one in a module that the page does not look into: bases are followed by their names through all sources."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for top in ("headrace", "trainer", "pipelines", "warehouse", "transforms")
        for file in (ROOT / top).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    found = {HeadraceError.__name__}
    while more := {name for name, own in bases.items() if own & found} - found:
        found |= more
    names = [kind.__name__ for kind in error_classes()]
    assert len(names) == len(set(names)), "the name of a class is its code"
    assert {*names, HeadraceError.__name__} == found


def test_every_name_of_the_package_has_a_docstring_with_its_arguments() -> None:
    page = (DOCS / "python-reference.md").read_text(encoding="utf-8")
    for name in headrace.__all__:
        assert f"\n## hr.{name}\n" in page
        assert inspect.getdoc(getattr(headrace, name)), name


def test_every_command_with_json_has_a_document() -> None:
    """A command whose screen the generator does not find would have no fields."""
    for words, shape in documents().items():
        parts = shape.of if isinstance(shape, Either) else (shape,)
        assert parts, words
        assert all(isinstance(one, Object) and one.fields for one in parts), words


def test_the_schemas_are_json_schemas() -> None:
    for schema in json.loads(schemas_text()).values():
        jsonschema.Draft202012Validator.check_schema(schema)


@dataclass(frozen=True)
class _Point:
    x: int
    label: str | None


@dataclass(frozen=True)
class _Drawing:
    points: tuple[_Point, ...]
    weights: dict[str, float]
    title: str = ""

    @property
    def is_empty(self) -> bool:
        return not self.points

    def json_fields(self) -> dict[str, Any]:
        extra = {"empty": self.is_empty} if self.title else {}
        labels = [one.label for one in self.points]
        return {**{"title": self.title.upper()}, "points": [{"x": one.x, "twice": 2 * one.x} for one in self.points], "labels": labels, "ratio": 1 / 2, "weights": dict(self.weights), **extra}  # fmt: skip


@pytest.fixture
def _tests_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annotations, "_OWN", annotations._OWN | {"tests"})


@pytest.mark.usefixtures("_tests_are_read")
def test_the_shape_of_a_document_is_read_from_its_method() -> None:
    assert fields_of_class(_Point) == {"x": int, "label": str | None}
    shape = shape_of(_Drawing)
    assert isinstance(shape, Object)
    assert shape.fields == {
        "title": TEXT,
        "points": Items(Object({"x": WHOLE, "twice": WHOLE})),
        "labels": Items(either(TEXT, NULL)),
        "ratio": NUMBER,
        "weights": Object(others=NUMBER),
        "empty": TRUTH,
    }
    assert shape.optional == {"empty"}


@pytest.mark.usefixtures("_tests_are_read")
def test_a_document_that_differs_from_its_schema_is_found() -> None:
    check_document(_Drawing((_Point(1, None),), {"a": 0.5}))
    with pytest.raises(AssertionError, match=r"_Drawing at \$\.weights\.a"):
        check_document(_Drawing((), {"a": "half"}))  # type: ignore[dict-item]


def test_objects_are_joined() -> None:
    first, second = Object({"a": TEXT, "b": TEXT}), Object({"a": WHOLE})
    assert either(first, second) == Object({"a": Either((TEXT, WHOLE)), "b": TEXT}, frozenset({"b"}))
    assert merged(first, second) == Object({"a": WHOLE, "b": TEXT})
    assert either(Items(NOTHING), Items(TEXT)) == Items(TEXT)
    assert either(TEXT, ANY) == ANY
    assert either(WHOLE, NUMBER) == NUMBER
