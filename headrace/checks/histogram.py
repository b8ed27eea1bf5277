"""How often values occur: numbers in bins of equal width, ids and texts by value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.checks.statistics import is_number, value_text
from transforms.types import ColumnType, Ragged, Vector, Weighted

BINS = 20
MOST_VALUES = 12


@dataclass(frozen=True, slots=True)
class Bin:
    """Values from ``low`` on and below ``high``; the last bin includes it."""

    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class ValueCount:
    """A value as text, and how often it occurs."""

    value: str
    count: int


def bins_of(column: pa.Array, column_type: ColumnType) -> tuple[Bin, ...]:
    """The finite numbers of a column, or its weights; none for ids, texts and times."""
    items = _items(column, column_type)
    if isinstance(column_type, Weighted):
        items = items.field(1) if pa.types.is_struct(items.type) else items
    elif column_type.buckets is not None or pa.types.is_boolean(items.type):
        return ()
    if not is_number(items.type):
        return ()
    numbers = np.asarray(items.drop_null()).astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return ()
    low, high = float(numbers.min()), float(numbers.max())
    if low == high or not np.isfinite(high - low):
        return (Bin(low, high, len(numbers)),)
    counts, edges = np.histogram(numbers, BINS, (low, high))
    return tuple(Bin(float(a), float(b), int(n)) for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True))


def most_frequent(column: pa.Array, column_type: ColumnType) -> tuple[ValueCount, ...]:
    """The most frequent ids, texts and booleans; none of numbers and times."""
    items = _items(column, column_type)
    if isinstance(column_type, Weighted):
        items = items.field(0) if pa.types.is_struct(items.type) else items
    elif column_type.buckets is None and is_number(items.type) and not pa.types.is_boolean(items.type):
        return ()
    if pa.types.is_temporal(items.type):
        return ()
    counts = pc.value_counts(items.drop_null())
    order = np.argsort(-np.asarray(counts.field("counts")), kind="stable")[:MOST_VALUES]
    return tuple(_counted(counts[int(k)].as_py()) for k in order)


def _counted(found: dict[str, Any]) -> ValueCount:
    return ValueCount(value_text(found["values"]), int(found["counts"]))


def _items(column: pa.Array, column_type: ColumnType) -> pa.Array:
    return column.flatten() if isinstance(column_type, Ragged | Weighted | Vector) else column
