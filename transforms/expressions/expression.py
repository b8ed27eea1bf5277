"""The feature language: expressions over raw columns.

    query, title = text("query"), text("title")
    overlap = (query.unigrams() & title.unigrams()).hash_buckets(1_000_000)

Every method checks types at once, so that an error names the line that causes it. An expression is immutable and holds no
data. The operators are documented at their declarations, in ``transforms/operators``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from transforms.documents import MOST_CHARACTERS
from transforms.errors import InputError, TypeMismatch, nearest
from transforms.expressions.apply import Value, literal_node, moment_node, operand_node
from transforms.expressions.methods.comparisons import ComparisonMethods
from transforms.expressions.methods.full_pass import FullPassMethods
from transforms.expressions.methods.hashing import IdMethods
from transforms.expressions.methods.lists import ListMethods
from transforms.expressions.methods.numbers import NumberMethods
from transforms.expressions.methods.text import TextMethods
from transforms.expressions.methods.times import TimeMethods
from transforms.expressions.methods.web import WebMethods
from transforms.expressions.methods.weighted import WeightedMethods
from transforms.graphs.build import operation
from transforms.graphs.graph import RawColumn
from transforms.operators.plain_values import as_text
from transforms.time_range import Moment
from transforms.types import Dense, DType, Ragged, Vector, Weighted


class Expr(
    TextMethods,
    WebMethods,
    ListMethods,
    WeightedMethods,
    IdMethods,
    TimeMethods,
    NumberMethods,
    ComparisonMethods,
    FullPassMethods,
):
    """One feature expression; ``node`` is its graph. Columns create expressions.

    >>> (text("query").unigrams() & text("title").unigrams()).hash_buckets(100)
    hash_buckets(intersect(unigrams(query), unigrams(title)), buckets=100): Ragged[int64, buckets=100]
    """

    __slots__ = ()

    def __repr__(self) -> str:
        from transforms.render import expression_text

        return f"{expression_text(self.node)}: {self.type}"

    def _repr_html_(self) -> str:
        from transforms.render import graph_svg

        return f'<div style="overflow: auto">{graph_svg(self.node)}</div>'

    def __bool__(self) -> NoReturn:
        raise InputError(
            "an expression must not be used as a truth value",
            value=repr(self),
            next_step="use & | ~ for and, or, not, is_in for in, (a < x) & (x < b) for a < x < b, and if_else for if",
        )

    def __getattr__(self, name: str) -> NoReturn:
        methods = [method for method in dir(type(self)) if not method.startswith("_")]
        raise AttributeError(f"an expression has no {name!r}; allowed: {nearest(name, methods)}")

    __hash__ = None  # type: ignore[assignment]


def apply(op: str, *args: Expr, **params: object) -> Expr:
    """The registered operator ``op`` applied to expressions.

    Raises :class:`TypeMismatch` for an argument it does not take and :class:`InputError` for a wrong parameter.
    """
    for position, arg in enumerate(args):
        if not isinstance(arg, Expr):
            raise TypeMismatch(f"operator {op} must be applied to expressions", where=f"argument {position + 1}", value=arg,
                               next_step='wrap a column name, as in hr.text("query")')  # fmt: skip
    return Expr(operation(op, [arg.node for arg in args], params))


def moment(value: Moment) -> Expr:
    """A constant timestamp: a date, a time or its ISO 8601 text, in UTC unless it states an offset.

    Equal moments are one constant, however they are written. They are truncated to microseconds.

    >>> try_(
    ...     timestamp("time") >= moment("2026-03-02"), {"time": [datetime(2026, 3, 1), datetime(2026, 3, 2)]}
    ... ).to_pylist()
    [False, True]
    """
    return Expr(moment_node(value))


def literal(value: Value) -> Expr:
    """A constant: bool, int64, float64, string, or a timestamp of a date or time.

    >>> try_(if_else(int64("age") < 18, literal("minor"), literal("adult")), {"age": [7, 40]}).to_pylist()
    ['minor', 'adult']
    """
    return Expr(literal_node(value))


def column(name: str, dtype: DType | str) -> Expr:
    """A raw column with one value per event.

    >>> column("price", "float32")
    price: Dense[float32]
    """
    return Expr(RawColumn(Dense(_dtype(dtype)), _column_name(name)))


def ragged(name: str, dtype: DType | str) -> Expr:
    """A raw list column: any number of values per event.

    >>> try_(ragged("clicks", "int64").count(), {"clicks": [[7, 8, 9], []]}).to_pylist()
    [3, 0]
    """
    return Expr(RawColumn(Ragged(_dtype(dtype)), _column_name(name)))


def weighted(name: str, dtype: DType | str) -> Expr:
    """A raw column of (id, weight) pairs: Arrow ``list<struct<id, weight>>``, any number per event.

    >>> weighted("interests", "int64")
    interests: Weighted[int64]
    """
    return Expr(RawColumn(Weighted(_dtype(dtype)), _column_name(name)))


def vector(name: str, dtype: DType | str, size: int) -> Expr:
    """A raw column of exactly ``size`` values per event; none may be null.

    >>> vector("picture", "float32", 64)
    picture: Vector[float32, 64]
    """
    return Expr(RawColumn(Vector(_dtype(dtype), size), _column_name(name)))


def text(name: str) -> Expr:
    """A raw string column.

    >>> try_(text("query").lower(), {"query": ["Red Shoes", None]}).to_pylist()
    ['red shoes', None]
    """
    return column(name, DType.STRING)


def int64(name: str) -> Expr:
    """A raw integer column of any width.

    >>> try_(int64("clicks") + 1, {"clicks": [0, None]}).to_pylist()
    [1, None]
    """
    return column(name, DType.INT64)


def float32(name: str) -> Expr:
    """A raw column of single (or half) precision.

    >>> float32("price").fill_null(0.0).log1p()
    log1p(fill_null(price, value=0.0)): Dense[float32]
    """
    return column(name, DType.FLOAT32)


def float64(name: str) -> Expr:
    """A raw floating-point column of any width.

    >>> try_(float64("price") * 2.0, {"price": [0.1]}).to_pylist()
    [0.2]
    """
    return column(name, DType.FLOAT64)


def boolean(name: str) -> Expr:
    """A raw column of booleans.

    >>> try_(~boolean("clicked"), {"clicked": [True, False, None]}).to_pylist()
    [False, True, None]
    """
    return column(name, DType.BOOL)


def timestamp(name: str) -> Expr:
    """A raw column of timestamps; read as microseconds in UTC.

    >>> try_(timestamp("time").hour_of_day(), {"time": [datetime(2026, 3, 2, 13, 5)]}).to_pylist()
    [13]
    """
    return column(name, DType.TIMESTAMP)


def concat(*parts: Expr) -> Expr:
    """The items of each part, concatenated.

    >>> try_(
    ...     concat(text("query").unigrams(), text("title").unigrams()), {"query": ["red shoes"], "title": ["boots"]}
    ... ).to_pylist()
    [['red', 'shoes', 'boots']]
    """
    return apply("concat", *parts)


def cross(*parts: Expr, buckets: int) -> Expr:
    """Every combination of one value from each part, hashed into ``buckets``.

    >>> print(cross(text("query").lower(), timestamp("time").hour_of_day(), buckets=100_000).type)
    Dense[int64, buckets=100000]
    """
    return apply("cross", *parts, buckets=buckets)


def if_else(condition: Expr, then: Expr | Value, otherwise: Expr | Value) -> Expr:
    """``then`` where the condition holds, else ``otherwise``.

    >>> try_(if_else(float64("price") > 3, 1, 0), {"price": [5.0, 1.0, None]}).to_pylist()
    [1, 0, None]
    """
    if not isinstance(condition, Expr):
        raise TypeMismatch("a condition must be an expression", where="operator if_else, argument 1 (condition)",
                           value=condition, allowed="Dense[bool]", next_step="compare a column, as in price > 3")  # fmt: skip
    peer = then if isinstance(then, Expr) else otherwise if isinstance(otherwise, Expr) else condition
    return apply("if_else", condition, _operand(then, peer), _operand(otherwise, peer))


def coalesce(*parts: Expr | Value) -> Expr:
    """The first value that is not null; a plain value comes last, as in ``coalesce(price, old_price, 0)``.

    >>> try_(
    ...     coalesce(int64("price"), int64("old_price"), 0), {"price": [5, None, None], "old_price": [7, 6, None]}
    ... ).to_pylist()
    [5, 6, 0]
    """
    return apply("coalesce", *_operands(parts))


def minimum(*parts: Expr | Value) -> Expr:
    """The least of several numbers.

    >>> try_(minimum(int64("bid"), int64("budget"), 100), {"bid": [7, 300], "budget": [9, 200]}).to_pylist()
    [7, 100]
    """
    return apply("minimum", *_operands(parts))


def maximum(*parts: Expr | Value) -> Expr:
    """The greatest of several numbers.

    >>> try_(maximum(int64("bid"), 10), {"bid": [7, 300]}).to_pylist()
    [10, 300]
    """
    return apply("maximum", *_operands(parts))


def _operands(parts: Sequence[Expr | Value]) -> list[Expr]:
    peer = next((part for part in parts if isinstance(part, Expr)), None)
    return [_operand(part, peer) for part in parts]


def _operand(value: Expr | Value, peer: Expr | None) -> Expr:
    """An expression unchanged; a plain value as a literal that fits ``peer``."""
    if isinstance(value, Expr):
        return value
    return Expr(literal_node(value) if peer is None else operand_node(value, peer.node))


def _dtype(dtype: DType | str) -> DType:
    if not isinstance(dtype, str) or dtype not in set(DType):
        raise InputError("unknown element type", value=dtype, allowed=", ".join(DType))
    return DType(dtype)


def _column_name(name: str) -> str:
    if not isinstance(name, str) or not name:
        raise InputError("the name of a column must be a non-empty text", value=name)
    if len(name) > MOST_CHARACTERS:
        raise InputError("the name of a column must be shorter", value=f"{len(name):,} characters",
                         allowed=f"at most {MOST_CHARACTERS:,} characters")  # fmt: skip
    return as_text(name, "the name of a column")
