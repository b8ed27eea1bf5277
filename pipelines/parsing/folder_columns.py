"""Levels of a file's folders (``country=DE``) as columns of text."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.columns.arrow_types import ARROW_ELEMENT
from transforms.types import DType

_TEXT = ARROW_ELEMENT[DType.STRING]


def level_schema(schema: pa.Schema, levels: tuple[str, ...]) -> pa.Schema:
    """A schema with the levels that it has no column of."""
    return pa.schema([*schema, *(pa.field(name, _TEXT) for name in levels if name not in schema.names)])


def with_levels(rows: pa.Table, levels: Mapping[str, str | None]) -> pa.Table:
    """Rows with the levels that they have no column of."""
    for name, value in levels.items():
        if name not in rows.column_names:
            column = pa.array([value], _TEXT).take(pa.array(np.zeros(rows.num_rows, np.int64)))
            rows = rows.append_column(pa.field(name, _TEXT), column)
    return rows


def unread_levels(rows: pa.Table, levels: Mapping[str, str | None]) -> dict[str, int]:
    """Counts of rows whose column has another value than the level of its name, by a text for the report."""
    counts = {}
    for name, value in levels.items():
        if name in rows.column_names:
            count = rows.num_rows - _equal_rows(rows.column(name), value)
            if count:
                counts[f"rows whose column {name} differs from the level of their folder, which is not read"] = count
    return counts


def _equal_rows(column: pa.ChunkedArray, value: str | None) -> int:
    if value is None:
        return int(column.null_count)
    try:
        found = pc.sum(pc.equal(column.cast(_TEXT), value)).as_py()
    except pa.ArrowException:
        return 0
    return int(found or 0)
