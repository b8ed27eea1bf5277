"""Estimated bytes of values by their type, where no file was measured. Types of raw columns are read as text: Arrow is not loaded."""

from __future__ import annotations

import re
from collections.abc import Iterable

from transforms.types import ColumnType, Dense, DType, Ragged, Vector, Weighted
from warehouse.tables.table import ColumnSchema

_ITEMS_PER_LIST = 8.0
_OFFSET_BYTES = 4.0
_WEIGHT_BYTES = 4.0
_ELEMENT_BYTES = {
    DType.BOOL: 0.125,
    DType.INT64: 8.0,
    DType.FLOAT32: 4.0,
    DType.FLOAT64: 8.0,
    DType.STRING: 12.0,
    DType.TIMESTAMP: 8.0,
}
#: Bits of a value by the first word of its type in Arrow's text form; types that are not listed count as text.
_ARROW_BITS = {
    "bool": 1,
    **{f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "halffloat": 16,
    "float": 32,
    "double": 64,
    "date32": 32,
    "date64": 64,
    "time32": 32,
    "time64": 64,
    "timestamp": 64,
    "duration": 64,
}
_WORD = re.compile(r"(\w+)(\[.*\])?")
_LIST = re.compile(r"(?:large_)?list(?:_view)?<\w+: (.+?)(?: not null)?>")
_FIXED_LIST = re.compile(r"fixed_size_list<\w+: (.+?)(?: not null)?>\[(\d+)\]")


def estimated_bytes(column_type: ColumnType) -> float:
    """Estimated bytes per row of a stored column of this type."""
    element = _ELEMENT_BYTES[column_type.dtype]
    if column_type.buckets is not None:
        element = float(next(width for width in (1, 2, 4, 8) if column_type.buckets <= 256**width))
    match column_type:
        case Dense():
            return element
        case Ragged():
            return _OFFSET_BYTES + _ITEMS_PER_LIST * element
        case Weighted():
            return _OFFSET_BYTES + _ITEMS_PER_LIST * (element + _WEIGHT_BYTES)
        case Vector():
            return column_type.size * element


def raw_bytes_per_row(columns: Iterable[ColumnSchema], rows: int, size_bytes: int) -> dict[str, float]:
    """Bytes per row of every column of raw files with ``rows`` in ``size_bytes``, divided by the columns' types."""
    guessed = {column.name: stored_bytes(column.arrow_type) for column in columns}
    if not rows or not guessed:
        return {}
    factor = size_bytes / rows / sum(guessed.values())
    return {name: bytes_per_row * factor for name, bytes_per_row in guessed.items()}


def stored_bytes(arrow_type: str) -> float:
    """Estimated bytes of a value of a raw column, by its type in Arrow's text form."""
    if match := _FIXED_LIST.fullmatch(arrow_type):
        return float(match.group(2)) * stored_bytes(match.group(1))
    if match := _LIST.fullmatch(arrow_type):
        return _OFFSET_BYTES + _ITEMS_PER_LIST * stored_bytes(match.group(1))
    match = _WORD.fullmatch(arrow_type)
    if match and match.group(1) in _ARROW_BITS:
        return _ARROW_BITS[match.group(1)] / 8
    return _ELEMENT_BYTES[DType.STRING]
