"""Operators over lists: as sequences (concat, head, count) and as sets (intersect, union, difference, unique).

Set operators other than ``unique`` give their values sorted, text by its UTF-8 bytes, integers by value, each once.
That makes the order of their arguments immaterial bit for bit, which the canonical form relies on. With one argument
``intersect`` and ``union`` sort and deduplicate it.
"""

from __future__ import annotations

from collections.abc import Sequence

from transforms.operators.declaration import Arg, KernelAt, Law, Operator, Param, Params, Types
from transforms.operators.signatures import ANY, HASHABLE, always, at_least, common_ragged, first
from transforms.types import ColumnType, Dense, DType

_KERNELS = "transforms.kernels.sets"
_SETS = Arg("lists", ragged=HASHABLE, variadic=True)
_SET_LAWS = frozenset({Law.COMMUTATIVE, Law.ASSOCIATIVE, Law.IDEMPOTENT_ARGUMENTS})

Item = str | int
Items = Sequence[Item]


def _in_order(items: set[Item]) -> list[Item]:
    return sorted(items, key=lambda item: item.encode() if isinstance(item, str) else item)


def _intersect(*lists: Items) -> list[Item]:
    return _in_order(set(lists[0]).intersection(*lists[1:]))


def _union(*lists: Items) -> list[Item]:
    return _in_order(set().union(*lists))


def _difference(items: Items, others: Items) -> list[Item]:
    return _in_order(set(items) - set(others))


def _unique(items: Items) -> list[Item]:
    return list(dict.fromkeys(items))


def _concat(*lists: Sequence[object]) -> list[object]:
    return [item for items in lists for item in items]


def _head(items: Sequence[object], *, n: int) -> list[object]:
    return list(items[:n])


def _difference_type(types: Types, params: Params) -> ColumnType:
    common_ragged(types, params)
    return types[0]


INTERSECT = Operator(
    name="intersect",
    version=1,
    family="sets",
    summary="The values that are in every list, sorted, each once.",
    args=(_SETS,),
    result=common_ragged,
    reference=_intersect,
    kernel=KernelAt(_KERNELS, "intersect"),
    laws=_SET_LAWS,
    cost_ns=120,
)

UNION = Operator(
    name="union",
    version=1,
    family="sets",
    summary="The values that are in any list, sorted, each once.",
    args=(_SETS,),
    result=common_ragged,
    reference=_union,
    kernel=KernelAt(_KERNELS, "union"),
    laws=_SET_LAWS,
    cost_ns=200,
)

DIFFERENCE = Operator(
    name="difference",
    version=1,
    family="sets",
    summary="The values of the first list that are not in the second, sorted, each once.",
    args=(Arg("items", ragged=HASHABLE), Arg("others", ragged=HASHABLE)),
    result=_difference_type,
    reference=_difference,
    kernel=KernelAt(_KERNELS, "difference"),
    cost_ns=120,
)

UNIQUE = Operator(
    name="unique",
    version=1,
    family="sets",
    summary="Each value once, where it first stands.",
    args=(Arg("items", ragged=HASHABLE),),
    result=first,
    reference=_unique,
    kernel=KernelAt(_KERNELS, "unique"),
    laws=frozenset({Law.IDEMPOTENT}),
    cost_ns=80,
)

CONCAT = Operator(
    name="concat",
    version=1,
    family="ragged",
    summary="The lists one after another, in the order given.",
    args=(Arg("lists", ragged=ANY, variadic=True),),
    result=common_ragged,
    reference=_concat,
    kernel=KernelAt("transforms.kernels.ragged", "concat"),
    laws=frozenset({Law.ASSOCIATIVE}),
    cost_ns=40,
)

HEAD = Operator(
    name="head",
    version=1,
    family="ragged",
    summary="The first n values of each list.",
    args=(Arg("items", ragged=ANY),),
    result=first,
    reference=_head,
    kernel=KernelAt("transforms.kernels.ragged", "head"),
    params=(Param("n", int, check=at_least(1), doc="values kept of each list"),),
    laws=frozenset({Law.IDEMPOTENT}),
    cost_ns=20,
)

COUNT = Operator(
    name="count",
    version=1,
    family="ragged",
    summary="The number of values in each list; 0 for an empty or missing one, never null.",
    args=(Arg("items", ragged=ANY),),
    result=always(Dense(DType.INT64)),
    reference=len,
    kernel=KernelAt("transforms.kernels.ragged", "count"),
    cost_ns=2,
)

OPERATORS = (INTERSECT, UNION, DIFFERENCE, UNIQUE, CONCAT, HEAD, COUNT)
