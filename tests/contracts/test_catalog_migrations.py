"""A migrated catalog equals a fresh one, from every older revision, on every database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import ClauseElement, Connection, Table, create_engine, insert, inspect, select, text

from tests.warehouse.scenes import start
from transforms.encoding import digest
from warehouse import Failure, schema
from warehouse.catalog import Catalog
from warehouse.catalog_url import parsed_url
from warehouse.migrate import FOLDER, current_revision
from warehouse.migrations import HEAD
from warehouse.table import memo_key


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    return config


REVISIONS = [step.revision for step in ScriptDirectory.from_config(_config()).walk_revisions()][::-1]

_POSTGRESQL = {
    "columns": """
        SELECT table_name, column_name, data_type, character_maximum_length, collation_name, is_nullable, column_default
        FROM information_schema.columns WHERE table_schema = 'public' ORDER BY table_name, column_name""",
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY indexname",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2""",
    "sequences": "SELECT sequencename, data_type::text FROM pg_sequences WHERE schemaname = 'public' ORDER BY 1",
}


def _plain(found: object) -> str:
    """What was reflected, with clauses of SQL as their text."""
    if isinstance(found, dict):
        return repr({name: _plain(value) for name, value in found.items()})
    return str(found) if isinstance(found, ClauseElement) else repr(found)


def structure(connection: Connection) -> dict[str, Any]:
    """Everything that the database says about Headrace's tables."""
    if connection.dialect.name == "postgresql":
        found = {what: [tuple(row) for row in connection.execute(text(query))] for what, query in _POSTGRESQL.items()}
        return {what: [row for row in rows if "alembic_version" not in row] for what, rows in found.items()}
    tables = {}
    for table in schema.metadata.tables:
        here = inspect(connection)
        asked = (here.get_columns, here.get_pk_constraint, here.get_foreign_keys, here.get_indexes)
        parts = [sorted(map(_plain, part)) if isinstance(part := ask(table), list) else _plain(part) for ask in asked]
        creation = connection.execute(
            text("SELECT sql FROM sqlite_master WHERE name = :name"), {"name": table}
        ).scalar()
        unique = sorted(map(_plain, here.get_unique_constraints(table)))
        tables[table] = (*parts, unique, "AUTOINCREMENT" in str(creation))
    return tables


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """A connection past the catalog, committed at the end."""
    engine = create_engine(parsed_url(url))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@pytest.fixture
