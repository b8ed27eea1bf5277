"""Check the names in a query: an unknown name is an error with the nearest ones, not an empty answer."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, select

from transforms.errors import HeadraceError, InputError, UnknownColumn, nearest
from transforms.operators import REGISTRY
from warehouse.catalog import schema
from warehouse.errors import UnknownClient, UnknownModel, UnknownTable
from warehouse.search.query import ComponentQuery


def check_names(connection: Connection, query: ComponentQuery) -> None:
    """Raise for names that the catalog does not have, with the nearest ones.

    Raises :class:`UnknownColumn`, :class:`UnknownModel`, :class:`UnknownClient`, :class:`UnknownTable`, and
    :class:`InputError` for operators and versions. A column of a registered table is known, also if no component
    reads it, and so is every registered operator.
    """
    models = schema.models.c
    if query.table is not None:
        _check_name(connection, UnknownTable("no such table", value=query.table), schema.tables.c.name)
    if query.client is not None:
        _check_name(connection, UnknownClient("no such client", value=query.client), schema.clients.c.name)
    if query.model is not None:
        _check_name(connection, UnknownModel("no such model", value=query.model), models.name)
    if query.column is not None:
        _check_column(connection, query.column)
    if query.operator is not None:
        _check_operator(connection, query.operator, query.operator_version)


def _check_name(connection: Connection, error: HeadraceError, column: ColumnElement[str]) -> None:
    name = str(error.value)
    if connection.execute(select(column).where(column == name).limit(1)).first() is None:
        error.allowed = nearest(name, set(connection.execute(select(column).distinct()).scalars()))
        raise error


def _check_column(connection: Connection, name: str) -> None:
    read = schema.component_columns.c.column_name
    if connection.execute(select(read).where(read == name).limit(1)).first() is None:
        listed = connection.execute(select(schema.tables.c.columns)).scalars()
        known = {str(column) for columns in listed for column, *_ in columns}
        if name not in known:
            raise UnknownColumn("no table has this column", value=name, allowed=nearest(name, known))


def _check_operator(connection: Connection, name: str, version: int | None) -> None:
    of = schema.component_operators.c
    applied = select(of.operator).where(of.operator == name, *([] if version is None else [of.version == version]))
    if connection.execute(applied.limit(1)).first() is not None:
        return
    operators = {operator.name: operator.version for operator in REGISTRY}
    if version is None:
        if name not in operators:
            raise InputError("no such operator", where="operator", value=name, allowed=nearest(name, operators))
        return
    versions = set(connection.execute(select(of.version).where(of.operator == name).distinct()).scalars())
    versions |= {operators[name]} if name in operators else set()
    if not versions:
        raise InputError("no such operator", where="operator", value=name, allowed=nearest(name, operators))
    if version not in versions:
        raise InputError(f"operator {name!r} has no such version", where="operator_version", value=version,
                         allowed=", ".join(map(str, sorted(versions))))  # fmt: skip
