"""Operators over one number.

Floats are computed in float64 and rounded once to the result type. A float result that is NaN is always the one
quiet NaN, so that memos are equal bit for bit on every machine.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence

from transforms.errors import InputError, TypeMismatch
from transforms.operators.declaration import Arg, KernelAt, Law, Operator, Param, Params, Scalar, Types
from transforms.operators.signatures import ANY, INT64_MAX, INT64_MIN, NUMERIC, finite, not_nan
from transforms.types import ColumnType, Dense, DType

_KERNELS = "transforms.kernels.numeric"
_NUMBER = Arg("number", dense=NUMERIC)

#: ln 2 in two parts: the first has 21 trailing zero bits, so that its product with an exponent is exact.
LN2_HIGH, LN2_LOW = float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")
SQRT_HALF = 0.5**0.5
LOG_TERMS = 11


def log1p(x: float) -> float:
    """ln(1 + x) by additions, multiplications and divisions only, so that every machine gives the same bits.

    1 + x is split as 2**k * m with m near 1, and ln m = 2 * atanh(s) with s = (m - 1) / (m + 1). What rounding 1 + x
    lost is added back. Within 2 units in the last place of the true value.
    """
    if math.isnan(x) or x < -1.0:
        return math.nan
    if x == -1.0:
        return -math.inf
    if math.isinf(x) or abs(x) < 2.0**-54:
        return x
    k, lost, f = 0, 0.0, x
    if not -0.29 < x < 0.41:
        u = 1.0 + x
        lost = (x - (u - 1.0)) / u if u < 2.0**53 else 0.0
        m, k = math.frexp(u)
        if m < SQRT_HALF:
            m, k = m * 2.0, k - 1
        f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    series = 0.0
    for i in range(LOG_TERMS, 0, -1):
        series = z * (series + 1.0 / (2 * i + 1))
    return k * LN2_HIGH + (2.0 * s + (2.0 * s * series + (lost + k * LN2_LOW)))


def _clip(x: float, *, low: float, high: float) -> float:
    if isinstance(x, int):
        return min(max(x, whole_bound(low)), whole_bound(high))
    return low if x < low else high if x > high else x


def whole_bound(bound: float) -> int:
    """A bound as the int64 nearest to it."""
    if math.isinf(bound):
        return INT64_MAX if bound > 0 else INT64_MIN
    return min(max(int(bound), INT64_MIN), INT64_MAX)


def _scale(x: float, *, factor: float, offset: float) -> float:
    return float(x) * factor + offset


def _bucketize(x: float, *, boundaries: Sequence[float]) -> int:
    return len(boundaries) if math.isnan(x) else bisect.bisect_right(boundaries, float(x))


def _fill_null(x: Scalar | None, *, value: Scalar) -> Scalar:
    return value if x is None else x


def _float_or_float64(types: Types, params: Params) -> ColumnType:
    """float32 stays, everything else becomes float64."""
    return Dense(DType.FLOAT32) if types[0].dtype is DType.FLOAT32 else Dense(DType.FLOAT64)


def _clip_type(types: Types, params: Params) -> ColumnType:
    low, high = params["low"], params["high"]
    assert isinstance(low, float)
    assert isinstance(high, float)
    if low > high:
        raise InputError("the bounds of clip are reversed", value=(low, high), allowed="low <= high")
    whole = all(math.isinf(bound) or bound.is_integer() for bound in (low, high))
    if types[0].dtype is DType.INT64 and not whole:
        raise TypeMismatch("clip of integers needs whole bounds", value=(low, high), next_step="cast to float64 first")
    return Dense(types[0].dtype)


def _bucketize_type(types: Types, params: Params) -> ColumnType:
    boundaries = params["boundaries"]
    assert isinstance(boundaries, tuple)
    return Dense(DType.INT64, len(boundaries) + 1)


def _ascending(value: Scalar) -> str:
    good = (
        isinstance(value, tuple)
        and len(value) > 0
        and all(isinstance(item, float) and math.isfinite(item) for item in value)
        and all(a < b for a, b in itertools.pairwise(value))  # type: ignore[operator]
    )
    return "" if good else "finite numbers in strictly ascending order, at least one"


_FILLS: dict[DType, tuple[type, ...]] = {
    DType.BOOL: (bool,),
    DType.INT64: (int,),
    DType.FLOAT32: (int, float),
    DType.FLOAT64: (int, float),
    DType.STRING: (str,),
    DType.TIMESTAMP: (int,),
}


def _fill_type(types: Types, params: Params) -> ColumnType:
    value, dtype = params["value"], types[0].dtype
    kinds = _FILLS[dtype]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise TypeMismatch(f"fill_null cannot put this value into {types[0]}", value=value,
                           allowed=" or ".join(kind.__name__ for kind in kinds))  # fmt: skip
    if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
        raise InputError("the fill value does not fit int64", value=value, allowed=f"{INT64_MIN} .. {INT64_MAX}")
    buckets = getattr(types[0], "buckets", None)
    inside = buckets is not None and isinstance(value, int) and 0 <= value < buckets
    return Dense(dtype, buckets if inside else None)


LOG1P = Operator(
    name="log1p",
    version=1,
    family="numeric",
    summary="ln(1 + x). -1 gives -inf, below is NaN. float32 stays float32, all else gives float64.",
    args=(_NUMBER,),
    result=_float_or_float64,
    reference=lambda x: log1p(float(x)),
    kernel=KernelAt(_KERNELS, "log1p"),
    cost_ns=10,
)

CLIP = Operator(
    name="clip",
    version=1,
    family="numeric",
    summary="The nearest number in [low, high]; NaN stays NaN. An infinite bound is no bound.",
    args=(_NUMBER,),
    result=_clip_type,
    reference=_clip,
    kernel=KernelAt(_KERNELS, "clip"),
    params=(
        Param("low", float, -math.inf, check=not_nan, doc="the least value"),
        Param("high", float, math.inf, check=not_nan, doc="the greatest value"),
    ),
    laws=frozenset({Law.IDEMPOTENT}),
    cost_ns=2,
)

SCALE = Operator(
    name="scale",
    version=1,
    family="numeric",
    summary="x * factor + offset, each step rounded to float64. float32 stays float32, all else gives float64.",
    args=(_NUMBER,),
    result=_float_or_float64,
    reference=_scale,
    kernel=KernelAt(_KERNELS, "scale"),
    params=(
        Param("factor", float, check=finite, doc="multiplied with each number"),
        Param("offset", float, 0.0, check=finite, doc="added after that"),
    ),
    cost_ns=2,
)

BUCKETIZE = Operator(
    name="bucketize",
    version=1,
    family="numeric",
    summary="How many boundaries are <= x: a boundary belongs to the bucket on its right. NaN goes to the last bucket.",
    args=(_NUMBER,),
    result=_bucketize_type,
    reference=_bucketize,
    kernel=KernelAt(_KERNELS, "bucketize"),
    params=(Param("boundaries", tuple, check=_ascending, doc="ascending; n boundaries make n + 1 buckets"),),
    cost_ns=10,
)

FILL_NULL = Operator(
    name="fill_null",
    version=1,
    family="numeric",
    summary="value where there is none. NaN is a value and stays.",
    args=(Arg("values", dense=ANY),),
    result=_fill_type,
    reference=_fill_null,
    kernel=KernelAt("transforms.kernels.conditional", "fill_null"),
    params=(Param("value", (bool, int, float, str), doc="of the column's type; microseconds for a timestamp"),),
    laws=frozenset({Law.IDEMPOTENT}),
    nulls="see",
    cost_ns=2,
)

OPERATORS = (LOG1P, CLIP, SCALE, BUCKETIZE, FILL_NULL)
