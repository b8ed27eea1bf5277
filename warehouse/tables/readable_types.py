"""The stored types that a model can read, and the cast that makes another one readable."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from transforms.columns.columns import is_castable
from transforms.types import ColumnType, Dense, DType, Ragged, Weighted
from warehouse.tables.arrow_types import parse_arrow_type
from warehouse.tables.table import ColumnSchema

#: The types that a column may be declared as.
_DECLARED: tuple[ColumnType, ...] = (
    *(kind(dtype) for kind in (Dense, Ragged) for dtype in (DType.BOOL, DType.INT64, DType.FLOAT32, DType.FLOAT64,
                                                           DType.STRING, DType.TIMESTAMP)),
    *(Weighted(dtype) for dtype in (DType.INT64, DType.STRING)),
)  # fmt: skip
#: The types that a raw column may be read as where it is a label.
LABEL_TYPES: tuple[ColumnType, ...] = tuple(Dense(dtype) for dtype in (DType.BOOL, DType.INT64, DType.FLOAT64))
_FIELD = re.compile(r"(\w+): ")
_PYARROW = "; in pyarrow: "


@dataclass(frozen=True, slots=True)
class UnreadableColumn:
    """A column that no model can read as it is stored.

    Attributes:
        name: the column.
        arrow_type: its stored type in Arrow's text form.
        why: why no declared type reads it.
        cast: what to store instead, with the expression.
    """

    name: str
    arrow_type: str
    why: str
    cast: str


def declared_types(arrow_type: str) -> tuple[ColumnType, ...]:
    """The types that a column of this stored type may be declared as; none if no model can read it."""
    stored = parse_arrow_type(arrow_type)
    return () if stored is None else tuple(kind for kind in _DECLARED if is_castable(stored, kind))


def unreadable_columns(columns: Iterable[ColumnSchema]) -> tuple[UnreadableColumn, ...]:
    """The columns that no model can read, in order."""
    return tuple(found for found in map(unreadable_column, columns) if found is not None)


def unreadable_column(column: ColumnSchema) -> UnreadableColumn | None:
    """Why no model can read this column, or None if one can."""
    if declared_types(column.arrow_type):
        return None
    why, cast = _explained(column.name, column.arrow_type)
    return UnreadableColumn(column.name, column.arrow_type, why, cast)


def _explained(name: str, spelled: str) -> tuple[str, str]:
    table = f'table["{name}"]'
    plain = spelled.removeprefix("dictionary<values=").split(", indices=")[0]
    if plain.startswith("time32"):
        return "a time of day has no date", f"the count since midnight{_PYARROW}{table}.cast(pa.int32())"
    if plain.startswith(("time64", "duration")):
        return "a span of time is no moment", f"its count of units{_PYARROW}{table}.cast(pa.int64())"
    if plain.startswith("decimal"):
        return _decimal(table, plain)
    if plain.startswith(("fixed_size_binary", "extension<arrow.uuid")):
        storage = ".combine_chunks().storage" if plain.startswith("extension") else ""
        return "bytes of a fixed size are no text", (
            f"hexadecimal text{_PYARROW}pa.array([v and v.hex() for v in {table}{storage}.to_pylist()], pa.string())"
        )
    if plain == "null":
        return "the column holds no value, so it has no type", f"its real type{_PYARROW}{table}.cast(pa.string())"
    return _nested(name, plain)


def _decimal(table: str, plain: str) -> tuple[str, str]:
    kind = parse_arrow_type(plain)
    if kind is not None and pa.types.is_decimal(kind) and kind.scale <= 0:
        return "a whole decimal of more than 18 digits may not fit into int64", (
            f"text for an id, {table}.cast(pa.string()), or int64 if every value fits, {table}.cast(pa.int64())"
        )
    return "float64 cannot tell decimals of more than 15 digits apart", (
        f"float64, which keeps about 16 digits{_PYARROW}{table}.cast(pa.float64())"
    )


def _nested(name: str, plain: str) -> tuple[str, str]:
    if plain.startswith("struct<"):
        first = match.group(1) if (match := _FIELD.search(plain)) else "field"
        return "a nested object is no single value", (
            f"each field as a column of its own; in SQL: SELECT {name}.{first} AS {name}_{first}{_PYARROW}table.flatten()"
        )
    if plain.startswith("map<"):
        return "a map is no single value", (
            f"its keys as a list, or one key's value as a column; in SQL: SELECT map_keys({name}) AS {name}_keys"
        )
    if "list" in plain.split("<")[0]:
        return "the items of the list are no plain values", (
            f"one list of numbers, text or times a column{_PYARROW}pa.ListArray.from_arrays(offsets, values)"
        )
    return "no declared type reads it", f'text{_PYARROW}table["{name}"].cast(pa.string())'
