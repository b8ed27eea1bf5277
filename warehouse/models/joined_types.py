"""The Arrow types of joined columns, and of the columns that they are computed from."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from transforms.columns.arrow_types import arrow_type
from transforms.joins.columns_read import other_columns
from transforms.joins.definition import JoinDefinition, column_type


def values_type(definition: JoinDefinition) -> pa.DataType:
    """The type of the values of a joined column."""
    return arrow_type(column_type(definition))


def other_types(definition: JoinDefinition) -> Mapping[str, pa.DataType]:
    """The types that the columns of the other table are declared as, by name; without its time."""
    found = {column.name: arrow_type(column.type) for column in other_columns(definition)}
    return {definition.known_at: pa.timestamp("us"), **found} if definition.known_at else found
