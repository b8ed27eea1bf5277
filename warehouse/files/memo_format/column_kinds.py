"""Column types of memo files: those of :mod:`transforms.types`, as numbers."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

from transforms.columns.arrow_types import ARROW_ELEMENT, arrow_type
from transforms.errors import DataError
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, Weighted


class Kind(IntEnum):
    """The content of a row: one value, a list, a list of weighted ids, a fixed number of values."""

    DENSE = 0
    RAGGED = 1
    WEIGHTED = 2
    VECTOR = 3


#: An element type's number is its index.
ELEMENTS = (DType.BOOL, DType.INT64, DType.FLOAT32, DType.FLOAT64, DType.STRING, DType.TIMESTAMP)


class StoredType(NamedTuple):
    """A column's type in its record; ``size``: the values of a vector, else 0."""

    kind: Kind
    element: DType
    size: int = 0


@lru_cache(maxsize=256)
def arrow_of(kind: int, element: int, size: int) -> tuple[StoredType, pa.DataType, pa.DataType]:
    """The type for the numbers of a record, with the Arrow types of the column and of its elements.

    Raises :class:`DataError` for undefined numbers.
    """
    if not (kind < len(Kind) and element < len(ELEMENTS) and (size > 0) == (kind == Kind.VECTOR) and size < 2**31):
        raise DataError("the numbers of a column must be those of a column type", value=(kind, element, size))
    stored = StoredType(Kind(kind), ELEMENTS[element], size)
    return stored, arrow_type(_column_type(stored)), ARROW_ELEMENT[stored.element]


def stored_type(found: pa.DataType) -> StoredType | None:
    """The stored type for an Arrow type; None for a type that no component has."""
    known = _known().get(found)
    if known is None and pa.types.is_fixed_size_list(found) and found.list_size > 0:
        vectors = (StoredType(Kind.VECTOR, element, found.list_size) for element in ELEMENTS)
        known = next((one for one in vectors if arrow_type(_column_type(one)) == found), None)
    return known


@lru_cache(maxsize=1)
def _known() -> dict[pa.DataType, StoredType]:
    stored = (StoredType(kind, element) for kind in (Kind.DENSE, Kind.RAGGED, Kind.WEIGHTED) for element in ELEMENTS)
    return {arrow_type(_column_type(one)): one for one in stored}


def _column_type(stored: StoredType) -> ColumnType:
    if stored.kind is Kind.VECTOR:
        return Vector(stored.element, stored.size)
    if stored.kind is Kind.WEIGHTED:
        return Weighted(stored.element)
    return Ragged(stored.element) if stored.kind is Kind.RAGGED else Dense(stored.element)
