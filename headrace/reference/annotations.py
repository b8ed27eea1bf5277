"""Annotations as types, also of names that a module imports for type checkers alone."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
import typing
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

#: The packages whose annotations are read; those of others are any.
_OWN = frozenset({"headrace", "trainer", "pipelines", "warehouse", "transforms"})


@cache
def names_of(module: str) -> Mapping[str, Any]:
    """The names that code of a module can use, with those imported under ``TYPE_CHECKING``."""
    found = dict(vars(import_module(module)))
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    for block in (one for one in tree.body if isinstance(one, ast.If) and ast.unparse(one.test) == "TYPE_CHECKING"):
        for line in block.body:
            if isinstance(line, ast.ImportFrom):
                found |= imported(line, module)
    return found


def imported(line: ast.ImportFrom, module: str) -> dict[str, Any]:
    """The names that an import statement of a module binds. Those of other projects are any: they may be slow to import, or absent."""
    top = (line.module or "").partition(".")[0]
    if not line.level and top not in _OWN and top not in sys.stdlib_module_names:
        return {alias.asname or alias.name: Any for alias in line.names}
    name = "." * line.level + (line.module or "")
    source = import_module(name, module.rpartition(".")[0])
    return {alias.asname or alias.name: _member(source, alias.name) for alias in line.names}


def _member(source: ModuleType, name: str) -> Any:
    """A name of a module, or a module of a package."""
    if not hasattr(source, name) and hasattr(source, "__path__"):
        return import_module(f"{source.__name__}.{name}")
    return getattr(source, name, Any)


@cache
def fields_of_class(kind: type) -> Mapping[str, Any]:
    """The types of a dataclass's fields by name, in order; of another class those of its annotations."""
    hints: dict[str, Any] = {}
    for owner in reversed(kind.__mro__):
        hints |= {
            name: _evaluated(text, owner.__module__) for name, text in vars(owner).get("__annotations__", {}).items()
        }
    if dataclasses.is_dataclass(kind):
        return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return hints


@cache
def result_of(function: FunctionType) -> Any:
    """The declared type of a function's result."""
    return _evaluated(function.__annotations__.get("return", Any), function.__module__)


@cache
def parameters_of(function: FunctionType) -> Mapping[str, Any]:
    """The declared types of a function's parameters by name; those without are any."""
    names = inspect.signature(function).parameters
    return {name: _evaluated(function.__annotations__.get(name, Any), function.__module__) for name in names}


def _evaluated(annotation: Any, module: str) -> Any:
    if not isinstance(annotation, str):
        return annotation
    if module.partition(".")[0] not in _OWN:
        return Any
    try:
        return eval(annotation, {"typing": typing, **names_of(module)})  # trusted: Headrace's own source
    except (NameError, TypeError):
        return Any  # a name of a package that is not installed, or an alias that is a text
