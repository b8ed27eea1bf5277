"""The feature language: expressions over raw columns, read like the sentence they mean.

    query, title = text("query"), text("title")
    overlap = (query.unigrams() & title.unigrams()).hash_buckets(1_000_000)

Every method checks types at once, so that a mistake is reported on the line that makes it. An expression is immutable
and holds no data. What each operator does is documented where it is declared, under ``transforms/operators``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from transforms.errors import InputError, TypeMismatch
from transforms.graph import Literal, Node, Operation, RawColumn
from transforms.operators import REGISTRY
from transforms.types import ColumnType, Dense, DType, Ragged

Value = bool | int | float | str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Expr:
    """One feature expression; ``node`` is its graph. Build them from columns, never directly."""

    node: Node

    @property
    def type(self) -> ColumnType:
        """The column type this expression yields."""
        return self.node.type

    def __repr__(self) -> str:
        from transforms.render import expression_text

        return f"{expression_text(self.node)}: {self.type}"

    def __bool__(self) -> NoReturn:
        raise InputError("an expression has no truth value while a model is described",
                         value=repr(self), next_step="use if_else(condition, a, b)")  # fmt: skip

    __hash__ = None  # type: ignore[assignment]

    # text
    def lower(self) -> Expr:
        """Text in lower case, all of Unicode."""
        return apply("lower", self)

    def normalize(self) -> Expr:
        """Text in Unicode normal form NFKC."""
        return apply("normalize", self)

    def split(self, sep: str) -> Expr:
        """Text cut at every ``sep``; empty pieces are dropped."""
        return apply("split", self, sep=sep)

    def unigrams(self) -> Expr:
        """Text cut at white space."""
        return apply("unigrams", self)

    def ngrams(self, n: int, joiner: str = " ") -> Expr:
        """Every ``n`` tokens in a row, joined."""
        return apply("ngrams", self, n=n, joiner=joiner)

    def char_ngrams(self, n: int) -> Expr:
        """Every ``n`` code points in a row."""
        return apply("char_ngrams", self, n=n)

    def length(self) -> Expr:
        """Code points in a text."""
        return apply("length", self)

    # sets and ragged
    def unique(self) -> Expr:
        """Distinct items in order of first occurrence."""
        return apply("unique", self)

    def head(self, n: int) -> Expr:
        """The first ``n`` items."""
        return apply("head", self, n=n)

    def count(self) -> Expr:
        """How many items."""
        return apply("count", self)

    def __and__(self, other: Expr) -> Expr:
        return apply("intersect", self, other)

    def __or__(self, other: Expr) -> Expr:
        return apply("union", self, other)

    # ids
    def hash_buckets(self, buckets: int, salt: str = "") -> Expr:
        """FarmHash Fingerprint64 modulo ``buckets``, as ``tf.strings.to_hash_bucket_fast`` computes it."""
        return apply("hash_buckets", self, buckets=buckets, salt=salt)

    # numbers
    def log1p(self) -> Expr:
        """log(1 + x)."""
        return apply("log1p", self)

    def clip(self, low: float, high: float) -> Expr:
        """Values held within [low, high]."""
        return apply("clip", self, low=low, high=high)

    def scale(self, factor: float, offset: float = 0.0) -> Expr:
        """x · factor + offset."""
        return apply("scale", self, factor=factor, offset=offset)

    def bucketize(self, boundaries: list[float] | tuple[float, ...]) -> Expr:
        """The index of the interval a value falls in; a boundary belongs to the interval on its right."""
        return apply("bucketize", self, boundaries=tuple(float(boundary) for boundary in boundaries))

    def fill_null(self, value: Value) -> Expr:
        """``value`` where this is null."""
        if isinstance(value, int) and not isinstance(value, bool) and _is_float(self.type):
            value = float(value)
        return apply("fill_null", self, value=value)

    def cast(self, dtype: DType | str) -> Expr:
        """The same value as another element type."""
        return apply("cast", self, dtype=str(dtype))

    def __add__(self, other: Expr | Value) -> Expr:
        return apply("add", self, _operand(other, self))

    def __radd__(self, other: Value) -> Expr:
        return apply("add", _operand(other, self), self)

    def __sub__(self, other: Expr | Value) -> Expr:
        if isinstance(self.type, Ragged):
            return apply("difference", self, _operand(other, self))
        return apply("subtract", self, _operand(other, self))

    def __rsub__(self, other: Value) -> Expr:
        return apply("subtract", _operand(other, self), self)

    def __mul__(self, other: Expr | Value) -> Expr:
        return apply("multiply", self, _operand(other, self))

    def __rmul__(self, other: Value) -> Expr:
        return apply("multiply", _operand(other, self), self)

    def __truediv__(self, other: Expr | Value) -> Expr:
        return apply("divide", self, _operand(other, self))

    def __rtruediv__(self, other: Value) -> Expr:
        return apply("divide", _operand(other, self), self)

    # comparisons
    def __eq__(self, other: Expr | Value) -> Expr:  # type: ignore[override]
        return apply("equal", self, _operand(other, self))

    def __ne__(self, other: Expr | Value) -> Expr:  # type: ignore[override]
        return apply("not_equal", self, _operand(other, self))

    def __lt__(self, other: Expr | Value) -> Expr:
        return apply("less", self, _operand(other, self))

    def __le__(self, other: Expr | Value) -> Expr:
        return apply("less_equal", self, _operand(other, self))

    def __gt__(self, other: Expr | Value) -> Expr:
        return apply("greater", self, _operand(other, self))

    def __ge__(self, other: Expr | Value) -> Expr:
        return apply("greater_equal", self, _operand(other, self))

    # time
    def hour_of_day(self) -> Expr:
        """0 to 23, UTC."""
        return apply("hour_of_day", self)

    def day_of_week(self) -> Expr:
        """0 (Monday) to 6, UTC."""
        return apply("day_of_week", self)


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


def _operand(value: Expr | Value, other: Expr) -> Expr:
    """A plain number beside a float column is a float of that width, so that ``price + 1`` is ``price + 1.0``."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and _is_float(other.type):
        return Expr(Literal(Dense(other.type.dtype), float(value)))
    return literal(value)


def literal(value: Value) -> Expr:
    """A constant: bool, int64, float64 or string."""
    kinds = {bool: DType.BOOL, int: DType.INT64, float: DType.FLOAT64, str: DType.STRING}
    if type(value) not in kinds:
        raise InputError("a literal of this type is not supported", value=value, allowed="bool, int, float, str")
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise InputError("an integer literal does not fit int64", value=value)
    return Expr(Literal(Dense(kinds[type(value)]), value))


def column(name: str, dtype: DType | str) -> Expr:
    """A raw column with one value an event."""
    return Expr(RawColumn(Dense(_dtype(dtype)), _column_name(name)))


def ragged(name: str, dtype: DType | str) -> Expr:
    """A raw list column: any number of values an event."""
    return Expr(RawColumn(Ragged(_dtype(dtype)), _column_name(name)))


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
    return apply("if_else", condition, _operand(then, peer), _operand(otherwise, peer))


def coalesce(*parts: Expr) -> Expr:
    """The first value that is not null."""
    return apply("coalesce", *parts)


def _dtype(dtype: DType | str) -> DType:
    if dtype not in set(DType):
        raise InputError("unknown element type", value=str(dtype), allowed=", ".join(DType))
    return DType(dtype)


def _column_name(name: str) -> str:
    if not isinstance(name, str) or not name:
        raise InputError("a column is named by a non-empty text", value=name)
    return name
