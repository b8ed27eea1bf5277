"""docs/architecture.md names every package with its own words, and draws flows that the code has."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

MAP = ROOT / "docs" / "architecture.md"
TOPS = ("transforms", "warehouse", "pipelines", "trainer", "headrace")
_ROW = re.compile(rf"^\| `((?:{'|'.join(TOPS)})/[a-z_/]+)/` \| (.+?) \|", re.MULTILINE)
_FLOW = re.compile(r"```mermaid\nflowchart TD\n(.*?)```", re.DOTALL)
_PROCESSES = re.compile(r"```mermaid\nflowchart LR\n(.*?)```", re.DOTALL)
_STEP = re.compile(r'^ *(\w+)\["(?:\w+\.)*(\w+)<br/>([\w/]+\.py)"\]$', re.MULTILINE)
_ARROW = re.compile(r"^ *(\w+) (-->|-\.->)(?:\|[^|]*\|)? (\w+)$", re.MULTILINE)


def _packages() -> dict[str, str]:
    """Each package below the five, also below the packages of the trainer, and the first line of its docstring."""
    found = {}
    for top in TOPS:
        inits = (ROOT / top).rglob("*/__init__.py") if top == "trainer" else (ROOT / top).glob("*/__init__.py")
        for init in sorted(inits):
            text = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
            found[str(init.parent.relative_to(ROOT))] = text.splitlines()[0].replace("``", "`") if text else ""
    return found


def test_each_package_has_the_row_that_its_docstring_says() -> None:
    rows = dict(_ROW.findall(MAP.read_text(encoding="utf-8")))
    expected = {package: summary.removesuffix(".") for package, summary in _packages().items()}
    assert {name: text.removesuffix(".") for name, text in rows.items()} == expected


def test_a_packages_init_holds_a_docstring_only() -> None:
    """A name that a package exported would load all its modules; the five facades are lazy instead."""
    kept = {
        "pipelines/formats",
        "trainer/tables",
        "transforms/functions",
        "transforms/operators",
        "transforms/render",
    }
    for package in _packages():
        body = ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8")).body
        assert package in kept or len(body) == 1, package


def _flows() -> list[str]:
    return _FLOW.findall(MAP.read_text(encoding="utf-8"))


@cache
def _definitions(file: Path) -> dict[str, list[ast.AST]]:
    """The functions and classes of a file, methods too, by name."""
    found: dict[str, list[ast.AST]] = {}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.setdefault(node.name, []).append(node)
    return found


def _names_reached(file: Path, start: str) -> set[str]:
    """The names that a function uses, by itself or through others of its file."""
    definitions = _definitions(file)
    reached: set[str] = set()
    pending = [start]
    while pending:
        for definition in definitions.get(pending.pop(), []):
            used = {node.id for node in ast.walk(definition) if isinstance(node, ast.Name)}
            used |= {node.attr for node in ast.walk(definition) if isinstance(node, ast.Attribute)}
            used |= {
                alias.name for node in ast.walk(definition) if isinstance(node, ast.ImportFrom) for alias in node.names
            }
            pending += [name for name in used - reached if name in definitions]
            reached |= used
    return reached


def test_submit_task_and_batch_are_drawn() -> None:
    assert len(_flows()) == 3


def test_the_processes_of_a_job_are_drawn() -> None:
    """Each is a function or class of its file; an arrow says by which protocol a process calls another."""
    (drawing,) = _PROCESSES.findall(MAP.read_text(encoding="utf-8"))
    steps = {step: (name, ROOT / path) for step, name, path in _STEP.findall(drawing)}
    arrows = re.findall(r"^ *(\w+) (-->|-\.->)\|(starts|(?:Flight|TCP|HTTP): [^|]+)\| (\w+)$", drawing, re.MULTILINE)
    assert len(steps) + len(arrows) == len(drawing.strip().splitlines()), "a line of the drawing is not understood"
    assert {"run_controller", "run_host", "run_reader", "run_server", "run_worker"} < {
        name for name, _ in steps.values()
    }
    for name, path in steps.values():
        assert name in _definitions(path), f"{path} defines no {name}"
    for caller, arrow, words, called in arrows:
        assert {caller, called} <= steps.keys()
        assert (arrow == "-.->") == (words == "starts")


@pytest.mark.parametrize("drawing", _flows(), ids=lambda drawing: _STEP.findall(drawing)[0][1])
def test_a_drawn_call_is_in_the_code(drawing: str) -> None:
    """A solid arrow is a call; a dotted one hands something over, to a thread, a process or a callback."""
    steps = {step: (name, ROOT / path) for step, name, path in _STEP.findall(drawing)}
    arrows = _ARROW.findall(drawing)
    assert len(steps) + len(arrows) == len(drawing.strip().splitlines()), "a line of the drawing is not understood"
    for name, path in steps.values():
        assert name in _definitions(path), f"{path} defines no {name}"
    for caller, arrow, callee in arrows:
        (name, path), (called, _) = steps[caller], steps[callee]
        assert arrow == "-.->" or called in _names_reached(path, name), f"{name} of {path} does not call {called}"
