"""Operators that must see all events of some partitions before they can work on one.

Each states the range ``[start, end)`` of its partitions. It cannot be computed as it stands: an *analysis* makes one pass
over the range, and :func:`transforms.full_pass.resolve` then puts an ordinary operator with what was found in its place.

Statistics leave nulls out; those of numbers also NaN and infinities. A number is taken as float64.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NoReturn

from transforms.documents import parse_document
from transforms.errors import HeadraceError, InputError
from transforms.operators.declaration import Arg, KernelAt, Operator, Param, Params, Scalar, Types
from transforms.operators.signatures import ANY, HASHABLE, NUMERIC, at_least
from transforms.time_range import moment, moment_text
from transforms.types import ColumnType, Dense, DType, Weighted, type_from_document

#: Distance in rank, as a share of all values, that a quantile may be off by.
QUANTILE_EPSILON = 1e-4

UNTWINNED = "it is computed only after an analysis put an ordinary operator in its place"

_NUMBER = Arg("number", dense=NUMERIC)
_KERNEL = KernelAt("transforms.full_pass", "not_analyzed")


def not_analyzed(*values: object, **params: object) -> NoReturn:
    """What happens to whoever computes a full-pass operator as it stands."""
    raise InputError("a full-pass operator has not been analyzed", allowed="what an analysis put in its place",
                     next_step="submit the model to a warehouse: headrace analyze MODEL_FILE")  # fmt: skip


def _moment(value: Scalar) -> str:
    good = isinstance(value, str) and moment_text(moment(value)) == value
    return "" if good else "a time in UTC, as between() spells it"


_RANGE = (
    Param("start", str, check=_moment, doc="the first moment of the range that is analyzed; between() gives it"),
    Param("end", str, check=_moment, doc="the moment that the range ends before"),
)
_OOV = Param("oov_buckets", int, 1, check=at_least(1), doc="ids for values that are not in the vocabulary")
_TOP_K = Param("top_k", int, 0, check=at_least(0), doc="terms kept at most; 0 keeps all")


def _ids(types: Types, params: Params) -> ColumnType:
    return Weighted(DType.INT64) if isinstance(types[0], Weighted) else Dense(DType.INT64)


def _float_or_float64(types: Types, params: Params) -> ColumnType:
    return Dense(DType.FLOAT32 if types[0].dtype is DType.FLOAT32 else DType.FLOAT64)


VOCABULARY_IDS = Operator(
    name="vocabulary_ids",
    version=1,
    family="full pass",
    summary="Ids by frequency over the range, most frequent first, ties by greater bytes first; others as vocabulary_lookup.",
    args=(Arg("values", dense=HASHABLE, weighted=HASHABLE),),
    result=_ids,
    reference=not_analyzed,
    kernel=_KERNEL,
    params=(
        _TOP_K,
        Param("min_frequency", int, 1, check=at_least(1), doc="times a term occurs at least"),
        _OOV,
        *_RANGE,
    ),
    cost_ns=40,
    lifts=True,
    untwinned=UNTWINNED,
)

LABELLED_VOCABULARY_IDS = Operator(
    name="labelled_vocabulary_ids",
    version=1,
    family="full pass",
    summary="Ids by mutual information with a label over the range, most informative first, ties by greater bytes first.",
    args=(Arg("values", dense=HASHABLE), Arg("label", dense=frozenset({DType.BOOL, DType.INT64}))),
    result=_ids,
    reference=not_analyzed,
    kernel=_KERNEL,
    params=(_TOP_K, _OOV, *_RANGE),
    cost_ns=40,
    lifts=True,
    untwinned=UNTWINNED,
)

QUANTILE_BUCKETS = Operator(
    name="quantile_buckets",
    version=1,
    family="full pass",
    summary="bucketize at the quantiles of the range, which fall within 0.0001 of their rank; equal boundaries are one.",
    args=(_NUMBER,),
    result=lambda types, params: Dense(DType.INT64),
    reference=not_analyzed,
    kernel=_KERNEL,
    params=(Param("n", int, check=at_least(2), doc="buckets of about equally many values, at most"), *_RANGE),
    cost_ns=10,
    lifts=True,
    untwinned=UNTWINNED,
)

STANDARDIZE_OVER = Operator(
    name="standardize_over",
    version=1,
    family="full pass",
    summary="standardize by the mean and the (population) standard deviation of the range.",
    args=(_NUMBER,),
    result=_float_or_float64,
    reference=not_analyzed,
    kernel=_KERNEL,
    params=_RANGE,
    cost_ns=4,
    lifts=True,
    untwinned=UNTWINNED,
)

MIN_MAX_OVER = Operator(
    name="min_max_over",
    version=1,
    family="full pass",
    summary="min_max by the least and the greatest value of the range; values beyond them become 0 or 1.",
    args=(_NUMBER,),
    result=_float_or_float64,
    reference=not_analyzed,
    kernel=_KERNEL,
    params=_RANGE,
    cost_ns=4,
    lifts=True,
    untwinned=UNTWINNED,
)


def _digest(value: Scalar) -> str:
    return "" if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) else "a digest in hexadecimal"


def _column_type(value: Scalar) -> str:
    try:
        _type_of(str(value))
    except HeadraceError:
        return "the type of a column, as JSON"
    return ""


@lru_cache(maxsize=1024)
def _type_of(text: str) -> ColumnType:
    return type_from_document(parse_document(text, "column type"))


PREPROCESSING_OUTPUT = Operator(
    name="preprocessing_output",
    version=1,
    family="full pass",
    summary="One output of a tf.Transform preprocessing_fn whose analyzers run over the range; see functions.md.",
    args=(Arg("columns", dense=ANY, ragged=ANY, vector=ANY, variadic=True),),
    result=lambda types, params: _type_of(str(params["gives"])),
    reference=not_analyzed,
    kernel=_KERNEL,
    params=(
        Param("function", str, check=_digest, doc="the digest of the traced function, analyzers included"),
        Param("output", str, doc="the key of the output"),
        Param("columns", tuple, item=str, doc="the key of every column, in the order in which they are given"),
        Param("gives", str, check=_column_type, doc="the type of the output, as JSON"),
        *_RANGE,
    ),
    nulls="see",
    cost_ns=500,
    untwinned=UNTWINNED,
)

OPERATORS = (
    VOCABULARY_IDS,
    LABELLED_VOCABULARY_IDS,
    QUANTILE_BUCKETS,
    STANDARDIZE_OVER,
    MIN_MAX_OVER,
    PREPROCESSING_OUTPUT,
)

#: The names of these operators, which nothing can compute as they stand.
FULL_PASS = frozenset(operator.name for operator in OPERATORS)

#: Those whose artifact is terms; that of the others is numbers.
VOCABULARIES = frozenset({VOCABULARY_IDS.name, LABELLED_VOCABULARY_IDS.name})
