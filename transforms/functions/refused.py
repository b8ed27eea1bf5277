"""Refused source: computed attributes, introspection, identity, the order of a set's items."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from transforms.functions.impure import INTROSPECTION

#: Module attributes that differ in a rebuilt function.
_OF_MODULES = frozenset({"__annotations__", "__builtins__", "__cached__", "__dict__", "__doc__", "__file__", "__loader__",
                         "__module__", "__name__", "__package__", "__path__", "__qualname__", "__spec__"})  # fmt: skip
#: Functions whose result does not depend on the order of a set.
_ORDERLESS = frozenset({"sorted", "len", "min", "max", "any", "all", "set", "frozenset", "bool", "isinstance", "type"})
#: Functions whose result shows the order.
_ORDERED = frozenset({"list", "tuple", "enumerate", "iter", "next", "zip", "map", "filter", "reversed", "sum", "reduce",
                      "join", "fromkeys", "chain", "array", "repr", "str", "deque", "dict"})  # fmt: skip
_NAMED_ZONE = re.compile(r"tz=(?!UTC\]|[+-]\d\d:\d\d\])")
_FIXED_ZONE = re.compile(r"UTC|[+-]\d\d:\d\d")


@dataclass(frozen=True, slots=True)
class Refused:
    """A refused name or expression, the reason and the next step."""

    variable: str
    why: str
    next_step: str


@dataclass(frozen=True, slots=True)
class Outer:
    """The meaning of the names of a source.

    Attributes:
        is_singleton: whether an expression is one object in every process: None, a class, an enumeration member.
        is_set: whether the value of a name is a set.
    """

    is_singleton: Callable[[tuple[str, ...]], bool]
    is_set: Callable[[str], bool]


def refused_in(source: str, outer: Outer) -> Iterator[Refused]:
    """Every refused part of ``source``, in the order of the text."""
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ctx=ast.Load()):
                yield from _introspection(node.attr, node.value)
            case ast.Name(ctx=ast.Load()):
                yield from _name(node, parents)
            case ast.Compare():
                yield from _identity(node, outer)
            case ast.Call():
                yield from _time_zone(node)
            case ast.Constant(value=str() as text) if _NAMED_ZONE.search(text):
                yield _ZONE_REFUSED
        if isinstance(node, ast.expr) and _is_set(node, outer) and _shows_order(node, parents):
            yield Refused(ast.unparse(node)[:60], "is a set whose items are taken in order, which differs between processes",
                          "sort the items, or use a tuple")  # fmt: skip


def chain_of(node: ast.expr) -> tuple[str, ...]:
    """The name and the attributes of an expression such as ``a.b.c``; empty for any other."""
    taken: list[str] = []
    while isinstance(node, ast.Attribute):
        taken.insert(0, node.attr)
        node = node.value
    return (node.id, *taken) if isinstance(node, ast.Name) else ()


def attributes_by_name(source: str) -> Iterator[str]:
    """The attributes that ``getattr`` takes by constant names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and _is_named(node.func, "getattr") and len(node.args) > 1:
            name = node.args[1]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield name.value


def _is_named(node: ast.AST | None, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def _introspection(attribute: str, of: ast.expr) -> Iterator[Refused]:
    is_type = (isinstance(of, ast.Call) and _is_named(of.func, "type")) or getattr(of, "attr", "") == "__class__"
    if attribute in INTROSPECTION and not (attribute == "__name__" and is_type):
        yield Refused(attribute, "shows the origin or the place of an object, which a fingerprint does not cover",
                      "use a constant or a parameter in its place")  # fmt: skip


def _name(node: ast.Name, parents: dict[ast.AST, ast.AST]) -> Iterator[Refused]:
    if node.id in _OF_MODULES:
        yield Refused(node.id, "is a name of the module, which a fingerprint does not cover", "use a constant")
    if node.id != "getattr":
        return
    call = parents.get(node)
    name = call.args[1] if isinstance(call, ast.Call) and call.func is node and len(call.args) > 1 else None
    if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
        yield Refused("getattr", "reads an attribute whose name is not written in the source", "name the attribute")
    elif isinstance(call, ast.Call):
        yield from _introspection(name.value, call.args[0])


def _identity(node: ast.Compare, outer: Outer) -> Iterator[Refused]:
    sides = [node.left, *node.comparators]
    for left, how, right in zip(sides, node.ops, sides[1:], strict=False):
        if isinstance(how, ast.Is | ast.IsNot) and not (_is_one(left, outer) or _is_one(right, outer)):
            yield Refused(ast.unparse(node)[:60], "compares identities, which a fingerprint does not cover",
                          "compare with ==, or with None")  # fmt: skip


def _is_one(node: ast.expr, outer: Outer) -> bool:
    if isinstance(node, ast.Constant):
        return node.value is None or isinstance(node.value, bool) or node.value is Ellipsis
    if isinstance(node, ast.Call):
        return _is_named(node.func, "type")
    chain = chain_of(node)
    return bool(chain) and outer.is_singleton(chain)


_ZONE_REFUSED = Refused("tz", "names a time zone, whose rules differ between machines", "use UTC or a fixed offset")


def _time_zone(call: ast.Call) -> Iterator[Refused]:
    """``pa.timestamp(unit, tz)`` with a zone other than UTC or a fixed offset."""
    named = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if named != "timestamp":
        return
    for zone in [*call.args[1:2], *(keyword.value for keyword in call.keywords if keyword.arg == "tz")]:
        value = zone.value if isinstance(zone, ast.Constant) else zone
        if not (value is None or (isinstance(value, str) and _FIXED_ZONE.fullmatch(value))):
            yield _ZONE_REFUSED


def _is_set(node: ast.expr, outer: Outer) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
        return _is_set(node.left, outer) or _is_set(node.right, outer)
    if isinstance(node, ast.Call):
        return _is_named(node.func, "set", "frozenset")
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and outer.is_set(node.id)


def _shows_order(node: ast.expr, parents: dict[ast.AST, ast.AST]) -> bool:
    parent = parents.get(node)
    if isinstance(parent, ast.For):
        return parent.iter is node
    if isinstance(parent, ast.comprehension):
        return parent.iter is node and not _is_orderless(parents[parent], parents)
    if isinstance(parent, ast.Call) and node in parent.args:
        named = parent.func.attr if isinstance(parent.func, ast.Attribute) else getattr(parent.func, "id", "")
        return named in _ORDERED
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("pop", "__iter__")
    return isinstance(parent, ast.Starred) and not _is_set_display(parents.get(parent))


def _is_set_display(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Set)


def _is_orderless(comprehension: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether the result of a comprehension over a set does not depend on the order."""
    if isinstance(comprehension, ast.SetComp):
        return True
    user = parents.get(comprehension)
    return isinstance(user, ast.Call) and comprehension in user.args and _is_named(user.func, *_ORDERLESS)
