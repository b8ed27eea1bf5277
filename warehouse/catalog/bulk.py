"""Many rows in one statement: membership in a long list, inserts and updates.

A list is bound as one value, so a statement's text does not depend on its length. It is compiled and parsed once, and both
databases look each item up in the column's index.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Float,
    Integer,
    Table,
    Text,
    any_,
    func,
    literal,
    select,
)


def one_of(
    connection: Connection, column: ColumnElement[Any], items: Collection[str] | Collection[int]
) -> ColumnElement[bool]:
    """The condition that ``column`` (texts or integers) is one of ``items``; false for no items."""
    listed = list(items)
    if connection.dialect.name == "postgresql":
        kind = BigInteger() if isinstance(column.type, Integer) else Text()
        return column == any_(literal(listed, ARRAY(kind)))
    values = func.json_each(literal(json.dumps(listed), Text())).table_valued("value")
    return column.in_(select(values.c.value))


def insert_rows(connection: Connection, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
    """Insert rows with the same columns."""
    _insert(connection, table, list(rows), absent=False)


def insert_absent(connection: Connection, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
    """Insert the rows, all with the same columns, whose primary or unique key is new; keep existing rows."""
    _insert(connection, table, list(rows), absent=True)


def _insert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], *, absent: bool) -> None:
    if not rows:
        return
    columns = tuple(rows[0])
    if connection.dialect.name == "postgresql":
        arrays = tuple(_array(table.c[name], [row[name] for row in rows]) for name in columns)
        connection.exec_driver_sql(_unnested(table, columns, absent=absent), arrays)
    else:
        connection.exec_driver_sql(_inserted(table, columns, absent=absent), _tuples(table, columns, rows))


def insert_alike(
    connection: Connection, table: Table, columns: Sequence[str], rows: Iterable[Sequence[Any]], /, **alike: Any
) -> None:
    """Insert rows of plain texts and numbers; ``alike`` are the values that all of them get."""
    alike = _as_texts(alike)
    fixed, names = tuple(alike.values()), (*alike, *columns)
    listed = [(*fixed, *row) for row in rows]
    if not listed:
        return
    if connection.dialect.name == "postgresql":
        values = zip(names, zip(*listed, strict=True), strict=True)
        arrays = tuple(_array(table.c[name], column) for name, column in values)
        connection.exec_driver_sql(_unnested(table, names, absent=False), arrays)
    else:
        connection.exec_driver_sql(_inserted(table, names, absent=False), listed)


def update_rows(
    connection: Connection, table: Table, key: str, rows: Iterable[Mapping[str, Any]], **alike: Any
) -> None:
    """Update the rows with these values of the column ``key``, each once.

    ``rows`` all have the same columns, ``key`` among them; ``alike`` are the values that all of them get.
    """
    listed = list(rows)
    if not listed:
        return
    columns = (*(name for name in listed[0] if name != key), key)
    if connection.dialect.name == "postgresql":
        update_alike(connection, table, columns, [tuple(row[name] for name in columns) for row in listed], **alike)
    else:
        update_alike(connection, table, columns, _tuples(table, columns, listed), **alike)


def update_alike(
    connection: Connection, table: Table, columns: Sequence[str], rows: Iterable[Sequence[Any]], /, **alike: Any
) -> None:
    """Update the rows with these values of the last of ``columns``, each once, to those of the other columns.

    The values are plain texts and numbers; ``alike`` are those that all rows get.
    """
    columns, alike = tuple(columns), _as_texts(alike)
    if connection.dialect.name == "postgresql":
        listed = list(rows)
        if not listed:
            return
        values = zip(columns, zip(*listed, strict=True), strict=True)
        arrays = [_array(table.c[name], column) for name, column in values]
        statement = _joined(table, (columns[-1], *columns[:-1]), tuple(alike))
        connection.exec_driver_sql(statement, (*alike.values(), arrays[-1], *arrays[:-1]))
    else:
        fixed = tuple(alike.values())
        if bound := [(*fixed, *row) for row in rows]:
            connection.exec_driver_sql(_updated(table, columns, tuple(alike)), bound)


def add_to_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, float | str | int]]) -> None:
    """Add numbers to columns of rows, given with their primary keys, and insert the rows that are missing.

    A row has the keys, the numbers ``new_*`` and the factors ``keep_*``, by which the old numbers are multiplied first.
    """
    if not rows:
        return
    keys = tuple(column.name for column in table.primary_key)
    sums = tuple(column.name for column in table.columns if column.name not in keys)
    names = (*keys, *(f"new_{name}" for name in sums), *(f"keep_{name}" for name in sums))
    connection.exec_driver_sql(_added(table, keys, sums, connection.dialect.name), list(map(itemgetter(*names), rows)))


@lru_cache(maxsize=16)
def _added(table: Table, keys: tuple[str, ...], sums: tuple[str, ...], dialect: str) -> str:
    place = "%s" if dialect == "postgresql" else "?"
    names, places = ", ".join(f'"{name}"' for name in (*keys, *sums)), ", ".join([place] * (len(keys) + len(sums)))
    held = ", ".join(f'"{name}"' for name in keys)
    values = ", ".join(f'"{name}" = "{table.name}"."{name}" * {place} + excluded."{name}"' for name in sums)
    return f'INSERT INTO "{table.name}" ({names}) VALUES ({places}) ON CONFLICT ({held}) DO UPDATE SET {values}'


def _as_texts(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, with a StrEnum as its text, which takes the drivers less time."""
    return {name: str(value) if isinstance(value, str) else value for name, value in values.items()}


