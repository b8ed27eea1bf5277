"""The shapes of the documents that commands print with ``--json``, from the annotations and methods of their screens.

The JSON of a screen is its fields, or what its method ``json_fields`` returns. The expression of that method is evaluated over types: its
attributes have the declared ones, and a function without a useful annotation is read itself. What cannot be read is any value.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import textwrap
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime
from enum import Enum
from functools import cache
from types import FunctionType
from typing import Any, Literal, NewType

from headrace.reference.annotations import fields_of_class, imported, names_of, parameters_of, result_of
from headrace.reference.shapes import (
    ANY,
    NOTHING,
    NULL,
    NUMBER,
    TEXT,
    TRUTH,
    WHOLE,
    Items,
    Object,
    Shape,
    Simple,
    either,
    merged,
)

_SIMPLE: Mapping[Any, Shape] = {str: TEXT, bool: TRUTH, int: WHOLE, float: NUMBER, type(None): NULL, None: NULL,
                                datetime: Simple("string", form="date-time"), date: Simple("string", form="date")}  # fmt: skip
#: Results of built-in functions.
_BUILT_IN: Mapping[str, Any] = {"len": int, "str": str, "int": int, "float": float, "bool": bool, "repr": str, "any": bool, "all": bool,
                                "isinstance": bool, "abs": float, "round": float, "sum": float, "hasattr": bool}  # fmt: skip
_OF_TEXT = frozenset(
    {"isoformat", "join", "format", "replace", "strip", "removesuffix", "removeprefix", "lower", "upper", "hex"}
)
#: A chain of calls that is longer is not read: a document of a recursive value.
_DEEPEST = 12


class Unread(Exception):
    """An expression whose type is not known."""


@dataclasses.dataclass(frozen=True)
class Typed:
    """What is known of a value: its Python type, or the shape of a document that code makes."""

    kind: Any = Any
    shape: Shape | None = None

    @property
    def json(self) -> Shape:
        """The shape of the value in a document."""
        return shape_of(self.kind) if self.shape is None else self.shape


def shape_of(kind: Any, inside: tuple[Any, ...] = ()) -> Shape:
    """The shape of a Python type's values in a document; ``inside``: the classes that it is in, whose values may hold each other."""
    if kind is None or (isinstance(kind, type) and kind in _SIMPLE):
        return _SIMPLE[kind]
    if isinstance(kind, NewType):
        return shape_of(kind.__supertype__, inside)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return either(*(shape_of(one, inside) for one in arguments))
    if origin is Literal:
        return Simple(_SIMPLE[type(arguments[0])].text(), arguments)
    if origin is typing.Annotated:
        return shape_of(arguments[0], inside)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return Object(others=shape_of(arguments[1], inside))
    if isinstance(origin, type) and issubclass(origin, Iterable):
        items = [one for one in arguments if one is not Ellipsis]
        return Items(either(*(shape_of(one, inside) for one in items)) if items else NOTHING)
    return _of_class(kind, inside) if isinstance(kind, type) else ANY


def _of_class(kind: type, inside: tuple[Any, ...]) -> Shape:
    if kind in inside:
        return ANY  # a recursive value
    if issubclass(kind, Enum):
        values = tuple(one.value for one in kind)
        return Simple(_SIMPLE[type(values[0])].text(), values)
    for simple in (bool, int, float, str):
        if issubclass(kind, simple):
            return _SIMPLE[simple]
    method = getattr(kind, "json_fields", None)
    if isinstance(method, FunctionType):
        return returned(method, {"self": Typed(kind)}, (kind, *inside)).json
    if dataclasses.is_dataclass(kind):
        return Object({name: shape_of(one, (kind, *inside)) for name, one in fields_of_class(kind).items()})
    return ANY


