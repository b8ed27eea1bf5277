"""Result types and parameter checks that operators share."""

from __future__ import annotations

import math
from collections.abc import Callable

from transforms.errors import TypeMismatch
from transforms.operators.declaration import Params, Scalar, Types
from transforms.operators.plain_values import INT64_MAX as INT64_MAX
from transforms.operators.plain_values import INT64_MIN as INT64_MIN
from transforms.types import ColumnType, Dense, DType, Ragged

TEXT = frozenset({DType.STRING})
NUMERIC = frozenset({DType.INT64, DType.FLOAT32, DType.FLOAT64})
#: The types that can be hashed: text as its bytes, integers as their decimal text.
HASHABLE = frozenset({DType.STRING, DType.INT64})
ANY = frozenset(DType)


def always(column_type: ColumnType) -> Callable[[Types, Params], ColumnType]:
    """A result type that depends on nothing."""
    return lambda types, params: column_type


def first(types: Types, params: Params) -> ColumnType:
    """The type of the first argument."""
    return types[0]


def common_ragged(types: Types, params: Params) -> ColumnType:
    """Lists of one element type; ``buckets`` is kept where all agree. Raises :class:`TypeMismatch` for mixed elements."""
    dtypes = {column_type.dtype for column_type in types}
    if len(dtypes) > 1:
        raise TypeMismatch("the lists must have one element type", value=", ".join(map(str, types)),
                           allowed="lists of equal element type")  # fmt: skip
    return Ragged(types[0].dtype, common_buckets(types))


def common_buckets(types: Types) -> int | None:
    """The number of buckets that all types share, or None."""
    found = {getattr(column_type, "buckets", None) for column_type in types}
    return found.pop() if len(found) == 1 else None


def promote(types: Types) -> DType:
    """The common element type of mixed numbers.

    Equal types stay; int64 with float32 and anything with float64 is float64, as in numpy: float32 cannot hold an id.
    Other types do not mix. Raises :class:`TypeMismatch`.
    """
    dtypes = {column_type.dtype for column_type in types}
    if len(dtypes) == 1:
        return types[0].dtype
    if dtypes <= NUMERIC:
        return DType.FLOAT64
    raise TypeMismatch("the arguments must have equal types, or be numbers", value=", ".join(map(str, types)),
                       allowed="equal types, or numbers", next_step="cast one of them")  # fmt: skip


def promoted(types: Types, params: Params) -> ColumnType:
    """Dense numbers of :func:`promote`'s element type."""
    return Dense(promote(types))


def same_dtype(types: Types, params: Params) -> ColumnType:
    """The first argument's element type, without what was known about its range."""
    return Dense(types[0].dtype)


def float_or_float64(types: Types, params: Params) -> ColumnType:
    """float32 stays, everything else becomes float64."""
    return Dense(DType.FLOAT32) if types[0].dtype is DType.FLOAT32 else Dense(DType.FLOAT64)


def at_least(minimum: int) -> Callable[[Scalar], str]:
    """A check for whole numbers from ``minimum`` to the int64 limit."""
    return lambda value: "" if minimum <= int(value) <= INT64_MAX else f"{minimum} .. {INT64_MAX}"  # type: ignore[arg-type]


def finite(value: Scalar) -> str:
    """A check for numbers that are neither infinite nor NaN."""
    return "" if isinstance(value, float) and math.isfinite(value) else "a finite number"


def not_nan(value: Scalar) -> str:
    """A check for any number but NaN."""
    return "" if isinstance(value, float) and not math.isnan(value) else "a number other than NaN"


def not_empty(value: Scalar) -> str:
    """A check for text of at least one character."""
    return "" if isinstance(value, str) and value else "text of at least one character"


def unicode_text(value: Scalar) -> str:
    """A check for text that UTF-8 can hold: no half of a surrogate pair, in a tuple's items neither."""
    texts = value if isinstance(value, tuple) else (value,)
    return (
        ""
        if not any("\ud800" <= c <= "\udfff" for text in texts for c in str(text))
        else "text without lone surrogates"
    )


def wrap_int64(value: int) -> int:
    """``value`` modulo 2**64 as a signed number, as two's complement arithmetic gives it."""
    return (value - INT64_MIN) % 2**64 + INT64_MIN