def fresh(empty_url: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    """The structure that the schema itself makes."""
    url = "sqlite://" if empty_url.startswith("sqlite") else request.getfixturevalue("new_database")(migrated=False)
    with connected(url) as connection:
        schema.metadata.create_all(connection)
        return structure(connection)


def upgrade(url: str, revision: str) -> None:
    """Take an empty database to an older revision."""
    with connected(url) as connection:
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


@pytest.mark.parametrize("revision", ["nothing", *REVISIONS])
def test_migrated_is_fresh(empty_url: str, fresh: dict[str, Any], revision: str, tmp_path: Any) -> None:
    (tmp_path / "home").mkdir(exist_ok=True)
    if revision != "nothing":
        upgrade(empty_url, revision)
    Catalog.open(empty_url).close()
    with connected(empty_url) as connection:
        assert current_revision(connection) == HEAD == REVISIONS[-1]
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []
        assert structure(connection) == fresh


def test_rows_survive(empty_url: str, tmp_path: Any) -> None:
    (tmp_path / "home").mkdir(exist_ok=True)
    upgrade(empty_url, "0001")
    row = {"name": "a", "served": 3, "leased_tasks": 2**40}
    with connected(empty_url) as connection:
        connection.execute(insert(schema.clients).values(**row))
    catalog = Catalog.open(empty_url)
    with catalog.read() as connection:
        (found,) = connection.execute(select(schema.clients)).mappings()
        assert found.items() >= row.items()
    catalog.close()


def test_memos_keep_their_tasks_and_waits_under_their_new_keys(empty_url: str, tmp_path: Any) -> None:
    """The new key of a memo is what matching asks for from now on."""
    (tmp_path / "home").mkdir(exist_ok=True)
    upgrade(empty_url, "0007")
    fingerprints = ("a" * 64, "b" * 64)
    digests = {"column": "1" * 64}
    old = {one: digest([one, [["column", digests["column"]]]]) for one in fingerprints}
    rows: list[tuple[Table, dict[str, Any]]] = [
        (schema.tables, {"name": "t", "root": "/", "columns": [], "version": 1, "registered_at": 0.0}),
        (schema.clients, {"name": "c", "served": 0, "leased_tasks": 0}),
        (schema.models, {"id": 1, "name": "m", "version": 1, "client": "c", "priority": 0, "label": "l", "table_name": "t",
                         "table_version": 1, "digest": "d", "live": True, "policy": "all", "submitted_at": 0.0}),
        (schema.fragments, {"id": 1, "fragment_id": "f", "table_name": "t", "path": "p", "row_groups": [0], "rows": 1,
                            "size_bytes": 1, "digests": digests}),
    ]  # fmt: skip
    for one in fingerprints:
        rows += [
            (schema.components, {"fingerprint": one, "shape": one, "expression": "x", "document": {}, "created_at": 0.0}),
            (schema.memos, {"memo_key": old[one], "fingerprint": one, "fragment": 1, "state": "PENDING", "created_at": 0.0,
                            "changed_at": 0.0, "queued_by": 1, "cause_code": "never_seen", "cause": "x"}),
            (schema.tasks, {"memo_key": old[one], "table_name": "t", "partition": "p", "state": "QUEUED", "fence": 0,
                            "attempts": 0, "not_before": 0.0, "created_at": 0.0, "changed_at": 0.0}),
            (schema.waits, {"memo_key": old[one], "model": 1}),
        ]  # fmt: skip
    with connected(empty_url) as connection:
        for table, row in rows:
            connection.execute(insert(table).values(**row))
    catalog = Catalog.open(empty_url)
    wanted = sorted(memo_key(one, digests) for one in fingerprints)
    with catalog.read() as connection:
        for table in (schema.memos, schema.tasks, schema.waits):
            assert sorted(connection.execute(select(table.c.memo_key)).scalars()) == wanted
        joined = select(schema.memos.c.fingerprint).join(
            schema.tasks, schema.tasks.c.memo_key == schema.memos.c.memo_key
        )
        assert sorted(connection.execute(joined).scalars()) == sorted(fingerprints)
    catalog.close()


_OPEN = """
import sys
from warehouse.catalog import Catalog
import alembic.command
print("ready", flush=True)
sys.stdin.readline()
Catalog.open(sys.argv[1]).close()
print("open")
"""


def test_many_processes_may_create_it_at_once(empty_url: str) -> None:
    from tests.contracts.test_catalog_contract import run_together

    assert run_together([start(_OPEN, empty_url) for _ in range(4)]) == ["open"] * 4


def test_failures_of_before_are_in_the_quarantine(empty_url: str, tmp_path: Any) -> None:
    """Those that were kept whole, and those of which only a text was: the quarantine is of both."""
    (tmp_path / "home").mkdir(exist_ok=True)
    upgrade(empty_url, "0010")
    document = Failure("memory", "MemoryError: \0 too much", "length", "length(query)", (4,), "c2FtcGxl").to_document()
    states = {1: "FAILED", 2: "FAILED", 3: "QUEUED", 4: "DONE"}
    rows: list[tuple[Table, dict[str, Any]]] = [
        (schema.tables, {"name": "t", "root": "/", "columns": [], "version": 1, "registered_at": 0.0}),
        (schema.clients, {"name": "c", "served": 0, "leased_tasks": 0}),
        (schema.models, {"id": 1, "name": "m", "version": 1, "client": "c", "priority": 0, "label": "l", "table_name": "t",
                         "table_version": 1, "digest": "d", "live": True, "policy": "all", "submitted_at": 0.0}),
        (schema.fragments, {"id": 1, "fragment_id": "f", "table_name": "t", "path": "p", "row_groups": [0], "rows": 1,
                            "size_bytes": 1, "digests": {}}),
        (schema.components, {"fingerprint": "a" * 64, "shape": "s", "expression": "e", "document": {}, "created_at": 0.0}),
        *((schema.memos, {"memo_key": str(task), "fingerprint": "a" * 64, "fragment": 1, "state": "FAILED", "created_at": 0.0,
                          "changed_at": 0.0, "queued_by": 1, "cause_code": "failed", "cause": ""}) for task in states),
        *((schema.tasks, {"id": task, "memo_key": str(task), "table_name": "t", "partition": "p", "state": state, "fence": 3,
                          "attempts": 3, "not_before": 0.0, "error": f"KeyError: {task}", "created_at": 0.0,
                          "changed_at": 7.0}) for task, state in states.items()),
        (schema.failures, {"task": 1, "document": document, "worker": "w", "attempt": 3, "failed_at": 5.0}),
    ]  # fmt: skip
    with connected(empty_url) as connection:
        for table, row in rows:
            connection.execute(insert(table).values(**row))
    catalog = Catalog.open(empty_url)
    of = schema.failures.c
    with catalog.read() as connection:
        listed = select(of.task, of.kind, of.operator, of.exception, of.error, of.failed_at, of.worker).order_by(
            of.task
        )
        assert [tuple(row) for row in connection.execute(listed)] == [
            (1, "memory", "length", "MemoryError", "MemoryError: \\0 too much", 5.0, "w"),
            (2, "raised", "", "KeyError", "KeyError: 2", 7.0, None),
        ]
        whole = connection.execute(select(of.document).order_by(of.task)).scalars().all()
        assert Failure.from_document(whole[0]) == Failure.from_document(document)
        assert Failure.from_document(whole[1]) == Failure("raised", "KeyError: 2")
    catalog.close()
