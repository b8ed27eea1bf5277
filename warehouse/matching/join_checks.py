"""Whether tables can feed the joined columns of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from sqlalchemy import Connection

from transforms.columns.arrow_types import arrow_type
from transforms.errors import InputError, TypeMismatch, UnknownColumn
from transforms.graphs.graph import component_from_document
from transforms.joins.definition import JoinDefinition, column_type
from warehouse.matching.column_checks import check_component
from warehouse.tables.arrow_types import parse_arrow_type
from warehouse.tables.manifests import get_table
from warehouse.tables.table import ColumnSchema, Table


def check_joins(connection: Connection, model: str, table: Table, joins: Mapping[str, JoinDefinition]) -> None:
    """Raise unless ``table`` and the other tables have what the joined columns of a model are computed from.

    Raises :class:`~warehouse.errors.UnknownTable`, :class:`UnknownColumn`, :class:`TypeMismatch`, and :class:`InputError` for a table
    without a time column, and for events that would see themselves.
    """
    for definition in joins.values():
        where = f"model {model}, {definition.aggregate} of table {definition.table}"
        definition.check_events(table.name)
        other = get_table(connection, definition.table)
        time_column(table, where)
        time_column(other, where)
        for pair in definition.keys:
            check_component(component_from_document(dict(pair.own)), table, f"{where}, key")
            check_component(component_from_document(dict(pair.other)), other, f"{where}, key")
        for name, document in (
            ("value", definition.value),
            ("condition", definition.where),
            ("order", definition.order),
        ):
            if document is not None:
                check_component(component_from_document(dict(document)), other, f"{where}, {name}")
        if definition.known_at:
            _check_time(other, definition.known_at, f"{where}, known_at", (pa.types.is_timestamp,))


def time_column(table: Table, where: str) -> str:
    """The time column of a table that is joined. Raises :class:`InputError` if it has none, and :class:`TypeMismatch`."""
    if table.time_column is None:
        raise InputError("a table that is joined must have a time column", where=where, value=f"table {table.name} without one",
                         next_step=f"headrace table add {table.name} {table.root} --time-column COLUMN")  # fmt: skip
    _check_time(table, table.time_column, where, (pa.types.is_timestamp, pa.types.is_date))
    return table.time_column


def _check_time(table: Table, name: str, where: str, kinds: Sequence[Callable[[pa.DataType], bool]]) -> None:
    try:
        stored = table.column(name).arrow_type
    except UnknownColumn as error:
        raise UnknownColumn(error.what, where=where, value=name, allowed=error.allowed,
                            next_step=f"headrace table show {table.name} lists the columns") from None  # fmt: skip
    found = parse_arrow_type(stored)
    if found is None or not any(kind(found) for kind in kinds):
        raise TypeMismatch("the time of a join must be a column of timestamps", where=where, value=f"column {name} of {stored}",
                           allowed="timestamp" + (" or date" if len(kinds) > 1 else ""))  # fmt: skip


def with_joined(table: Table, joins: Mapping[str, JoinDefinition]) -> Table:
    """``table`` with the joined columns of a model, also those that it does not have yet."""
    known = {column.name for column in table.columns}
    more = (
        ColumnSchema(name, str(arrow_type(column_type(one))), overlay_only=True)
        for name, one in joins.items()
        if name not in known
    )
    return replace(table, columns=(*table.columns, *more))
