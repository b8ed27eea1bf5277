"""Statistics of an input's values over a sample."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.types import ColumnType, Dense, Ragged, Vector, Weighted

_EXAMPLES, _ITEMS, _CHARACTERS = 3, 4, 24


@dataclass(frozen=True, slots=True)
class Spread:
    """Least, middle and greatest; the middle is the median of lengths, the mean of numbers."""

    least: float
    middle: float
    most: float


@dataclass(frozen=True, slots=True)
class Statistics:
    """One input over a sample.

    Attributes:
        rows: events in the sample.
        empty: null values and empty lists.
        values: values that are not null; of lists and vectors, their items.
        distinct: distinct values.
        top_share: the share of the most frequent value; None without values.
        top: the most frequent value, as text.
        not_finite: NaN and infinite floats; of weighted lists, weights.
        lengths: of lists.
        numbers: of finite numbers that are not ids; of weighted lists, of the weights.
        examples: the first distinct values, as text.
    """

    rows: int
    empty: int
    values: int
    distinct: int
    top_share: float | None
    top: str
    not_finite: int
    lengths: Spread | None
    numbers: Spread | None
    examples: tuple[str, ...]

    @property
    def empty_share(self) -> float | None:
        """The share of empty rows; None without rows."""
        return self.empty / self.rows if self.rows else None


def statistics_of(column: pa.Array, column_type: ColumnType) -> Statistics:
    """The statistics of a column in the Arrow layout of its type."""
    lengths = None
    items, weights = column, None
    empty = column.null_count
    if isinstance(column_type, Ragged | Weighted):
        sizes = np.asarray(pc.fill_null(pc.list_value_length(column), 0))
        lengths = Spread(int(sizes.min()), float(np.median(sizes)), int(sizes.max())) if len(sizes) else None
        empty = int((sizes == 0).sum())
        items = column.flatten()
        if isinstance(column_type, Weighted):
            items, weights = items.flatten()
    elif isinstance(column_type, Vector):
        items = column.flatten()
    measured = weights if weights is not None else items if column_type.buckets is None else None
    counts = pc.value_counts(items.drop_null())
    top = int(np.argmax(np.asarray(counts.field("counts")))) if len(counts) else None
    found = len(items) - items.null_count
    return Statistics(
        rows=len(column),
        empty=empty,
        values=found,
        distinct=len(counts),
        top_share=None if top is None else counts.field("counts")[top].as_py() / found,
        top="" if top is None else value_text(counts.field("values")[top].as_py()),
        not_finite=0 if measured is None else _not_finite(measured),
        lengths=lengths,
        numbers=None if measured is None else _spread(measured),
        examples=_examples(column),
    )


def plain_type(stored: pa.DataType) -> Dense:
    """The column type of a stored label; text unless it is a number."""
    if pa.types.is_boolean(stored):
        return Dense("bool")  # type: ignore[arg-type]  # its name stands for it
    if pa.types.is_integer(stored):
        return Dense("int64")  # type: ignore[arg-type]
    return Dense("float64" if pa.types.is_floating(stored) else "string")  # type: ignore[arg-type]


def is_number(column_type: pa.DataType) -> bool:
    """Whether an Arrow type is boolean or numeric."""
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return any(is_kind(column_type) for is_kind in kinds)


def _not_finite(items: pa.Array) -> int:
    if not pa.types.is_floating(items.type):
        return 0
    return int(pc.sum(pc.invert(pc.is_finite(items.drop_null()))).as_py() or 0)


def _spread(items: pa.Array) -> Spread | None:
    if not is_number(items.type):
        return None
    values = np.asarray(items.drop_null()).astype(np.float64)
    values = values[np.isfinite(values)]
    return Spread(float(values.min()), float(values.mean()), float(values.max())) if len(values) else None


def _examples(column: pa.Array) -> tuple[str, ...]:
    """The first distinct values that are neither null nor empty lists."""
    found: dict[str, None] = {}
    for value in column[:1000].to_pylist():
        if value is not None and value != []:
            found[value_text(value)] = None
        if len(found) == _EXAMPLES:
            break
    return tuple(found)


def value_text(value: Any) -> str:
    """A value as an example, cut if it is long."""
    match value:
        case list():
            items = [value_text(item) for item in value[:_ITEMS]]
            return f"[{', '.join(items)}{', …' if len(value) > _ITEMS else ''}]"
        case dict():
            return ":".join(value_text(item) for item in value.values())
        case float():
            return f"{value:.6g}"
        case datetime():
            return value.isoformat()
        case str():
            return repr(value if len(value) <= _CHARACTERS else value[: _CHARACTERS - 1] + "…")
        case _:
            return str(value)
