"""Full-pass operators, which need an analysis of all events of a range of partitions.

Each states its range ``[start, end)``. It cannot be computed itself: an *analysis* makes one pass over the range, and
:func:`transforms.analysis.full_pass.resolve` then replaces it by an ordinary operator with the result.

Statistics ignore nulls; those of numbers also NaN and infinities. Numbers are read as float64.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NoReturn

from transforms.documents import parse_document
from transforms.errors import HeadraceError, InputError
from transforms.operators.declaration import Arg, Operator, Param, Params, Scalar, Types
from transforms.operators.signatures import ANY, HASHABLE, NUMERIC, at_least
from transforms.time_range import moment, moment_text
from transforms.types import ColumnType, Dense, DType, Weighted, type_from_document

#: The maximum rank error of a quantile, as a share of all values.
QUANTILE_EPSILON = 1e-4

UNTWINNED = "it is computed only after an analysis put an ordinary operator in its place"

_NUMBER = Arg("number", dense=NUMERIC)


def not_analyzed(*values: object, **params: object) -> NoReturn:
    """Raise the error for computing a full-pass operator that is not replaced."""
    raise InputError("a full-pass operator must be analyzed before it is computed", allowed="the operator that replaces it",
                     next_step="submit the model to a warehouse: headrace analyze MODEL_FILE")  # fmt: skip


def _moment(value: Scalar) -> str:
    good = isinstance(value, str) and moment_text(moment(value)) == value
    return "" if good else "a time in UTC, as between() spells it"


_RANGE = (
    Param("start", str, check=_moment, doc="the first moment of the range that is analyzed; between() gives it"),
    Param("end", str, check=_moment, doc="the moment that the range ends before"),
)
_OOV = Param("oov_buckets", int, 1, check=at_least(1), doc="ids for values that are not in the vocabulary")
_SHUFFLE = Param("fingerprint_shuffle", bool, False, doc="whether the terms kept are put in the order of their SHA-1")
_TOP_K = Param("top_k", int, 0, check=at_least(0), doc="terms kept at most; 0 keeps all")


def _ids(types: Types, params: Params) -> ColumnType:
    return Weighted(DType.INT64) if isinstance(types[0], Weighted) else Dense(DType.INT64)


def _float_or_float64(types: Types, params: Params) -> ColumnType:
    return Dense(DType.FLOAT32 if types[0].dtype is DType.FLOAT32 else DType.FLOAT64)


def _vocabulary(name: str, summary: str, more: tuple[Arg, ...], params: tuple[Param, ...], *, lists: bool) -> Operator:
    """An operator whose artifact is terms; without ``lists`` of weighted items."""
    values = Arg("values", dense=HASHABLE, weighted=HASHABLE if lists else frozenset())
    return Operator(
        name=name,
        version=1,
        family="full pass",
        summary=summary,
        args=(values, *more),
        result=_ids,
        reference=not_analyzed,
        kernel=not_analyzed,
        params=(_TOP_K, *params, _OOV, *_RANGE, _SHUFFLE),
        cost_ns=40,
        lifts=True,
        untwinned=UNTWINNED,
    )


_LABEL = Arg("label", dense=frozenset({DType.BOOL, DType.INT64}))
_WEIGHT = Arg("weight", dense=NUMERIC)
_BY_INFORMATION = (
    Param("use_adjusted_mutual_info", bool, False, doc="whether the information that chance would give is taken off"),
    Param("min_diff_from_avg", (float, int), 0.0, doc="events, or weight, that a term and a label must occur together "
          "more or less often than by chance, or they count as 0; below 0: chosen from the number of events, 2 to 25"),
    Param("min_information", (float, int), float("-inf"), doc="information that a term has at least"),
)  # fmt: skip

VOCABULARY_IDS = _vocabulary(
    "vocabulary_ids",
    "Ids by frequency over the range, most frequent first, ties by greater bytes first; others as vocabulary_lookup.",
    (),
    (Param("min_frequency", int, 1, check=at_least(1), doc="times a term occurs at least"),),
    lists=True,
)

WEIGHTED_VOCABULARY_IDS = _vocabulary(
    "weighted_vocabulary_ids",
    "Ids by the weight of the events a term occurs in, heaviest first, ties by greater bytes first.",
    (_WEIGHT,),
    (Param("min_frequency", (float, int), 0.0, doc="weight that a term has at least"),),
    lists=False,
)

LABELLED_VOCABULARY_IDS = _vocabulary(
    "labelled_vocabulary_ids",
    "Ids by mutual information with a label over the range, most informative first, ties by greater bytes first.",
    (_LABEL,),
    _BY_INFORMATION,
    lists=False,
)

WEIGHTED_LABELLED_VOCABULARY_IDS = _vocabulary(
    "weighted_labelled_vocabulary_ids",
    "Ids by mutual information with a label, each event counted by its weight, most informative first.",
    (_LABEL, _WEIGHT),
    _BY_INFORMATION,
    lists=False,
)

QUANTILE_BUCKETS = Operator(
    name="quantile_buckets",
    version=1,
    family="full pass",
    summary="bucketize at the quantiles of the range, which fall within 0.0001 of their rank; equal boundaries are one.",
    args=(_NUMBER,),
    result=lambda types, params: Dense(DType.INT64),
    reference=not_analyzed,
    kernel=not_analyzed,
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
    kernel=not_analyzed,
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
    kernel=not_analyzed,
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
    kernel=not_analyzed,
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
    WEIGHTED_VOCABULARY_IDS,
    LABELLED_VOCABULARY_IDS,
    WEIGHTED_LABELLED_VOCABULARY_IDS,
    QUANTILE_BUCKETS,
    STANDARDIZE_OVER,
    MIN_MAX_OVER,
    PREPROCESSING_OUTPUT,
)

#: The names of the full-pass operators.
FULL_PASS = frozenset(operator.name for operator in OPERATORS)

#: Those whose values are compared with a label, their second argument.
LABELLED = frozenset({LABELLED_VOCABULARY_IDS.name, WEIGHTED_LABELLED_VOCABULARY_IDS.name})
#: Those whose last argument is the weight of an event.
WEIGHTED = frozenset({WEIGHTED_VOCABULARY_IDS.name, WEIGHTED_LABELLED_VOCABULARY_IDS.name})
#: Those whose artifact is terms; other artifacts are numbers.
VOCABULARIES = LABELLED | WEIGHTED | {VOCABULARY_IDS.name}
