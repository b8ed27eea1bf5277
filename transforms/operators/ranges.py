"""Scaling and limiting numbers: by bounds, linearly, into buckets."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence

from transforms.errors import InputError, TypeMismatch
from transforms.operators.declaration import Arg, Example, Imported, Law, Operator, Param, Params, Scalar, Types
from transforms.operators.signatures import (
    INT64_MAX,
    INT64_MIN,
    NUMERIC,
    at_least,
    finite,
    float_or_float64,
    not_nan,
)
from transforms.types import ColumnType, Dense, DType

_KERNELS = "transforms.kernels.ranges"
_TWINS = "transforms.twins.ranges"
_NUMBER = Arg("number", dense=NUMERIC)


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


def _min_max(x: float, *, low: float, high: float, clip: bool) -> float:
    share = (float(x) - low) / (high - low)
    return _clip(share, low=0.0, high=1.0) if clip else share


def _standardize(x: float, *, mean: float, standard_deviation: float) -> float:
    if standard_deviation == 0.0:
        return math.nan if math.isnan(x) else 0.0
    difference = float(x) - mean
    return difference / standard_deviation


def _bucketize(x: float, *, boundaries: Sequence[float]) -> int:
    return len(boundaries) if math.isnan(x) else bisect.bisect_right(boundaries, float(x))


def _clip_type(types: Types, params: Params) -> ColumnType:
    low, high = _bounds(params)
    if low > high:
        raise InputError("the bounds of clip must be in order", value=(low, high), allowed="low <= high")
    whole = all(math.isinf(bound) or bound.is_integer() for bound in (low, high))
    if types[0].dtype is DType.INT64 and not whole:
        raise TypeMismatch(
            "the bounds of clip must be whole numbers for integers",
            value=(low, high),
            next_step="cast to float64 first",
        )
    return Dense(types[0].dtype)


def _min_max_type(types: Types, params: Params) -> ColumnType:
    low, high = _bounds(params)
    if not low < high or math.isinf(high - low):
        raise InputError(
            "low of min_max must be below high", value=(low, high), allowed="low < high, and high - low a finite number"
        )
    return float_or_float64(types, params)


def _bounds(params: Params) -> tuple[float, float]:
    low, high = params["low"], params["high"]
    assert isinstance(low, float)
    assert isinstance(high, float)
    return low, high


def _bucketize_type(types: Types, params: Params) -> ColumnType:
    boundaries = params["boundaries"]
    assert isinstance(boundaries, tuple)
    return Dense(DType.INT64, len(boundaries) + 1)


def _modulo_type(types: Types, params: Params) -> ColumnType:
    n = params["n"]
    assert isinstance(n, int)
    return Dense(DType.INT64, n)


def _ascending(value: Scalar) -> str:
    good = (
        isinstance(value, tuple)
        and len(value) > 0
        and all(isinstance(item, float) and math.isfinite(item) for item in value)
        and all(a < b for a, b in itertools.pairwise(value))  # type: ignore[operator]
    )
    return "" if good else "finite numbers in strictly ascending order, at least one"


def _not_negative(value: Scalar) -> str:
    return "" if isinstance(value, float) and 0 <= value < math.inf else "a finite number, 0 or greater"


CLIP = Operator(
    name="clip",
    version=1,
    family="numeric",
    summary="The nearest number in [low, high]; NaN stays NaN. An infinite bound is no bound.",
    args=(_NUMBER,),
    result=_clip_type,
    reference=_clip,
    kernel=Imported(_KERNELS, "clip"),
    params=(
        Param("low", float, -math.inf, check=not_nan, doc="the least value"),
        Param("high", float, math.inf, check=not_nan, doc="the greatest value"),
    ),
    laws=frozenset({Law.IDEMPOTENT}),
    cost_ns=2,
    lifts=True,
    twin=Imported(_TWINS, "clip"),
    example=Example('hr.int64("age").clip(18, 99)', {"age": [7, 40, 120, None]}, [18, 40, 99, None]),
)

SCALE = Operator(
    name="scale",
    version=1,
    family="numeric",
    summary="x * factor + offset, each step rounded to float64. float32 stays float32, all else gives float64.",
    args=(_NUMBER,),
    result=float_or_float64,
    reference=_scale,
    kernel=Imported(_KERNELS, "scale"),
    params=(
        Param("factor", float, check=finite, doc="the multiplier of each number"),
        Param("offset", float, 0.0, check=finite, doc="the number added to the product"),
    ),
    cost_ns=2,
    lifts=True,
    twin=Imported(_TWINS, "scale"),
    example=Example('hr.float64("celsius").scale(1.8, 32)', {"celsius": [0.0, 100.0, None]}, [32.0, 212.0, None]),
)

MIN_MAX = Operator(
    name="min_max",
    version=1,
    family="numeric",
    summary="(x - low) / (high - low), held within [0, 1] unless clip is off; NaN stays NaN. float32 stays float32, all else gives float64.",
    args=(_NUMBER,),
    result=_min_max_type,
    reference=_min_max,
    kernel=Imported(_KERNELS, "min_max"),
    params=(
        Param("low", float, check=finite, doc="what becomes 0"),
        Param("high", float, check=finite, doc="what becomes 1"),
        Param("clip", bool, True, doc="whether numbers outside the range become 0 or 1"),
    ),
    cost_ns=4,
    lifts=True,
    twin=Imported(_TWINS, "min_max"),
    example=Example('hr.float64("price").min_max(10, 20)', {"price": [5.0, 15.0, 30.0, None]}, [0.0, 0.5, 1.0, None]),
)

STANDARDIZE = Operator(
    name="standardize",
    version=1,
    family="numeric",
    summary="(x - mean) / standard_deviation; a deviation of 0 gives 0. NaN stays NaN. float32 stays float32, all else gives float64.",
    args=(_NUMBER,),
    result=float_or_float64,
    reference=_standardize,
    kernel=Imported(_KERNELS, "standardize"),
    params=(
        Param("mean", float, check=finite, doc="what becomes 0"),
        Param("standard_deviation", float, check=_not_negative, doc="the distance from the mean that becomes 1"),
    ),
    cost_ns=4,
    lifts=True,
    twin=Imported(_TWINS, "standardize"),
    example=Example('hr.float64("price").standardize(10, 4)', {"price": [10.0, 16.0, None]}, [0.0, 1.5, None]),
)

BUCKETIZE = Operator(
    name="bucketize",
    version=1,
    family="numeric",
    summary="How many boundaries are <= x: a boundary belongs to the bucket on its right. NaN goes to the last bucket.",
    args=(_NUMBER,),
    result=_bucketize_type,
    reference=_bucketize,
    kernel=Imported(_KERNELS, "bucketize"),
    params=(Param("boundaries", tuple, check=_ascending, doc="ascending; n boundaries make n + 1 buckets"),),
    cost_ns=3,
    lifts=True,
    twin=Imported(_TWINS, "bucketize"),
    example=Example('hr.float32("price").bucketize([10, 100])', {"price": [5.0, 10.0, 1e6, None]}, [0, 1, 2, None]),
)

MODULO = Operator(
    name="modulo",
    version=1,
    family="hash",
    summary="The remainder of x by n, never negative: ids in [0, n) from whole numbers as they are, without hashing.",
    args=(Arg("number", dense=frozenset({DType.INT64})),),
    result=_modulo_type,
    reference=lambda x, n: x % n,
    kernel=Imported(_KERNELS, "modulo"),
    params=(Param("n", int, check=at_least(1), doc="ids lie in [0, n)"),),
    laws=frozenset({Law.IDEMPOTENT}),
    cost_ns=6,
    lifts=True,
    twin=Imported(_TWINS, "modulo"),
    example=Example('hr.int64("user").modulo(10)', {"user": [7, 42, -1, None]}, [7, 2, 9, None]),
)

OPERATORS = (CLIP, SCALE, MIN_MAX, STANDARDIZE, BUCKETIZE, MODULO)
