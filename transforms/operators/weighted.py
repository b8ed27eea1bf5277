"""Operators over weighted lists: any number of ids, each with a float32 weight.

Weights are computed in float64, sums from left to right, and rounded once. A number closer to 0 than ``TINY`` counts as
0.0, in what is computed with and in what is given: TensorFlow computes so near 0, and what a processor does there is a
setting of the thread.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from transforms.operators.declaration import Arg, Example, Imported, Law, Operator, Param, Params, Scalar, Types
from transforms.operators.signatures import ANY, HASHABLE, NUMERIC, at_least, first
from transforms.types import ColumnType, Dense, DType, Ragged, Weighted

_KERNELS = "transforms.kernels.weighted"
_TWINS = "transforms.twins.weighted"
_WEIGHTED = Arg("items", weighted=ANY)
#: The least normal float32 above 0.
TINY = 2.0**-126
_LEAST_FACTOR = 2.0**-1022
NORMS = ("l1", "l2", "max")
POOLS = ("sum", "mean", "max", "min")

Pair = tuple[object, float]


def flushed(x: float) -> float:
    """``x``, or 0.0 if it is closer to 0 than :data:`TINY`."""
    return 0.0 if abs(x) < TINY else x


def _weighted_by(ids: Sequence[object], weights: Sequence[float]) -> list[Pair]:
    return [(item, flushed(float(weight))) for item, weight in zip(ids, weights, strict=True)]


def _term_frequency(items: Sequence[object], *, relative: bool) -> list[Pair]:
    return [(item, count / (len(items) if relative else 1)) for item, count in Counter(items).items()]


def _ids(items: Sequence[Pair]) -> list[object]:
    return [item for item, _ in items]


def _weights(items: Sequence[Pair]) -> list[float]:
    return [weight for _, weight in items]


def _top_k(items: Sequence[Pair], *, k: int) -> list[Pair]:
    return sorted(items, key=lambda pair: (math.isnan(pair[1]), 0.0 if math.isnan(pair[1]) else -pair[1]))[:k]


def _scale_weights(items: Sequence[Pair], *, factor: float) -> list[Pair]:
    return [(item, flushed(flushed(weight) * factor)) for item, weight in items]


def _normalize_weights(items: Sequence[Pair], *, norm: str) -> list[Pair]:
    weights = [flushed(weight) for _, weight in items]
    whole = _norm(weights, norm) or 1.0
    return [(item, flushed(weight / whole)) for (item, _), weight in zip(items, weights, strict=True)]


def _norm(weights: Sequence[float], norm: str) -> float:
    if norm == "max":
        return math.nan if any(map(math.isnan, weights)) else max(map(abs, weights), default=0.0)
    total = 0.0
    for weight in weights:
        total += abs(weight) if norm == "l1" else weight * weight
    return math.sqrt(total) if norm == "l2" else total


def _pool(items: Sequence[float | Pair], *, how: str) -> float | None:
    numbers = [flushed(float(item[1] if isinstance(item, tuple) else item)) for item in items]
    total = 0.0
    for number in numbers:
        total += number
    if how == "sum":
        return flushed(total)
    if not numbers:
        return None
    if how == "mean":
        return flushed(total / len(numbers))
    if any(map(math.isnan, numbers)):
        return math.nan
    return max(numbers) if how == "max" else min(numbers)


def _weighted_type(types: Types, params: Params) -> ColumnType:
    return Weighted(types[0].dtype, types[0].buckets)


def _ids_type(types: Types, params: Params) -> ColumnType:
    return Ragged(types[0].dtype, types[0].buckets)


def _weights_type(types: Types, params: Params) -> ColumnType:
    return Ragged(DType.FLOAT32)


def _pooled_type(types: Types, params: Params) -> ColumnType:
    narrow = isinstance(types[0], Weighted) or types[0].dtype is DType.FLOAT32
    return Dense(DType.FLOAT32 if narrow else DType.FLOAT64)


def _one_of(names: Sequence[str]) -> Callable[[Scalar], str]:
    return lambda value: "" if value in names else ", ".join(names)


def _factor(value: Scalar) -> str:
    good = isinstance(value, float) and math.isfinite(value) and (value == 0.0 or abs(value) >= _LEAST_FACTOR)
    return "" if good else "a finite number, 0 or at least 2**-1022 away from it"


_DEMO = {"topics": [[("cars", 1.0), ("boats", 3.0)], []]}
_TOPICS = 'hr.weighted("topics", "string")'

WEIGHTED_BY = Operator(
    name="weighted_by",
    version=1,
    family="weighted",
    summary="The ids of one list with the numbers of the other as weights; other lengths are an error.",
    args=(Arg("ids", ragged=ANY), Arg("weights", ragged=NUMERIC)),
    result=_weighted_type,
    reference=_weighted_by,
    kernel=Imported(_KERNELS, "weighted_by"),
    cost_ns=30,
    twin=Imported(_TWINS, "weighted_by"),
    example=Example(
        'hr.ragged("shops", "string").weighted_by(hr.ragged("visits", "int64"))',
        {"shops": [["a", "b"], []], "visits": [[2, 5], []]},
        [[("a", 2.0), ("b", 5.0)], []],
    ),
)

TERM_FREQUENCY = Operator(
    name="term_frequency",
    version=1,
    family="weighted",
    summary="Each value once, at its first occurrence, weighted by its number of occurrences or its share of the list.",
    args=(Arg("items", ragged=HASHABLE),),
    result=_weighted_type,
    reference=_term_frequency,
    kernel=Imported(_KERNELS, "term_frequency"),
    params=(Param("relative", bool, False, doc="divide by the length of the list"),),
    cost_ns=200,
    twin=Imported(_TWINS, "term_frequency"),
    example=Example(
        'hr.text("title").unigrams().term_frequency()',
        {"title": ["red shoes red", None]},
        [[("red", 2.0), ("shoes", 1.0)], []],
    ),
)

IDS = Operator(
    name="ids",
    version=1,
    family="weighted",
    summary="The ids of a weighted list, without the weights.",
    args=(_WEIGHTED,),
    result=_ids_type,
    reference=_ids,
    kernel=Imported(_KERNELS, "ids"),
    cost_ns=2,
    twin=Imported(_TWINS, "ids"),
    example=Example(f"{_TOPICS}.ids()", _DEMO, [["cars", "boats"], []]),
)

WEIGHTS = Operator(
    name="weights",
    version=1,
    family="weighted",
    summary="The weights of a weighted list, without the ids.",
    args=(_WEIGHTED,),
    result=_weights_type,
    reference=_weights,
    kernel=Imported(_KERNELS, "weights"),
    cost_ns=2,
    twin=Imported(_TWINS, "weights"),
    example=Example(f"{_TOPICS}.weights()", _DEMO, [[1.0, 3.0], []]),
)

TOP_K = Operator(
    name="top_k",
    version=1,
    family="weighted",
    summary="The k pairs of the greatest weights, greatest first; of equal weights the earlier first, NaN last.",
    args=(_WEIGHTED,),
    result=first,
    reference=_top_k,
    kernel=Imported(_KERNELS, "top_k"),
    params=(Param("k", int, check=at_least(1), doc="pairs kept of each list"),),
    laws=frozenset({Law.IDEMPOTENT}),
    cost_ns=100,
    twin=Imported(_TWINS, "top_k"),
    example=Example(f"{_TOPICS}.top_k(1)", _DEMO, [[("boats", 3.0)], []]),
)

SCALE_WEIGHTS = Operator(
    name="scale_weights",
    version=1,
    family="weighted",
    summary="Every weight multiplied by factor in float64, then rounded to float32.",
    args=(_WEIGHTED,),
    result=first,
    reference=_scale_weights,
    kernel=Imported(_KERNELS, "scale_weights"),
    params=(Param("factor", float, check=_factor, doc="the multiplier of each weight"),),
    cost_ns=30,
    twin=Imported(_TWINS, "scale_weights"),
    example=Example(f"{_TOPICS}.scale_weights(0.5)", _DEMO, [[("cars", 0.5), ("boats", 1.5)], []]),
)

NORMALIZE_WEIGHTS = Operator(
    name="normalize_weights",
    version=1,
    family="weighted",
    summary="Every weight divided by the norm of its list's weights: sum of magnitudes (l1), root of the sum of squares "
    "(l2), greatest magnitude (max). A norm of 0 divides nothing; a NaN makes all of its list NaN.",
    args=(_WEIGHTED,),
    result=first,
    reference=_normalize_weights,
    kernel=Imported(_KERNELS, "normalize_weights"),
    params=(Param("norm", str, "l1", check=_one_of(NORMS), doc="l1, l2 or max"),),
    cost_ns=60,
    twin=Imported(_TWINS, "normalize_weights"),
    example=Example(f"{_TOPICS}.normalize_weights()", _DEMO, [[("cars", 0.25), ("boats", 0.75)], []]),
)

POOL = Operator(
    name="pool",
    version=1,
    family="weighted",
    summary="One number for each list of numbers, or of weights: sum (0 for an empty list), or mean, max or min (null for "
    "an empty list). Any NaN gives NaN. float32 and weights give float32, all else float64.",
    args=(Arg("items", ragged=NUMERIC, weighted=ANY),),
    result=_pooled_type,
    reference=_pool,
    kernel=Imported(_KERNELS, "pool"),
    params=(Param("how", str, "sum", check=_one_of(POOLS), doc="sum, mean, max or min"),),
    cost_ns=40,
    twin=Imported(_TWINS, "pool"),
    example=Example('hr.ragged("prices", "float64").pool("mean")', {"prices": [[1.0, 4.0], []]}, [2.5, None]),
)

OPERATORS = (WEIGHTED_BY, TERM_FREQUENCY, IDS, WEIGHTS, TOP_K, SCALE_WEIGHTS, NORMALIZE_WEIGHTS, POOL)
