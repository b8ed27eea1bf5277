"""The feature language: expressions over raw columns, read like the sentence they mean.

    query, title = text("query"), text("title")
    overlap = (query.unigrams() & title.unigrams()).hash_buckets(1_000_000)

Every method checks types at once, so that a mistake is reported on the line that makes it. An expression is immutable
and holds no data. What each operator does is documented where it is declared, under ``transforms/operators``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import NoReturn

from transforms.documents import MOST_CHARACTERS
from transforms.errors import InputError, TypeMismatch, nearest
from transforms.graph import Literal, Node, Operation, RawColumn
from transforms.methods.comparisons import ComparisonMethods
from transforms.methods.full_pass import FullPassMethods
from transforms.methods.ids import IdMethods
from transforms.methods.lists import ListMethods
from transforms.methods.numbers import NumberMethods
from transforms.methods.text import TextMethods
from transforms.methods.times import TimeMethods
from transforms.methods.web import WebMethods
from transforms.methods.weighted import WeightedMethods
from transforms.operators import REGISTRY
from transforms.operators.plain_values import as_float64, as_text, plain
from transforms.time_range import Moment, has_offset, microseconds
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, Weighted

Value = bool | int | float | str | date


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Expr(
    TextMethods,
    WebMethods,
    ListMethods,
    WeightedMethods,
    IdMethods,
    NumberMethods,
    ComparisonMethods,
    TimeMethods,
    FullPassMethods,
):
    """One feature expression; ``node`` is its graph. Build them from columns, never directly."""

    node: Node

    def __repr__(self) -> str:
        from transforms.render import expression_text

        return f"{expression_text(self.node)}: {self.type}"

    def _repr_html_(self) -> str:
        from transforms.render import graph_svg

        return f'<div style="overflow: auto">{graph_svg(self.node)}</div>'

    def __bool__(self) -> NoReturn:
        raise InputError("an expression has no truth value while a model is described",
                         value=repr(self),
                         next_step="use & | ~ for and, or, not, is_in for in, (a < x) & (x < b) for a < x < b, and if_else for if")  # fmt: skip

    def __getattr__(self, name: str) -> NoReturn:
        methods = [method for method in dir(type(self)) if not method.startswith("_")]
        raise AttributeError(f"an expression has no {name!r}; allowed: {nearest(name, methods)}")

    __hash__ = None  # type: ignore[assignment]


def apply(op: str, *args: Expr, **params: object) -> Expr:
    """The registered operator ``op`` applied to expressions.

    Raises :class:`TypeMismatch` for an argument it does not take and :class:`InputError` for a wrong parameter.
    """
    operator = REGISTRY[op]
    for position, arg in enumerate(args):
        if not isinstance(arg, Expr):
            raise TypeMismatch(f"operator {op} takes expressions", where=f"argument {position + 1}", value=arg,
                               next_step='wrap a column name, as in hr.text("query")')  # fmt: skip
    bound = operator.bind_params(params)
    result = operator.infer([arg.type for arg in args], bound)
    operands = tuple(arg.node for arg in args)
    return Expr(Operation(result, op, operator.version, operands, tuple(sorted(bound.items()))))


def _is_float(column_type: ColumnType) -> bool:
    return column_type.dtype in {DType.FLOAT32, DType.FLOAT64}


def operand(value: Expr | Value, other: Expr) -> Expr:
    """An expression as it is, a plain value as a literal of a type that fits.

    A plain number beside a float column is a float of that width, so that ``price + 1`` is ``price + 1.0``; a date, a time or
    its text beside a timestamp is a :func:`moment`.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, str | date) and other.type.dtype is DType.TIMESTAMP:
        return _moment_beside(value, other)
    if isinstance(value, int | float) and not isinstance(value, bool) and _is_float(other.type):
        return Expr(Literal(Dense(other.type.dtype), as_float64(value, f"a constant beside {other.type}")))
    return literal(value)


def _moment_beside(value: str | date, other: Expr) -> Expr:
    """A written moment as a literal. Raises :class:`InputError` for an offset beside a wall clock, which has none."""
    literal_moment = moment(value)
    if has_offset(value) and _is_wall_clock(other.node):
        raise InputError("a moment beside a wall clock must be written without an offset", where="in_zone", value=str(value),
                         allowed="what the wall clock shows, such as 2026-03-01T09:00",
                         next_step="compare the time itself, before in_zone, with a moment that has an offset")  # fmt: skip
    return literal_moment


def _is_wall_clock(node: Node) -> bool:
    """Whether a timestamp is what :meth:`in_zone` gives, or is taken from it."""
    ahead = [node]
    while ahead:
        node = ahead.pop()
        if isinstance(node, Operation):
            if node.op == "in_zone":
                return True
            ahead += [arg for arg in node.operands if arg.type.dtype is DType.TIMESTAMP]
    return False


