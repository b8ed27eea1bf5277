"""Expressions as text: one line, or a tree."""

from __future__ import annotations

import re
from collections.abc import Iterable

from transforms.graphs.graph import Artifact, Literal, Node, Operation, RawColumn, topological
from transforms.graphs.programs import program_params
from transforms.operators import REGISTRY
from transforms.operators.declaration import Scalar
from transforms.time_range import timestamp_text
from transforms.types import DType

#: The shown length of a parameter that is a table, such as a time zone's.
_SHOWN_ITEMS = 8


#: Bare names that a pattern does not read as columns.
_RESERVED = frozenset({"_", "True", "False", "inf", "nan"})
_NAME = re.compile(r"[^\W\d]\w*")


def expression_text(root: Node, limit: int = 400) -> str:
    """``root`` as one line, such as ``hash_buckets(lower(query), buckets=100)``; longer text is cut at ``limit``.

    Uncut text can be parsed as a :class:`~transforms.comparison.pattern.Pattern`.
    """
    return expression_texts([root], limit)[root.identity]


def expression_texts(roots: Iterable[Node], limit: int) -> dict[str, str]:
    """:func:`expression_text` of every node under ``roots``, by identity."""
    texts: dict[str, str] = {}
    for node in topological(roots):
        # Cutting every part keeps a heavily shared graph from growing exponentially.
        texts[node.identity] = _cut(_line(node, tuple(texts[arg.identity] for arg in node.args)), limit)
    return texts


def column_text(name: str) -> str:
    """A raw column's name, or ``column("…")`` of a name that is not one word."""
    return name if _NAME.fullmatch(name) and name not in _RESERVED else f"column({name!r})"


def literal_text(node: Literal) -> str:
    """A constant as Python writes it; a timestamp as ``moment('2026-03-01')``."""
    if node.type.dtype is DType.TIMESTAMP and isinstance(node.value, int):
        return f"moment({timestamp_text(node.value)})"
    return repr(node.value)


def _line(node: Node, args: tuple[str, ...]) -> str:
    match node:
        case RawColumn():
            return column_text(node.name)
        case Literal():
            return literal_text(node)
        case Artifact():
            return f"artifact {node.digest[:12]}"
        case Operation():
            return f"{node.op}({', '.join([*args, *_params(node)])})"
        case _:
            return "?"


def _params(node: Operation) -> list[str]:
    """The parameters that are not at their defaults."""
    program = program_params(node.op, dict(node.params))
    if program is not None:
        return program
    declared = REGISTRY[node.op].params if node.op in REGISTRY else ()
    defaults = {param.name: param.default for param in declared}
    return [f"{name}={param_text(value)}" for name, value in node.params if value != defaults.get(name)]


def param_text(value: Scalar) -> str:
    """A parameter's value as an expression shows it: a long tuple by its first item and its length."""
    if isinstance(value, tuple) and len(value) > _SHOWN_ITEMS:
        return f"({value[0]!r}, … {len(value)} in all)"
    return repr(value)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def tree_text(root: Node) -> str:
    """``root`` as an indented tree with types; a repeated subgraph is printed once, then referred to."""
    numbers: dict[str, int] = {}
    lines: list[str] = []
    stack: list[tuple[Node, str, str]] = [(root, "", "")]
    while stack:
        node, lead, indent = stack.pop()
        label = _label(node)
        if node.args and node.identity in numbers:
            lines.append(f"{lead}{label}  (see {numbers[node.identity]})")
            continue
        number = f"{len(numbers) + 1}. " if node.args else ""
        if node.args:
            numbers[node.identity] = len(numbers) + 1
        lines.append(f"{lead}{number}{label}  {node.type}")
        last = len(node.args) - 1
        children = [
            (arg, indent + ("└─ " if i == last else "├─ "), indent + ("   " if i == last else "│  "))
            for i, arg in enumerate(node.args)
        ]
        stack.extend(reversed(children))
    return "\n".join(lines)


def node_name(node: Node) -> str:
    """The name of one node: its column, its value, the first digits of its artifact, or its operator."""
    match node:
        case RawColumn():
            return node.name
        case Literal():
            return literal_text(node)
        case Artifact():
            return node.digest[:12]
        case Operation():
            return node.op
        case _:
            return "?"


def node_params(node: Node) -> str:
    """The parameters of an operation that are not at their defaults, as one line."""
    return ", ".join(_params(node)) if isinstance(node, Operation) else ""


def _label(node: Node) -> str:
    match node:
        case RawColumn():
            return f"column {node.name}"
        case Literal():
            return f"literal {literal_text(node)}"
        case Artifact():
            return f"artifact {node.digest[:12]}"
        case Operation():
            params = ", ".join(_params(node))
            return f"{node.op} v{node.version}" + (f" ({params})" if params else "")
        case _:
            return "?"