@cache
def body_of(function: FunctionType) -> ast.FunctionDef:
    """The syntax of a function. Raises :class:`Unread` for a lambda, and :class:`OSError` without its source."""
    (found,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    if not isinstance(found, ast.FunctionDef):
        raise Unread
    return found


def returned(function: FunctionType, arguments: Mapping[str, Typed], inside: tuple[Any, ...] = ()) -> Typed:
    """What a function returns: its declared type where that says enough, else what its body makes of the arguments."""
    declared = result_of(function)
    if not _says_little(declared) or len(inside) > _DEEPEST or function in inside:
        return Typed(declared)
    reader = Reader(
        function, {**{name: Typed(kind) for name, kind in parameters_of(function).items()}, **arguments}, inside
    )
    try:
        reader.run(body_of(function).body)
    except (OSError, Unread):
        return Typed(declared)
    return Typed(shape=either(*(one.json for one in reader.returns))) if reader.returns else Typed(declared)


def _says_little(kind: Any) -> bool:
    """Whether a type has objects of any fields, or is any."""
    if kind is Any or kind is object:
        return True
    return any(_says_little(one) for one in typing.get_args(kind) if one is not Ellipsis)


class Reader:
    """Reads the body of a function in order; both ways of a condition are taken."""

    def __init__(self, function: FunctionType, names: Mapping[str, Typed], inside: tuple[Any, ...]) -> None:
        self.names = dict(names)
        self.module = function.__module__
        self.globals = names_of(function.__module__)
        self.inside = (function, *inside)
        self.returns: list[Typed] = []

    def run(self, lines: Iterable[ast.stmt]) -> None:
        """Read statements: what names stand for, and what is returned."""
        for line in lines:
            match line:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.names[name] = self.read(value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self.names[name] = self.read(value)
                case ast.AugAssign(target=ast.Name(id=name), op=ast.BitOr(), value=value):
                    self.names[name] = self._joined(self.names.get(name, Typed()), self.read(value))
                case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
                    self._bind(ast.Tuple(elts=targets), self.read(value))
                case ast.Return(value=ast.expr() as value):
                    self.returns.append(self.read(value))
                case ast.For(target=target, iter=source, body=body, orelse=others):
                    self._bind(target, self._item(self.read(source)))
                    self.run([*body, *others])
                case ast.If(test=test, body=body, orelse=others):
                    self.read(test)
                    self.run([*body, *others])
                case ast.With(items=items, body=body):
                    for item in items:
                        self.read(item.context_expr)
                    self.run(body)
                case ast.Try(body=body, handlers=handlers, orelse=others, finalbody=last):
                    self.run([*body, *(one for handler in handlers for one in handler.body), *others, *last])
                case ast.While(body=body):
                    self.run(body)
                case ast.Match(cases=cases):
                    self.run([one for case in cases for one in case.body])
                case ast.Expr(value=value):
                    self.read(value)
                case ast.ImportFrom():
                    self.names |= {name: self._known(value) for name, value in imported(line, self.module).items()}
                case ast.Assign(
                    targets=[ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key)))], value=value
                ):
                    own = self.names.get(name, Typed()).shape
                    if isinstance(own, Object):
                        self.names[name] = Typed(shape=either(own, merged(own, Object({key: self.read(value).json}))))
                case _:
                    pass

    def on_call(self, function: Any, values: Sequence[Typed], named: Mapping[str, Typed]) -> None:
        """A call that is read; a subclass may look at it."""

    def _bind(self, target: ast.expr, value: Typed) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Tuple):
            kinds = typing.get_args(value.kind)
            for place, one in enumerate(target.elts):
                known = typing.get_origin(value.kind) is tuple and Ellipsis not in kinds and place < len(kinds)
                self._bind(one, Typed(kinds[place]) if known else Typed())

    def read(self, node: ast.expr) -> Typed:
        """What is known of an expression's value."""
        match node:
            case ast.Constant(value=value):
                return Typed(type(value))
            case ast.JoinedStr():
                return Typed(str)
            case ast.Name(id=name):
                return self.names[name] if name in self.names else self._global(name)
            case ast.Attribute(value=of, attr=name):
                return self._attribute(self.read(of), name)
            case ast.Dict():
                return self._object(node)
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                items = [
                    self._item(self.read(one.value)) if isinstance(one, ast.Starred) else self.read(one)
                    for one in parts
                ]
                return Typed(shape=Items(either(*(one.json for one in items)) if items else NOTHING))
            case ast.ListComp(elt=made, generators=sources) | ast.GeneratorExp(elt=made, generators=sources) | ast.SetComp(elt=made, generators=sources):  # fmt: skip
                return Typed(shape=Items(self._within(sources).read(made).json))
            case ast.DictComp(value=made, generators=sources):
                return Typed(shape=Object(others=self._within(sources).read(made).json))
            case ast.IfExp(body=first, orelse=second):
                return self._either(self.read(first), self.read(second))
            case ast.BoolOp(values=parts):
                return self._either(*(self.read(one) for one in parts))
            case ast.Compare() | ast.UnaryOp(op=ast.Not()):
                return Typed(bool)
            case ast.UnaryOp(operand=of):
                return self.read(of)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return self._joined(self.read(left), self.read(right))
            case ast.BinOp(left=left, op=operation, right=right):
                return self._arithmetic(self.read(left), operation, self.read(right))
            case ast.Subscript(value=of):
                return self._item(self.read(of), of_mapping=True)
            case ast.Call():
                return self._call(node)
            case _:
                return Typed()

    def _within(self, sources: Sequence[ast.comprehension]) -> Reader:
        inner = copy.copy(self)
        inner.names, inner.returns = dict(self.names), []
        for source in sources:
            inner._bind(source.target, inner._item(inner.read(source.iter)))
        return inner

    def _either(self, *parts: Typed) -> Typed:
        if all(one.shape is None for one in parts) and not any(one.kind is Any for one in parts):
            kinds = list(dict.fromkeys(one.kind for one in parts))
            return Typed(typing.Union[tuple(kinds)])  # noqa: UP007
        return Typed(shape=either(*(one.json for one in parts)))

    def _joined(self, left: Typed, right: Typed) -> Typed:
        first, second = left.json, right.json
        return (
            Typed(shape=merged(first, second)) if isinstance(first, Object) and isinstance(second, Object) else Typed()
        )

    def _arithmetic(self, left: Typed, operation: ast.operator, right: Typed) -> Typed:
        kinds = {left.kind, right.kind}
        if str in kinds:
            return Typed(str)
        if isinstance(operation, ast.Div) or float in kinds:
            return Typed(float)
        return Typed(int) if kinds == {int} else Typed()

    def _global(self, name: str) -> Typed:
        if name in self.globals:
            return self._known(self.globals[name])
        return (
            Typed(_Callable(name))
            if name in _BUILT_IN or name in ("list", "tuple", "dict", "sorted", "zip", "enumerate")
            else Typed()
        )

    def _known(self, value: Any) -> Typed:
        return Typed(_Callable(value) if callable(value) or isinstance(value, types.ModuleType) else type(value))

    def _item(self, value: Typed, *, of_mapping: bool = False) -> Typed:
        """An item of a list, or with ``of_mapping`` a value of a mapping."""
        if isinstance(value.shape, Items):
            return Typed(shape=value.shape.of)
        if isinstance(value.shape, Object) and value.shape.others is not None:
            return Typed(shape=value.shape.others) if of_mapping else Typed(str)
        origin, arguments = typing.get_origin(value.kind), typing.get_args(value.kind)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return Typed(arguments[1 if of_mapping else 0])
        if isinstance(origin, type) and issubclass(origin, Sequence | AbstractSet | Iterable):
            kinds = [one for one in arguments if one is not Ellipsis]
            return Typed(kinds[0]) if len(set(kinds)) == 1 else Typed()
        return Typed()

    def _attribute(self, of: Typed, name: str) -> Typed:
        if isinstance(of.kind, _Callable):
            return Typed() if isinstance(of.kind.value, str) else self._known(getattr(of.kind.value, name, Any))
        kind = _without_none(of.kind)
        if typing.get_origin(kind) in (typing.Union, types.UnionType):
            return self._either(*(self._attribute(Typed(one), name) for one in typing.get_args(kind)))
        origin = typing.get_origin(kind)
        if isinstance(origin, type) and name in ("items", "values", "keys", "get", "most_common"):
            return Typed(_Bound(kind, name))
        if not isinstance(kind, type):
            return Typed(_Bound(kind, name)) if name in _OF_TEXT else Typed()
        if issubclass(kind, Enum) and name in ("value", "name"):
            return Typed(shape=_of_class(kind, ())) if name == "value" else Typed(str)
        hints = fields_of_class(kind) if kind.__module__ != "builtins" else {}
        if name in hints:
            return Typed(hints[name])
        found = inspect.getattr_static(kind, name, None)
        if isinstance(found, property) and isinstance(found.fget, FunctionType):
            return returned(found.fget, {"self": Typed(kind)}, self.inside)
        cached = getattr(found, "func", None)  # functools.cached_property
        if isinstance(cached, FunctionType):
            return returned(cached, {"self": Typed(kind)}, self.inside)
        return Typed(_Bound(kind, name))

    def _object(self, node: ast.Dict) -> Typed:
        found = Object()
        for key, value in zip(node.keys, node.values, strict=True):
            shape = self.read(value).json
            if key is None:
                part = shape if isinstance(shape, Object) else Object(others=ANY)
            elif isinstance(key, ast.Constant):
                part = Object({str(key.value): shape})
            else:
                part = Object(others=shape)
            found = merged(found, part)
        return Typed(shape=found)

    def _call(self, node: ast.Call) -> Typed:
        if isinstance(node.func, ast.IfExp):
            ways = (node.func.body, node.func.orelse)
            return self._either(*(self._call(ast.Call(way, node.args, node.keywords)) for way in ways))
        called = self.read(node.func).kind
        values = [self.read(one) for one in node.args if not isinstance(one, ast.Starred)]
        named = {one.arg: self.read(one.value) for one in node.keywords if one.arg}
        if isinstance(called, _Bound):
            return self._method(called, values, named)
        function = called.value if isinstance(called, _Callable) else called
        if getattr(function, "__name__", "") == "fields_of" and values:
            left_out = {one.value for one in node.args[1:] if isinstance(one, ast.Constant)}
            return self._fields(values[0], left_out)
        if function is dataclasses.replace and values:
            return values[0]
        self.on_call(function, values, named)
        if isinstance(function, str):
            return self._built_in(function, values)
        if isinstance(function, type):
            return Typed(function)
        if isinstance(function, FunctionType):
            return returned(
                function, {**dict(zip(parameters_of(function), values, strict=False)), **named}, self.inside
            )
        inner = getattr(function, "__func__", None)  # a class method
        if isinstance(inner, FunctionType):
            return returned(inner, {}, self.inside)
        return Typed()

    def _fields(self, value: Typed, left_out: AbstractSet[object]) -> Typed:
        kind = _without_none(value.kind)
        if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
            return Typed(shape=Object(others=ANY))
        inside = tuple(one for one in self.inside if isinstance(one, type))
        shapes = {name: shape_of(one, inside) for name, one in fields_of_class(kind).items() if name not in left_out}
        return Typed(shape=Object(shapes))

    def _built_in(self, name: str, values: Sequence[Typed]) -> Typed:
        if name in _BUILT_IN:
            return Typed(_BUILT_IN[name])
        first = values[0] if values else Typed(shape=Object() if name == "dict" else Items(NOTHING))
        if name == "dict" and isinstance(first.json, Items):
            pair = typing.get_args(self._item(first).kind)
            return Typed(dict[pair[0], pair[1]]) if len(pair) == 2 else Typed(shape=Object(others=ANY))  # type: ignore[valid-type]
        if name == "dict" or isinstance(first.json, Items):
            return Typed(first.kind, first.shape)
        return Typed(shape=Items(self._item(first).json))

    def _method(self, method: _Bound, values: Sequence[Typed], named: Mapping[str, Typed]) -> Typed:
        arguments = typing.get_args(method.kind)
        if method.name in _OF_TEXT:
            return Typed(str)
        if typing.get_origin(method.kind) is not None and len(arguments) == 2:
            key, value = arguments
            match method.name:
                case "items":
                    return Typed(list[tuple[key, value]])  # type: ignore[valid-type]
                case "values":
                    return Typed(list[value])  # type: ignore[valid-type]
                case "keys":
                    return Typed(list[key])  # type: ignore[valid-type]
                case "get":
                    return Typed(value | None)
        found = inspect.getattr_static(method.kind, method.name, None) if isinstance(method.kind, type) else None
        function = getattr(found, "__func__", found)
        if isinstance(function, FunctionType):
            own = [name for name in parameters_of(function) if name not in ("self", "cls")]
            return returned(
                function, {"self": Typed(method.kind), **dict(zip(own, values, strict=False)), **named}, self.inside
            )
        return Typed()


@dataclasses.dataclass(frozen=True)
class _Callable:
    """A function or class, or the name of a built-in one."""

    value: Any


@dataclasses.dataclass(frozen=True)
class _Bound:
    """A method of a value of a type."""

    kind: Any
    name: str


def _without_none(kind: Any) -> Any:
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return kind
    rest = [one for one in typing.get_args(kind) if one is not type(None)]
    return rest[0] if len(rest) == 1 else typing.Union[tuple(rest)]  # noqa: UP007
