"""Choosing between values. Both operators see nulls: a null in a branch that is not taken does no harm."""

from __future__ import annotations

from transforms.operators.declaration import Arg, Example, KernelAt, Law, Operator, Params, Scalar, TwinAt, Types
from transforms.operators.signatures import ANY, common_buckets, promote
from transforms.types import ColumnType, Dense, DType

_KERNELS = "transforms.kernels.conditional"


def _if_else(cond: bool | None, a: Scalar | None, b: Scalar | None) -> Scalar | None:
    return None if cond is None else a if cond else b


def _coalesce(*values: Scalar | None) -> Scalar | None:
    return next((value for value in values if value is not None), None)


def _common(types: Types) -> ColumnType:
    dtype = promote(types)
    return Dense(dtype, common_buckets(types) if dtype is DType.INT64 else None)


def _branches(types: Types, params: Params) -> ColumnType:
    return _common(types[1:])


def _any_of(types: Types, params: Params) -> ColumnType:
    return _common(types)


IF_ELSE = Operator(
    name="if_else",
    version=1,
    family="conditional",
    summary="a where cond holds, b where it does not, null where cond is null. Mixed numbers meet in float64.",
    args=(Arg("cond", dense=frozenset({DType.BOOL})), Arg("a", dense=ANY), Arg("b", dense=ANY)),
    result=_branches,
    reference=_if_else,
    kernel=KernelAt(_KERNELS, "if_else"),
    nulls="see",
    cost_ns=4,
    twin=TwinAt("transforms.twins.conditional", "if_else"),
    example=Example(
        'hr.if_else(hr.int64("age") < 18, "minor", "adult")', {"age": [7, 40, None]}, ["minor", "adult", None]
    ),
)

COALESCE = Operator(
    name="coalesce",
    version=1,
    family="conditional",
    summary="The first value that is not null, from the left. NaN is a value. Mixed numbers meet in float64.",
    args=(Arg("values", dense=ANY, variadic=True),),
    result=_any_of,
    reference=_coalesce,
    kernel=KernelAt(_KERNELS, "coalesce"),
    laws=frozenset({Law.ASSOCIATIVE, Law.IDEMPOTENT_ARGUMENTS}),
    nulls="see",
    cost_ns=4,
    twin=TwinAt("transforms.twins.conditional", "coalesce"),
    example=Example(
        'hr.coalesce(hr.text("city"), hr.text("country"))',
        {"city": ["Oslo", None, None], "country": ["Norway", "Chad", None]},
        ["Oslo", "Chad", None],
    ),
)

OPERATORS = (IF_ELSE, COALESCE)
