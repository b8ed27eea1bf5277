"""Operators over lists as sets.

Set operators other than ``unique`` give their values sorted, text by its UTF-8 bytes, integers by value, each once.
That makes the order of their arguments immaterial bit for bit, which the canonical form relies on. With one argument
``intersect`` and ``union`` sort and deduplicate it.
"""

from __future__ import annotations

from collections.abc import Sequence

from transforms.operators.declaration import Arg, Example, Imported, Law, Operator, Params, Types
from transforms.operators.signatures import HASHABLE, common_ragged, first
from transforms.types import ColumnType, Dense, DType

_KERNELS = "transforms.kernels.sets"
_OVERLAPS = "transforms.kernels.overlaps"
_TWINS = "transforms.twins.sets"
_SETS = Arg("lists", ragged=HASHABLE, variadic=True)
_PAIR = (Arg("items", ragged=HASHABLE), Arg("others", ragged=HASHABLE))
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


def _overlap_count(items: Items, others: Items) -> int:
    return len(set(items) & set(others))


def _jaccard(items: Items, others: Items) -> float:
    either = set(items) | set(others)
    return _overlap_count(items, others) / len(either) if either else 0.0


def _difference_type(types: Types, params: Params) -> ColumnType:
    common_ragged(types, params)
    return types[0]


def _count_type(types: Types, params: Params) -> ColumnType:
    common_ragged(types, params)
    return Dense(DType.INT64)


def _share_type(types: Types, params: Params) -> ColumnType:
    common_ragged(types, params)
    return Dense(DType.FLOAT32)


INTERSECT = Operator(
    name="intersect",
    version=1,
    family="sets",
    summary="The values that are in every list, sorted, each once.",
    args=(_SETS,),
    result=common_ragged,
    reference=_intersect,
    kernel=Imported(_KERNELS, "intersect"),
    laws=_SET_LAWS,
    cost_ns=120,
    twin=Imported(_TWINS, "intersect"),
    example=Example(
        'hr.text("query").unigrams() & hr.text("title").unigrams()',
        {"query": ["red shoes", "hat"], "title": ["shoes red red", "boots"]},
        [["red", "shoes"], []],
    ),
)

UNION = Operator(
    name="union",
    version=1,
    family="sets",
    summary="The values that are in any list, sorted, each once.",
    args=(_SETS,),
    result=common_ragged,
    reference=_union,
    kernel=Imported(_KERNELS, "union"),
    laws=_SET_LAWS,
    cost_ns=200,
    twin=Imported(_TWINS, "union"),
    example=Example(
        'hr.text("query").unigrams() | hr.text("title").unigrams()',
        {"query": ["red shoes", "hat"], "title": ["blue shoes", "hat"]},
        [["blue", "red", "shoes"], ["hat"]],
    ),
)

DIFFERENCE = Operator(
    name="difference",
    version=1,
    family="sets",
    summary="The values of the first list that are not in the second, sorted, each once.",
    args=_PAIR,
    result=_difference_type,
    reference=_difference,
    kernel=Imported(_KERNELS, "difference"),
    cost_ns=120,
    twin=Imported(_TWINS, "difference"),
    example=Example(
        'hr.text("query").unigrams() - hr.text("title").unigrams()',
        {"query": ["red shoes red", "hat"], "title": ["blue shoes", "hat"]},
        [["red"], []],
    ),
)

UNIQUE = Operator(
    name="unique",
    version=1,
    family="sets",
    summary="Each value once, at its first occurrence.",
    args=(Arg("items", ragged=HASHABLE),),
    result=first,
    reference=_unique,
    kernel=Imported(_KERNELS, "unique"),
    laws=frozenset({Law.IDEMPOTENT}),
    cost_ns=80,
    twin=Imported(_TWINS, "unique"),
    example=Example(
        'hr.text("query").unigrams().unique()',
        {"query": ["red shoes red", "hat"]},
        [["red", "shoes"], ["hat"]],
    ),
)

OVERLAP_COUNT = Operator(
    name="overlap_count",
    version=1,
    family="sets",
    summary="How many distinct values both lists have; 0 for an empty or missing list, never null.",
    args=_PAIR,
    result=_count_type,
    reference=_overlap_count,
    kernel=Imported(_OVERLAPS, "overlap_count"),
    laws=frozenset({Law.COMMUTATIVE}),
    cost_ns=120,
    twin=Imported(_TWINS, "overlap_count"),
    example=Example(
        'hr.text("query").unigrams().overlap_count(hr.text("title").unigrams())',
        {"query": ["red shoes", "hat"], "title": ["shoes red red", "boots"]},
        [2, 0],
    ),
)

JACCARD = Operator(
    name="jaccard",
    version=1,
    family="sets",
    summary="Distinct values in both lists divided by those in either; 0 where both are empty. Float64 rounded to float32.",
    args=_PAIR,
    result=_share_type,
    reference=_jaccard,
    kernel=Imported(_OVERLAPS, "jaccard"),
    laws=frozenset({Law.COMMUTATIVE}),
    cost_ns=150,
    twin=Imported(_TWINS, "jaccard"),
    example=Example(
        'hr.text("query").unigrams().jaccard(hr.text("title").unigrams())',
        {"query": ["red shoes", ""], "title": ["red hat", ""]},
        [1 / 3, 0.0],
    ),
)

OPERATORS = (INTERSECT, UNION, DIFFERENCE, UNIQUE, OVERLAP_COUNT, JACCARD)
