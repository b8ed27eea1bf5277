"""What code reaches: the names it loads from outside with the attributes it takes of them, and what it must not do."""

from __future__ import annotations

import ast
import dis
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType

_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_FREE = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS"})
_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})

#: Methods that change a list, a mapping or a set.
_CHANGING = frozenset({"append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "add", "discard",
                       "update", "setdefault", "popitem", "intersection_update", "difference_update"})  # fmt: skip

Chain = tuple[str, ...]


@dataclass
class Reach:
    """``names``: outer names with the attribute chains that follow them; the empty chain is the value itself.

    ``written`` are rebound, ``changed`` perhaps changed in place; ``attributes`` is every attribute of anything.
    """

    names: dict[str, set[Chain]] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)


def reach_of(code: CodeType) -> Reach:
    """What a function's code reaches, that of the functions within it included."""
    found = Reach()
    for part in _with_inner(code):
        _follow(part, frozenset(code.co_freevars), found)
    return found


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


def _follow(code: CodeType, free: frozenset[str], found: Reach) -> None:
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    local = {step.argval for step in steps if step.opname == "STORE_NAME"} | {"__name__", "__annotations__"}
    for at, step in enumerate(steps):
        name = step.argval
        if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") or (
            step.opname in ("STORE_DEREF", "DELETE_DEREF") and name in free & set(code.co_freevars)
        ):
            found.written.add(name)
        elif step.opname in _ATTRIBUTE:
            found.attributes.add(name)
        elif (step.opname in _GLOBAL and name not in local) or (step.opname in _FREE and name in free):
            found.names.setdefault(name, set()).add(_chain(steps, at + 1))


def _chain(steps: list[dis.Instruction], at: int) -> Chain:
    taken: list[str] = []
    while at < len(steps) and steps[at].opname in _ATTRIBUTE:
        taken.append(steps[at].argval)
        at += 1
    return tuple(taken)


def changed_names(source: str) -> tuple[set[str], set[str]]:
    """Names whose value the source changes in place: by an item or an attribute, and by a method that may change it."""
    stored: set[str] = set()
    called: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
            stored |= _root(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING:
            called |= _root(node.func.value)
    return stored, called


def _root(node: ast.expr) -> set[str]:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def imported_attributes(source: str) -> Iterator[tuple[str, Chain]]:
    """(module, attributes) for everything taken of a module that the source itself imports."""
    tree = ast.parse(source)
    bound: dict[str, tuple[str, Chain]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0],
                    (),
                )
                yield alias.name, ()
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                bound[alias.asname or alias.name] = (module, (alias.name,))
                yield module, (alias.name,)
    for node in ast.walk(tree):
        taken: list[str] = []
        inner: ast.expr | ast.AST = node
        while isinstance(inner, ast.Attribute):
            taken.insert(0, inner.attr)
            inner = inner.value
        if taken and isinstance(inner, ast.Name) and inner.id in bound:
            module, chain = bound[inner.id]
            yield module, (*chain, *taken)
