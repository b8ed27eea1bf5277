"""Choosing between values. A null in a branch that is not taken has no effect.

``if_else`` over lists works item by item: a dense argument applies to every item, the lists of a row have equal lengths,
and an item whose choice is null is left out. A dense condition with two lists takes one of them whole, of whatever length.
"""

from __future__ import annotations

from transforms.errors import DataError
from transforms.operators.declaration import Arg, Example, Imported, Law, Operator, Params, Scalar, Types
from transforms.operators.signatures import ANY, common_buckets, promote
from transforms.types import ColumnType, Dense, DType, Ragged

_KERNELS = "transforms.kernels.conditional"
_BOOL = frozenset({DType.BOOL})


def _choice(cond: bool | None, a: Scalar | None, b: Scalar | None) -> Scalar | None:
    return None if cond is None else a if cond else b


def _if_else(cond: object, a: object, b: object) -> object:
    lists = [value for value in (cond, a, b) if isinstance(value, list)]
    if isinstance(a, list) and isinstance(b, list) and not isinstance(cond, list):
        return [] if cond is None else a if cond else b
    if not lists:
        return _choice(cond, a, b)  # type: ignore[arg-type]
    lengths = {len(each) for each in lists}
    if len(lengths) > 1:
        raise DataError("the lists of if_else must have equal lengths", value=tuple(map(len, lists)),
                        allowed="equal lengths in every row")  # fmt: skip
    parts = [value if isinstance(value, list) else [value] * lengths.copy().pop() for value in (cond, a, b)]
    chosen = [_choice(*items) for items in zip(*parts, strict=True)]
    return [item for item in chosen if item is not None]


def _coalesce(*values: Scalar | None) -> Scalar | None:
    return next((value for value in values if value is not None), None)


def _common(types: Types) -> Dense:
    dtype = promote(types)
    return Dense(dtype, common_buckets(types) if dtype is DType.INT64 else None)


def _branches(types: Types, params: Params) -> ColumnType:
    item = _common(types[1:])
    return Ragged(item.dtype, item.buckets) if any(isinstance(each, Ragged) for each in types) else item


def _any_of(types: Types, params: Params) -> ColumnType:
    return _common(types)


IF_ELSE = Operator(
    name="if_else",
    version=1,
    family="conditional",
    summary="a where cond holds, b where it does not, null where cond is null. Mixed numbers meet in float64. Lists are "
    "chosen from item by item: a dense argument counts for every item, the lists of a row have equal lengths, and an item "
    "that is null is left out. A dense cond with two lists takes one of them whole, and none where it is null.",
    args=(Arg("cond", dense=_BOOL, ragged=_BOOL), Arg("a", dense=ANY, ragged=ANY), Arg("b", dense=ANY, ragged=ANY)),
    result=_branches,
    reference=_if_else,
    kernel=Imported(_KERNELS, "if_else"),
    nulls="see",
    cost_ns=4,
    twin=Imported("transforms.twins.conditional", "if_else"),
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
    kernel=Imported(_KERNELS, "coalesce"),
    laws=frozenset({Law.ASSOCIATIVE, Law.IDEMPOTENT_ARGUMENTS}),
    nulls="see",
    cost_ns=4,
    twin=Imported("transforms.twins.conditional", "coalesce"),
    example=Example(
        'hr.coalesce(hr.text("city"), hr.text("country"))',
        {"city": ["Oslo", None, None], "country": ["Norway", "Chad", None]},
        ["Oslo", "Chad", None],
    ),
)

OPERATORS = (IF_ELSE, COALESCE)