def moment(value: Moment) -> Expr:
    """A constant timestamp: a date, a time or its ISO 8601 text, in UTC unless it states an offset.

    Equal moments are one constant, however they are written. What is finer than a microsecond is cut off.
    """
    return Expr(Literal(Dense(DType.TIMESTAMP), microseconds(value)))


def literal(value: Value) -> Expr:
    """A constant: bool, int64, float64, string, or a timestamp of a date or time."""
    if isinstance(value, date):
        return moment(value)
    kinds = {bool: DType.BOOL, int: DType.INT64, float: DType.FLOAT64, str: DType.STRING}
    if type(value) not in kinds:
        raise InputError(
            "a literal of this type is not supported", value=value, allowed="bool, int, float, str, date, datetime"
        )
    plain(value, "a literal")
    return Expr(Literal(Dense(kinds[type(value)]), value))


def column(name: str, dtype: DType | str) -> Expr:
    """A raw column with one value an event."""
    return Expr(RawColumn(Dense(_dtype(dtype)), _column_name(name)))


def ragged(name: str, dtype: DType | str) -> Expr:
    """A raw list column: any number of values an event."""
    return Expr(RawColumn(Ragged(_dtype(dtype)), _column_name(name)))


def weighted(name: str, dtype: DType | str) -> Expr:
    """A raw column of (id, weight) pairs: Arrow ``list<struct<id, weight>>``, any number an event."""
    return Expr(RawColumn(Weighted(_dtype(dtype)), _column_name(name)))


def vector(name: str, dtype: DType | str, size: int) -> Expr:
    """A raw column of exactly ``size`` values an event; none may be null."""
    return Expr(RawColumn(Vector(_dtype(dtype), size), _column_name(name)))


def text(name: str) -> Expr:
    """A raw string column."""
    return column(name, DType.STRING)


def int64(name: str) -> Expr:
    """A raw integer column of any width."""
    return column(name, DType.INT64)


def float32(name: str) -> Expr:
    """A raw column of single (or half) precision."""
    return column(name, DType.FLOAT32)


def float64(name: str) -> Expr:
    """A raw floating-point column of any width."""
    return column(name, DType.FLOAT64)


def boolean(name: str) -> Expr:
    """A raw column of booleans."""
    return column(name, DType.BOOL)


def timestamp(name: str) -> Expr:
    """A raw column of timestamps; read as microseconds in UTC."""
    return column(name, DType.TIMESTAMP)


def concat(*parts: Expr) -> Expr:
    """The items of each part, one after the other."""
    return apply("concat", *parts)


def cross(*parts: Expr, buckets: int) -> Expr:
    """Every combination of one value from each part, hashed into ``buckets``."""
    return apply("cross", *parts, buckets=buckets)


def if_else(condition: Expr, then: Expr | Value, otherwise: Expr | Value) -> Expr:
    """``then`` where the condition holds, else ``otherwise``."""
    if not isinstance(condition, Expr):
        raise TypeMismatch("a condition is an expression", where="operator if_else, argument 1 (condition)",
                           value=condition, allowed="Dense[bool]", next_step="compare a column, as in price > 3")  # fmt: skip
    peer = then if isinstance(then, Expr) else otherwise if isinstance(otherwise, Expr) else condition
    return apply("if_else", condition, operand(then, peer), operand(otherwise, peer))


def coalesce(*parts: Expr | Value) -> Expr:
    """The first value that is not null; a plain value comes last, as in ``coalesce(price, old_price, 0)``."""
    return apply("coalesce", *_operands(parts))


def minimum(*parts: Expr | Value) -> Expr:
    """The least of several numbers."""
    return apply("minimum", *_operands(parts))


def maximum(*parts: Expr | Value) -> Expr:
    """The greatest of several numbers."""
    return apply("maximum", *_operands(parts))


def _operands(parts: Sequence[Expr | Value]) -> list[Expr]:
    peer = next((part for part in parts if isinstance(part, Expr)), None)
    return [
        part if isinstance(part, Expr) else literal(part) if peer is None else operand(part, peer) for part in parts
    ]


def _dtype(dtype: DType | str) -> DType:
    if not isinstance(dtype, str) or dtype not in set(DType):
        raise InputError("unknown element type", value=dtype, allowed=", ".join(DType))
    return DType(dtype)


def _column_name(name: str) -> str:
    if not isinstance(name, str) or not name:
        raise InputError("a column is named by a non-empty text", value=name)
    if len(name) > MOST_CHARACTERS:
        raise InputError("the name of a column must be shorter", value=f"{len(name):,} characters",
                         allowed=f"at most {MOST_CHARACTERS:,} characters")  # fmt: skip
    return as_text(name, "the name of a column")
