"""Operators over lists as sequences.

In the order of floats, -0.0 is before 0.0, and NaN is last in either direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from transforms.errors import DataError, TypeMismatch
from transforms.operators.declaration import Arg, Example, Imported, Law, Operator, Param, Params, Scalar, Types
from transforms.operators.signatures import (
    ANY,
    HASHABLE,
    always,
    at_least,
    common_ragged,
    first,
)
from transforms.types import ColumnType, Dense, DType, Ragged, Vector

_KERNELS = "transforms.kernels.lists"
_ITEM_KERNELS = "transforms.kernels.list_items"
_TWINS = "transforms.twins.lists"
_ITEMS = Arg("items", ragged=ANY)
#: The longest vector that ``pad`` makes.
PAD_MAX = 65_536


def _concat(*lists: Sequence[object]) -> list[object]:
    return [item for items in lists for item in items]


def _head(items: Sequence[object], *, n: int) -> list[object]:
    return list(items[:n])


def _tail(items: Sequence[object], *, n: int) -> list[object]:
    return list(items[-n:])


def sort_key(item: Any) -> Any:
    """The sort key of an item: text by its UTF-8 bytes, -0.0 before 0.0, NaN after every number."""
    if isinstance(item, float):
        return math.isnan(item), 0.0 if math.isnan(item) else item, math.copysign(1.0, item)
    return item.encode() if isinstance(item, str) else item


def _sort(items: Sequence[object], *, descending: bool) -> list[object]:
    nans = [item for item in items if isinstance(item, float) and math.isnan(item)]
    numbers = [item for item in items if not (isinstance(item, float) and math.isnan(item))]
    return sorted(numbers, key=sort_key, reverse=descending) + nans


def _filter(items: Sequence[object], mask: Sequence[bool]) -> list[object]:
    if len(items) != len(mask):
        raise DataError("a list and its mask must have equal lengths", value=(len(items), len(mask)))
    return [item for item, kept in zip(items, mask, strict=True) if kept]


def _pad(items: Sequence[object], *, size: int, value: Scalar) -> list[object]:
    return [*items[:size], *[value] * (size - len(items))]


def _positions(items: Sequence[object], *, limit: int) -> list[int]:
    return [min(i, limit - 1) if limit else i for i in range(len(items))]


def _zip(items: Sequence[object], others: Sequence[object], *, joiner: str) -> list[str]:
    return [f"{item}{joiner}{other}" for item, other in zip(items, others, strict=False)]


def _contains_item(items: Sequence[object], *, value: Scalar) -> bool:
    among_floats = float(value) if isinstance(value, int) else value
    return any(item == (among_floats if isinstance(item, float) else value) for item in items)


_VALUES: dict[DType, tuple[type, ...]] = {
    DType.BOOL: (bool,),
    DType.INT64: (int,),
    DType.FLOAT32: (int, float),
    DType.FLOAT64: (int, float),
    DType.STRING: (str,),
    DType.TIMESTAMP: (int,),
}


def _check_value(operator: str, column_type: ColumnType, value: Scalar) -> None:
    """Refuse a value that no item of the list can be."""
    kinds = _VALUES[column_type.dtype]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise TypeMismatch(f"the value of {operator} must have the items' type", value=value,
                           allowed=" or ".join(kind.__name__ for kind in kinds))  # fmt: skip


def _pad_type(types: Types, params: Params) -> ColumnType:
    size, value = params["size"], params["value"]
    assert isinstance(size, int)
    _check_value("pad", types[0], value)
    buckets = types[0].buckets if isinstance(types[0], Ragged) else None
    inside = buckets is not None and isinstance(value, int) and 0 <= value < buckets
    return Vector(types[0].dtype, size, buckets if inside else None)


def _positions_type(types: Types, params: Params) -> ColumnType:
    limit = params["limit"]
    assert isinstance(limit, int)
    return Ragged(DType.INT64, limit or None)


def _contains_type(types: Types, params: Params) -> ColumnType:
    _check_value("contains_item", types[0], params["value"])
    return Dense(DType.BOOL)


def _pad_size(value: Scalar) -> str:
    return "" if isinstance(value, int) and 1 <= value <= PAD_MAX else f"1 .. {PAD_MAX}"


_N = Param("n", int, check=at_least(1), doc="values kept of each list")
_VALUE_KINDS = (bool, int, float, str)

CONCAT = Operator(
    name="concat",
    version=1,
    family="ragged",
    summary="The lists one after another, in the order given.",
    args=(Arg("lists", ragged=ANY, variadic=True),),
    result=common_ragged,
    reference=_concat,
    kernel=Imported(_KERNELS, "concat"),
    laws=frozenset({Law.ASSOCIATIVE}),
    cost_ns=40,
    twin=Imported(_TWINS, "concat"),
    example=Example(
        'hr.concat(hr.text("query").unigrams(), hr.text("title").unigrams())',
        {"query": ["red shoes", "hat"], "title": ["boots", None]},
        [["red", "shoes", "boots"], ["hat"]],
    ),
)

HEAD = Operator(
    name="head",
    version=1,
    family="ragged",
    summary="The first n values of each list.",
    args=(_ITEMS,),
    result=first,
    reference=_head,
    kernel=Imported(_KERNELS, "head"),
    params=(_N,),
    laws=frozenset({Law.IDEMPOTENT}),
    cost_ns=20,
    twin=Imported(_TWINS, "head"),
    example=Example('hr.ragged("clicks", "int64").head(2)', {"clicks": [[7, 3, 9], [4]]}, [[7, 3], [4]]),
)

TAIL = Operator(
    name="tail",
    version=1,
    family="ragged",
    summary="The last n values of each list, in their order.",
    args=(_ITEMS,),
    result=first,
    reference=_tail,
    kernel=Imported(_ITEM_KERNELS, "tail"),
    params=(_N,),
    laws=frozenset({Law.IDEMPOTENT}),
    cost_ns=20,
    twin=Imported(_TWINS, "tail"),
    example=Example('hr.ragged("clicks", "int64").tail(2)', {"clicks": [[7, 3, 9], [4]]}, [[3, 9], [4]]),
)

COUNT = Operator(
    name="count",
    version=1,
    family="ragged",
    summary="The number of values in each list; 0 for an empty or missing one, never null.",
    args=(_ITEMS,),
    result=always(Dense(DType.INT64)),
    reference=len,
    kernel=Imported(_KERNELS, "count"),
    cost_ns=2,
    twin=Imported(_TWINS, "count"),
    example=Example('hr.ragged("clicks", "int64").count()', {"clicks": [[7, 3, 9], []]}, [3, 0]),
)

SORT = Operator(
    name="sort",
    version=1,
    family="ragged",
    summary="The values of each list, sorted: text by its UTF-8 bytes, -0.0 before 0.0, NaN last in either direction.",
    args=(_ITEMS,),
    result=first,
    reference=_sort,
    kernel=Imported("transforms.kernels.list_order", "sort"),
    params=(Param("descending", bool, False, doc="from the greatest to the least"),),
    laws=frozenset({Law.IDEMPOTENT}),
    cost_ns=120,
    twin=Imported(_TWINS, "sort"),
    example=Example(
        'hr.ragged("prices", "float64").sort()', {"prices": [[2.5, -1.0, 7.0], []]}, [[-1.0, 2.5, 7.0], []]
    ),
)

FILTER = Operator(
    name="filter",
    version=1,
    family="ragged",
    summary="The values of each list where the mask, a list of as many bools, holds; other lengths are an error.",
    args=(_ITEMS, Arg("mask", ragged=frozenset({DType.BOOL}))),
    result=first,
    reference=_filter,
    kernel=Imported(_ITEM_KERNELS, "keep"),
    cost_ns=20,
    twin=Imported(_TWINS, "keep"),
    example=Example(
        'hr.ragged("clicks", "int64").filter(hr.ragged("clicks", "int64") > 3)',
        {"clicks": [[7, 3, 9], [1], []]},
        [[7, 9], [], []],
    ),
)

PAD = Operator(
    name="pad",
    version=1,
    family="ragged",
    summary="The first size values of each list as a vector, filled up with value. Buckets stay if value is one of them.",
    args=(_ITEMS,),
    result=_pad_type,
    reference=_pad,
    kernel=Imported(_ITEM_KERNELS, "pad"),
    params=(
        Param("size", int, check=_pad_size, doc="values of each vector"),
        Param("value", _VALUE_KINDS, doc="what fills it up: of the items' type; microseconds for timestamps"),
    ),
    cost_ns=60,
    twin=Imported(_TWINS, "pad"),
    example=Example(
        'hr.ragged("clicks", "int64").pad(2, -1)', {"clicks": [[7, 3, 9], [4], []]}, [[7, 3], [4, -1], [-1, -1]]
    ),
)

POSITIONS = Operator(
    name="positions",
    version=1,
    family="ragged",
    summary="0, 1, 2 and so on, for the values of each list; with limit n the n-th and all behind it are n - 1.",
    args=(_ITEMS,),
    result=_positions_type,
    reference=_positions,
    kernel=Imported(_ITEM_KERNELS, "item_positions"),
    params=(Param("limit", int, 0, check=at_least(0), doc="how many different positions, as buckets; 0 is no limit"),),
    cost_ns=5,
    twin=Imported(_TWINS, "item_positions"),
    example=Example('hr.ragged("clicks", "int64").positions(limit=2)', {"clicks": [[7, 3, 9], []]}, [[0, 1, 1], []]),
)

ZIP = Operator(
    name="zip",
    version=1,
    family="ragged",
    summary="Two lists value by value as joined text, integers in decimal; the longer list's surplus is dropped.",
    args=(Arg("items", ragged=HASHABLE), Arg("others", ragged=HASHABLE)),
    result=always(Ragged(DType.STRING)),
    reference=_zip,
    kernel=Imported("transforms.kernels.list_joins", "zip_lists"),
    params=(Param("joiner", str, doc="text between the two values"),),
    cost_ns=400,
    twin=Imported(_TWINS, "zip_lists"),
    example=Example(
        'hr.ragged("shops", "string").zip(hr.ragged("aisles", "int64"), "/")',
        {"shops": [["a", "b"], ["c"]], "aisles": [[1, 2, 3], []]},
        [["a/1", "b/2"], []],
    ),
)

CONTAINS_ITEM = Operator(
    name="contains_item",
    version=1,
    family="ragged",
    summary="Whether a value of the list equals value. 0.0 equals -0.0, NaN equals nothing; False for an empty list.",
    args=(_ITEMS,),
    result=_contains_type,
    reference=_contains_item,
    kernel=Imported(_ITEM_KERNELS, "contains_item"),
    params=(Param("value", _VALUE_KINDS, doc="of the items' type; microseconds for timestamps"),),
    cost_ns=50,
    twin=Imported(_TWINS, "contains_item"),
    example=Example(
        'hr.text("title").unigrams().contains_item("sale")',
        {"title": ["big sale", "sales", None]},
        [True, False, False],
    ),
)

OPERATORS = (CONCAT, HEAD, TAIL, COUNT, SORT, FILTER, PAD, POSITIONS, ZIP, CONTAINS_ITEM)
