"""A migrated catalog equals a new one, from every older revision, on each database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import ClauseElement, Connection, create_engine, inspect, select, text, update

import headrace as hr
from tests.warehouse.scenes import start
from transforms.comparison.pattern_facts import node_facts
from transforms.graphs.canonical import canonicalize
from transforms.graphs.graph import component_document
from transforms.graphs.subgraphs import subgraphs
from warehouse.catalog import schema
from warehouse.catalog.catalog import Catalog
from warehouse.catalog.migrate import FOLDER, current_revision
from warehouse.catalog.migrations import HEAD
from warehouse.catalog.urls import parse_url
from warehouse.config import WarehouseConfig
from warehouse.errors import CatalogVersionError
from warehouse.storage.storage import Storage
from warehouse.tables.evolution.schema_changes import SchemaChange
from warehouse.tables.history import schema_at, table_history
from warehouse.tables.table import ColumnSchema
from warehouse.tables.versions import ChangeNote, record_change
from warehouse.warehouse import Warehouse


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
        unique = sorted(map(_plain, (*here.get_unique_constraints(table), *here.get_check_constraints(table))))
        tables[table] = (*parts, unique, "AUTOINCREMENT" in str(creation))
    return tables


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """A connection past the catalog, committed at the end."""
    engine = create_engine(parse_url(url))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@pytest.fixture(scope="module")
def structures() -> dict[str, dict[str, Any]]:
    """The structures that the schema itself makes, by the database; :func:`fresh` makes each once."""
    return {}


@pytest.fixture
def fresh(empty_url: str, structures: dict[str, dict[str, Any]], request: pytest.FixtureRequest) -> dict[str, Any]:
    """The structure that the schema itself makes in the database of ``empty_url``."""
    database = empty_url.partition(":")[0]
    if database not in structures:
        url = "sqlite://" if database == "sqlite" else request.getfixturevalue("new_database")(migrated=False)
        with connected(url) as connection:
            schema.metadata.create_all(connection)
            structures[database] = structure(connection)
    return structures[database]


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


def test_a_new_catalog_has_the_version_table_of_alembic(
    empty_url: str, request: pytest.FixtureRequest, tmp_path: Any
) -> None:
    """A new catalog is not made by migrations, and the next release migrates it."""
    (tmp_path / "home").mkdir(exist_ok=True)
    upgraded = f"sqlite:///{tmp_path}/upgraded.db"
    if not empty_url.startswith("sqlite"):
        upgraded = request.getfixturevalue("new_database")(migrated=False)
    upgrade(upgraded, HEAD)
    Catalog.open(empty_url).close()
    found = []
    for url in (upgraded, empty_url):
        with connected(url) as connection:
            here = inspect(connection)
            columns = _plain({"columns": here.get_columns("alembic_version")})
            rows = connection.execute(text("SELECT * FROM alembic_version")).scalars().all()
            found.append((columns, here.get_pk_constraint("alembic_version"), rows))
    assert found[0] == found[1]
    assert found[1][2] == [HEAD]


def test_the_present_schema_of_a_table_is_recorded(empty_url: str, tmp_path: Any) -> None:
    """The schemas of versions of earlier releases are not known, so a history begins with that of the newest change."""
    (tmp_path / "home").mkdir(exist_ok=True)
    upgrade(empty_url, "r0004")
    columns = '[["k", "int32"], ["spam", "double", true]]'
    with connected(empty_url) as connection:
        for name, dropped in (("log", "NULL"), ("gone", "5.0")):
            connection.execute(
                text(
                    "INSERT INTO tables (name, root, columns, version, registered_at, dropped_at)"
                    f" VALUES ('{name}', '/log', :columns, 2, 1.0, {dropped})"
                ),
                {"columns": columns},
            )
            for version in (1, 2):
                connection.execute(
                    text(
                        "INSERT INTO changes (table_name, table_version, kind, columns, rows, fragments, source, why, created_at)"
                        f" VALUES ('{name}', {version}, 'register', '[]', 1, 1, '', '', 1.0)"
                    )
                )
    catalog = Catalog.open(empty_url)
    warehouse = Warehouse(
        WarehouseConfig(str(tmp_path / "home"), empty_url), catalog, Storage(str(tmp_path / "home")), lambda: 2.0
    )
    wider = (
        ColumnSchema("k", "int64", stored_types=("int32", "int64")),
        ColumnSchema("spam", "double", overlay_only=True),
    )

    def widen(connection: Connection) -> None:
        connection.execute(update(schema.tables).where(schema.tables.c.name == "log").values(version=3))
        record_change(connection, warehouse, "log", 3, ChangeNote("append", (), 1, 1, "", "", wider), 2.0)

    catalog.run(widen)
    with catalog.read() as connection:
        assert [one.schema for one in table_history(connection, "log")] == [
            (), (), (SchemaChange("k", "int32", "int64"),),
        ]  # fmt: skip
        assert [one.arrow_type for one in schema_at(connection, "log", 1)] == ["int32", "double"]
        assert schema_at(connection, "log", 3) == wider
        recorded = select(schema.changes.c.table_name).where(schema.changes.c.schema.is_not(None))
        assert connection.execute(recorded).scalars().all() == ["log", "log"]
    catalog.close()


def test_the_facts_of_known_subgraphs_are_recorded(empty_url: str, tmp_path: Any, caplog: Any) -> None:
    (tmp_path / "home").mkdir(exist_ok=True)
    upgrade(empty_url, "r0010")
    roots = [
        canonicalize((hr.text("query").lower().unigrams() & hr.text("title").unigrams()).hash_buckets(n).node)
        for n in (10, 20)
    ]
    insert = "INSERT INTO components (fingerprint, shape, expression, document, created_at) VALUES (:name, :name, 'x', :document, 0)"
    with connected(empty_url) as connection:
        for root in roots:
            connection.execute(text(insert), {"name": root.identity, "document": json.dumps(component_document(root))})
        connection.execute(text(insert), {"name": "f" * 64, "document": "[]"})
    Catalog.open(empty_url).close()
    with connected(empty_url) as connection:
        found = {tuple(row) for row in connection.execute(select(schema.subgraph_facts))}
    assert found == {(fact, node.identity) for root in roots for node in subgraphs(root) for fact in node_facts(node)}
    assert len(found) > 6
    assert "no pattern finds it" in caplog.text


@pytest.mark.parametrize("revision", ["0001", "0015", "r0001", "r0002"])
def test_a_catalog_of_before_the_first_release_is_refused(empty_url: str, revision: str, tmp_path: Any) -> None:
    (tmp_path / "home").mkdir(exist_ok=True)
    with connected(empty_url) as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        connection.execute(text(f"INSERT INTO alembic_version VALUES ('{revision}')"))
    with pytest.raises(CatalogVersionError, match="before the first release") as caught:
        Catalog.open(empty_url)
    assert (caught.value.value, caught.value.allowed) == (revision, HEAD)
    assert caught.value.next_step == "register the tables again, in a new home"
    with connected(empty_url) as connection:
        assert current_revision(connection) == revision
        assert inspect(connection).get_table_names() == ["alembic_version"]


_OPEN = """
import sys
from warehouse.catalog.catalog import Catalog
print("ready", flush=True)
sys.stdin.readline()
Catalog.open(sys.argv[1]).close()
print("open")
"""


@pytest.mark.medium
def test_many_processes_may_create_it_at_once(empty_url: str) -> None:
    from tests.contracts.test_catalog_contract import run_together

    assert run_together([start(_OPEN, empty_url) for _ in range(4)]) == ["open"] * 4
