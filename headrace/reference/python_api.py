"""The reference page of ``import headrace as hr``, from signatures and docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import headrace
from headrace.reference.markdown import GENERATED, from_docstring, summary_of, table

_HEAD = f"""# Python

This page lists what `import headrace as hr` has. {GENERATED}

[Headrace in Python](python.md) shows it by example; the methods of expressions are the [operators](operators.md).
"""
#: Its methods apply operators, which have a page.
_WITHOUT_METHODS = {"Expr"}


def python_page() -> str:
    """The page as Markdown: a table of contents, then functions and classes by name."""
    names = sorted(headrace.__all__, key=lambda name: (inspect.isclass(getattr(headrace, name)), name.lower()))
    rows = ((f"[hr.{name}](#hr{name.lower()})", summary_of(getattr(headrace, name))) for name in names)
    parts = [_HEAD, table(["name", "what it is"], rows)]
    for name in names:
        parts.append(_entry(name, getattr(headrace, name)))
    return "\n".join(parts)


def _entry(name: str, value: Any) -> str:
    lines = [f"## hr.{name}\n", f"```python\nhr.{name}{_signature(value)}\n```\n", *_paragraphs(value)]
    if inspect.isclass(value) and name not in _WITHOUT_METHODS:
        rows = [(f"`{method}{_signature(one)}`", summary_of(one)) for method, one in _methods(value)]
        lines += [table(["method", "what it does"], rows)] if rows else []
    return "\n".join(lines)


def _methods(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that Headrace defines, as written."""
    for owner in reversed(kind.__mro__):
        if not owner.__module__.startswith(("headrace", "transforms")):
            continue
        for name, value in vars(owner).items():
            if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property | classmethod)):
                yield name, value.fget if isinstance(value, property) else getattr(value, "__func__", value)


def _signature(value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    own = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
    return str(signature.replace(parameters=own)).replace("'", "")


def _paragraphs(value: Any) -> list[str]:
    """The docstring; examples and indented parts stay as they are written."""
    parts = (inspect.getdoc(value) or "").split("\n\n")
    return [f"```\n{part}\n```\n" if part.startswith((" ", ">>>")) or "\n    " in part else f"{from_docstring(part)}\n" for part in parts]  # fmt: skip