def _tuples(table: Table, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """The values as SQLite's driver takes them, which takes half of the time that SQLAlchemy's conversions take."""
    taken = [_SQLITE_VALUES.get(type(table.c[name].type)) for name in columns]
    if not any(taken):
        one, get = len(columns) == 1, itemgetter(*columns)
        return [(get(row),) if one else get(row) for row in rows]
    return [
        tuple(
            row[name] if convert is None else convert(row[name]) for name, convert in zip(columns, taken, strict=True)
        )
        for row in rows
    ]


#: Conversions of values that the driver does not take as they are.
_SQLITE_VALUES: dict[type[Any], Callable[[Any], Any]] = {
    JSON: lambda value: None if value is None else json.dumps(value),
    Boolean: lambda value: None if value is None else int(value),
}


@lru_cache(maxsize=256)
def _inserted(table: Table, columns: tuple[str, ...], *, absent: bool) -> str:
    names, places = ", ".join(f'"{name}"' for name in columns), ", ".join("?" * len(columns))
    return f'INSERT INTO "{table.name}" ({names}) VALUES ({places})' + (" ON CONFLICT DO NOTHING" if absent else "")


@lru_cache(maxsize=256)
def _updated(table: Table, columns: tuple[str, ...], alike: tuple[str, ...]) -> str:
    """An UPDATE of the row with the last of ``columns``; the parameters are those of ``alike``, then of ``columns``."""
    values = ", ".join(f'"{name}" = ?' for name in (*alike, *columns[:-1]))
    return f'UPDATE "{table.name}" SET {values} WHERE "{columns[-1]}" = ?'


@lru_cache(maxsize=256)
def _joined(table: Table, columns: tuple[str, ...], alike: tuple[str, ...]) -> str:
    """An UPDATE of the rows in one array per column; the parameters are those of ``alike``, then the arrays."""
    names, arrays, taken = _arrays(table, columns)
    source = f"(SELECT {', '.join(taken)} FROM unnest({arrays}) AS given ({names})) AS given ({names})"
    values = [f'"{name}" = %s' for name in alike] + [f'"{name}" = given."{name}"' for name in columns[1:]]
    return f'UPDATE "{table.name}" SET {", ".join(values)} FROM {source} WHERE "{table.name}"."{columns[0]}" = given."{columns[0]}"'


def _array(column: Column[Any], values: Iterable[Any]) -> str:
    """The values as PostgreSQL writes an array, in one pass: the driver's own writer takes longer than the insert."""
    if isinstance(column.type, JSON):
        values = (None if value is None else json.dumps(value) for value in values)
    return "{" + ",".join(["NULL" if value is None else _item(value) for value in values]) + "}"


def _item(value: Any) -> str:
    if isinstance(value, str):
        text = str(value)  # the text of a StrEnum
        return f'"{text}"' if text.isalnum() else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)


_KINDS: tuple[tuple[type[Any], str], ...] = (
    (JSON, "json"),
    (Boolean, "boolean"),
    (Integer, "bigint"),
    (Float, "double precision"),
)


@lru_cache(maxsize=256)
def _unnested(table: Table, columns: tuple[str, ...], *, absent: bool) -> str:
    """An INSERT of one array per column; on PostgreSQL ten times as fast as one statement per row."""
    names, arrays, taken = _arrays(table, columns)
    ending = " ON CONFLICT DO NOTHING" if absent else ""
    return f'INSERT INTO "{table.name}" ({names}) SELECT {", ".join(taken)} FROM unnest({arrays}) AS given ({names}){ending}'


def _arrays(table: Table, columns: Sequence[str]) -> tuple[str, str, list[str]]:
    """The names of the columns, parameters with arrays of them, and each column as it is taken from these."""
    kinds = [
        next((name for kind, name in _KINDS if isinstance(table.c[column].type, kind)), "text") for column in columns
    ]
    arrays = ", ".join(f"%s::{'text' if kind == 'json' else kind}[]" for kind in kinds)
    pairs = zip(columns, kinds, strict=True)
    taken = [f'"{name}"::json' if kind == "json" else f'"{name}"' for name, kind in pairs]
    return ", ".join(f'"{name}"' for name in columns), arrays, taken
