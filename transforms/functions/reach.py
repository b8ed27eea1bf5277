"""The outer names that code loads, with their attributes, and the names that it changes."""

from __future__ import annotations

import ast
import dis
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType

from transforms.functions.refused import chain_of

#: The last: names of annotations of a class, which Python 3.14 evaluates when they are asked for.
_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_FREE = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})

#: Methods that change a list, a mapping or a set.
_CHANGING = frozenset({"append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "add", "discard",
                       "update", "setdefault", "popitem", "intersection_update", "difference_update"})  # fmt: skip

#: Methods that store an item or an attribute.
_SETTERS = frozenset({"__setattr__", "__delattr__", "__setitem__", "__delitem__"})
#: Classes whose setters take what they change as an argument.
_BASES = frozenset({"object", "type", "dict", "list"})

Chain = tuple[str, ...]


@dataclass
class Reach:
    """The names that code reaches.

    Attributes:
        names: outer names with the attribute chains that follow them; the empty chain is the value itself.
        written: the rebound names.
        changed: the names that may be changed in place.
        attributes: every attribute of any value.
    """

    names: dict[str, set[Chain]] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)


def reach_of(code: CodeType) -> Reach:
    """The reach of a function's code, inner functions included."""
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
    """Names whose value the source changes in place: by an item, an attribute or a changing method."""
    stored: set[str] = set()
    called: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
            stored |= _root(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _CHANGING:
                called |= _root(node.func.value)
            elif node.func.attr in _SETTERS:
                stored |= (_root(node.func.value) - _BASES) | (_root(node.args[0]) if node.args else set())
        elif isinstance(node, ast.Call) and node.args and getattr(node.func, "id", "") in ("setattr", "delattr"):
            stored |= _root(node.args[0])
    return stored, called


def _root(node: ast.expr) -> set[str]:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def imported_attributes(source: str) -> Iterator[tuple[str, Chain, bool]]:
    """(module, attributes, is it a use) for the modules that the source imports itself.

    A use without attributes is the module, or a name imported from it, as a value.
    """
    tree = ast.parse(source)
    bound: dict[str, tuple[str, Chain]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name if alias.asname else alias.name.partition(".")[0]
                bound[alias.asname or top] = (top, ())
                yield alias.name, (), False
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                bound[alias.asname or alias.name] = (module, (alias.name,))
                yield module, (alias.name,), False
    inner = {node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        chain = chain_of(node) if isinstance(node, ast.Attribute | ast.Name) and node not in inner else ()
        if chain and chain[0] in bound and isinstance(getattr(node, "ctx", None), ast.Load):
            module, start = bound[chain[0]]
            yield module, (*start, *chain[1:]), True
