"""Many rows in one statement, on each database."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from warehouse.catalog import schema
from warehouse.catalog.bulk import add_to_rows, insert_absent, insert_alike, insert_rows, update_alike, update_rows
from warehouse.catalog.catalog import Catalog, insert_numbered
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


def test_rows_with_values_in_common(url: str) -> None:
    of = schema.operator_costs.c
    alike = {"rows": 0.0, "secs": 1.5, "stored_rows": 0.0, "stored_bytes": 0.0}
    catalog = Catalog.open(url)
    with catalog.write() as connection:
        insert_alike(connection, schema.operator_costs, ("operator", "version"), [], **alike)
        insert_alike(connection, schema.operator_costs, ("operator", "version"), [(name, 1) for name in NAMES], **alike)
        update_alike(connection, schema.operator_costs, ("secs", "operator"), [], version=2)
        update_alike(connection, schema.operator_costs, ("secs", "operator"), [(2.5, "NULL"), (3.5, "new")], version=2)
        update_alike(connection, schema.operator_costs, ("rows", "operator"), [(4.0, NAMES[-1])])
    with catalog.read() as connection:
        found = {
            row[0]: tuple(row)[1:] for row in connection.execute(select(of.operator, of.version, of.secs, of.rows))
        }
    assert found == dict.fromkeys(NAMES, (1, 1.5, 0.0)) | {"NULL": (2, 2.5, 0.0), NAMES[-1]: (1, 1.5, 4.0)}
    catalog.close()


def test_numbers_are_added_to_what_is_kept_of_the_old_ones(url: str) -> None:
    def addition(name: str, secs: float, keep: float) -> dict[str, float | str | int]:
        return {"fingerprint": name, **{f"new_{one}": secs for one in ("rows", "secs", "stored_bytes")},
                **{f"keep_{one}": keep for one in ("rows", "secs", "stored_bytes")}}  # fmt: skip

    catalog = Catalog.open(url)
    with catalog.write() as connection:
        add_to_rows(connection, schema.component_costs, [])
        add_to_rows(connection, schema.component_costs, [addition("one", 4.0, 0.5), addition("it's", 1.0, 0.5)])
        add_to_rows(connection, schema.component_costs, [addition("one", 3.0, 0.25)])
        rows = {row.fingerprint: tuple(row)[1:] for row in connection.execute(select(schema.component_costs))}
    assert rows == {"one": (4.0, 4.0, 4.0), "it's": (1.0, 1.0, 1.0)}
    catalog.close()


def test_ids_of_inserted_rows_are_in_their_order(url: str) -> None:
    of = schema.column_sets
    catalog = Catalog.open(url)
    with catalog.write() as connection:
        assert insert_numbered(connection, of, []) == ()
        first = insert_numbered(connection, of, [{"digest": str(number)} for number in range(3)])
        connection.execute(of.delete().where(of.c.id == first[0]))
        second = insert_numbered(connection, of, [{"digest": str(number)} for number in (9, 4, 7)])
        stored = {row.id: row.digest for row in connection.execute(select(of))}
    assert [stored[number] for number in (*first[1:], *second)] == ["1", "2", "9", "4", "7"]
    catalog.close()
