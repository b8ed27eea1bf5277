"""Many rows in one statement, on each database."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from warehouse.catalog import schema
from warehouse.catalog.bulk import insert_absent, insert_rows, update_rows
from warehouse.catalog.catalog import Catalog
from warehouse.scheduling.task_states import TaskState

NAMES = ("plain", "it's", 'quoted "twice"', "back\\slash", "{braces, and commas}", "NULL", "ünïcode 🙂", "%s ? :name")
_TABLE = {"root": "/x", "time_column": None, "version": 1, "registered_at": 0.5}


def documents(name: str) -> list[Any]:
    return [name, 1.5, None, True, {"of": [name]}]


def test_values_are_stored_and_updated_as_they_are(url: str) -> None:
    tables = schema.tables.c
    catalog = Catalog.open(url)
    with catalog.write() as connection:
        insert_rows(connection, schema.tables, [{**_TABLE, "name": name, "columns": documents(name)} for name in NAMES])
        insert_absent(connection, schema.tables, [{**_TABLE, "name": name, "columns": []} for name in ("new", *NAMES)])
        changes = [{"root": f"{name}/", "name": name, "columns": [name]} for name in NAMES[1:]]
        update_rows(connection, schema.tables, "name", changes, version=7, dropped_at=None, time_column=TaskState.DONE)
        update_rows(connection, schema.tables, "name", [])
    with catalog.read() as connection:
        query = select(tables.name, tables.root, tables.columns, tables.version, tables.time_column, tables.dropped_at)
        found = {row.name: tuple(row)[1:] for row in connection.execute(query)}
    expected = {name: (f"{name}/", [name], 7, "DONE", None) for name in NAMES[1:]}
    assert found == expected | {"new": ("/x", [], 1, None, None), "plain": ("/x", documents("plain"), 1, None, None)}
    catalog.close()


@pytest.mark.parametrize("key", ["version", "name"])
def test_keys_that_no_row_has_change_nothing(url: str, key: str) -> None:
    catalog = Catalog.open(url)
    with catalog.write() as connection:
        insert_rows(connection, schema.tables, [{**_TABLE, "name": "one", "columns": []}])
        update_rows(connection, schema.tables, key, [{key: 9 if key == "version" else "two", "root": "/y"}])
        assert connection.execute(select(schema.tables.c.root)).scalars().all() == ["/x"]
    catalog.close()
