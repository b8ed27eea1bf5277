"""Searches use the indexes of the databases, on a catalog of about 10,000 rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Select, func, select

from transforms.comparison.pattern_facts import PatternFacts
from transforms.expressions.expression import text
from transforms.graphs.canonical import canonicalize
from transforms.graphs.graph import component_document
from warehouse import ComponentQuery
from warehouse.catalog import schema
from warehouse.catalog.catalog import Catalog
from warehouse.search import measures
from warehouse.search import sql as search_sql
from warehouse.search.paging import PageKey
from warehouse.search.query import Sort

COMPONENTS = 20_000

#: One statement each; ``n.i`` counts from 0. Written so that both databases understand them.
_ROWS = (
    "INSERT INTO tables VALUES ('log', '/x', NULL, '[]', 1, 0, NULL)",
    "INSERT INTO clients (name, served, leased_tasks) VALUES ('search', 0, 0)",
    "INSERT INTO fragments (id, fragment_id, table_name, partition, path, row_groups, rows, size_bytes, digests)"
    " VALUES (1, 'f', 'log', 'h', 'p', '[0]', 1, 1, '{}')",
    "INSERT INTO models (id, name, version, client, priority, label, table_name, table_version, digest, live, submitted_at)"
    " SELECT i + 1, 'm' || i, 1, 'search', 0, 'l', 'log', 1, 'd', true, 0 FROM n WHERE i < 400",
    "INSERT INTO components SELECT {fp}, {fp}, 'x', '{document}', i FROM n",
    "INSERT INTO component_columns SELECT {fp}, 'c' || (i - i / 500 * 500) FROM n",
    "INSERT INTO component_operators SELECT {fp}, 'o' || (i - i / 1000 * 1000), 1 FROM n",
    "INSERT INTO component_subgraphs SELECT {fp}, {fp} FROM n",
    "INSERT INTO component_subgraphs SELECT {fp}, CAST(900000000 + i / 5 AS VARCHAR) FROM n",
    "INSERT INTO subgraph_facts SELECT 'f' || (i - i / 800 * 800), CAST(900000000 + i AS VARCHAR) FROM n WHERE i < 4000",
    "INSERT INTO subgraph_facts SELECT 'wide', CAST(900000000 + i AS VARCHAR) FROM n WHERE i < 4000",
    "INSERT INTO model_inputs (model, position, name, fingerprint) SELECT i - i / 400 * 400 + 1, i / 400, 'x', {fp} FROM n",
    "INSERT INTO submissions SELECT i + 1, i - i / 400 * 400 + 1, i, false, 0, 0, 0, 0 FROM n WHERE i < 1000",
    "INSERT INTO memo_files (id, path, checksum, rows, size_bytes, live_bytes, written_at) VALUES (1, 'x', 'x', 1, 1, 1, 0)",
    "INSERT INTO memos (memo_key, fingerprint, fragment, state, file, rows, size_bytes, secs, created_at, changed_at,"
    " queued_by, cause_code, cause) SELECT CAST(i AS VARCHAR), CAST(100000000 + i / 3 AS VARCHAR), 1, 'READY', 1, 1, 1, 1,"
    " 0, 0, 1, 'c', 'c' FROM n",
)


def large(catalog: Catalog) -> None:
    document = json.dumps(component_document(canonicalize(text("query").lower().node)))
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {COMPONENTS - 1})"
    with catalog.write() as connection:
        for statement in _ROWS:
            words = statement.replace("{fp}", "CAST(100000000 + i AS VARCHAR)").replace("{document}", document)
            if " SELECT " in words:
                head, _, query = words.partition(" SELECT ")
                words = f"{head} {numbers} SELECT {query}"
            connection.exec_driver_sql(words)
        connection.exec_driver_sql("ANALYZE")


@pytest.fixture(scope="module")
def catalog(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """A large catalog in the database that ``--catalog`` names."""
    if request.config.getoption("--catalog") == "postgresql":
        url = request.getfixturevalue("postgres").database(migrated=True)
    else:
        url = f"sqlite:///{tmp_path_factory.mktemp('catalog')}/catalog.db"
    made = Catalog.open(url)
    large(made)
    yield made
    made.close()


def plan_of(connection: Connection, query: Select[Any]) -> str:
    statement = str(query.compile(connection, compile_kwargs={"literal_binds": True}))
    explain = "EXPLAIN QUERY PLAN" if connection.dialect.name == "sqlite" else "EXPLAIN"
    return "\n".join(str(row[-1]) for row in connection.exec_driver_sql(f"{explain} {statement}"))


def search_plan(
    catalog: Catalog,
    query: ComponentQuery,
    sort: Sort = "newest",
    facts: PatternFacts = search_sql.NO_FACTS,
    after: PageKey | None = None,
) -> str:
    with catalog.read() as connection:
        given = search_sql.conditions(query, facts)
        found = search_sql.ordered(given, search_sql.narrowest(connection, given, sort), sort, after)
        return plan_of(connection, found.limit(51))


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (ComponentQuery(column="c7"), "ix_component_columns_column_name_fingerprint"),
        (ComponentQuery(operator="o7"), "ix_component_operators_operator_version_fingerprint"),
        (ComponentQuery(operator="o7@1"), "ix_component_operators_operator_version_fingerprint"),
        (ComponentQuery(subgraph="900000007"), "ix_component_subgraphs_subgraph_fingerprint"),
        (ComponentQuery(subgraph="9" + "0" * 63), "ix_component_subgraphs_subgraph_fingerprint"),
        (ComponentQuery(model="m7"), "model_inputs"),
        (ComponentQuery(column="c7", min_size_bytes=1), "ix_memos_fingerprint_state"),
    ],
    ids=lambda value: value.text if isinstance(value, ComponentQuery) else "",
)
def test_a_narrow_condition_uses_its_index(catalog: Catalog, query: ComponentQuery, index: str) -> None:
    plan = search_plan(catalog, query)
    assert index in plan
    for table in (
        "components",
        "component_columns",
        "component_operators",
        "component_subgraphs",
        "model_inputs",
        "memos",
    ):
        assert not reads_whole(plan, table), plan


@pytest.mark.parametrize("facts", [("f7",), ("f7", "wide")], ids=" ".join)
def test_facts_of_a_node_use_their_index(catalog: Catalog, facts: tuple[str, ...]) -> None:
    plan = search_plan(catalog, ComponentQuery(), facts=PatternFacts((frozenset(facts),), is_whole=True))
    for table in ("components", "component_subgraphs", "subgraph_facts"):
        assert not reads_whole(plan, table), plan


def test_wide_facts_are_checked_by_component(catalog: Catalog) -> None:
    plan = search_plan(catalog, ComponentQuery(), facts=PatternFacts((frozenset({"wide"}),), is_whole=True))
    if not plan.startswith("Limit"):  # PostgreSQL has statistics, and decides by itself
        assert "SCAN components USING COVERING INDEX ix_components_created_at_fingerprint" in plan
        assert "TEMP B-TREE" not in plan
        assert not reads_whole(plan, "subgraph_facts"), plan


def reads_whole(plan: str, table: str) -> bool:
    """Whether a plan reads every row of a table: a scan that no condition on an index narrows."""
    lines = [line.strip(" ->") for line in plan.splitlines()]
    return any(
        line == f"SCAN {table}" or line.startswith((f"SCAN {table} USING", f"Seq Scan on {table} ")) for line in lines
    )


def test_a_wide_condition_walks_in_the_order_that_is_asked_for(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_sql, "NARROW", 10)
    plan = search_plan(catalog, ComponentQuery(operator="o7"))
    if not plan.startswith("Limit"):  # PostgreSQL has statistics, and decides by itself
        assert "SCAN components USING COVERING INDEX ix_components_created_at_fingerprint" in plan
        assert "TEMP B-TREE" not in plan


@pytest.mark.parametrize("sort", ["newest", "oldest"])
def test_a_page_after_a_key_begins_at_it(catalog: Catalog, sort: Sort) -> None:
    plan = search_plan(catalog, ComponentQuery(), sort, after=PageKey(9_000.0, "1"))
    assert "ix_components_created_at_fingerprint" in plan
    assert not reads_whole(plan, "components"), plan
    assert "TEMP B-TREE" not in plan
    assert "Sort" not in plan


@pytest.mark.parametrize("sort", ["size", "secs", "saved", "hits"])
def test_a_page_in_the_order_of_a_measure_computes_it_once(catalog: Catalog, sort: Sort) -> None:
    plan = search_plan(catalog, ComponentQuery(), sort, after=PageKey(1, "1"))
    assert "MATERIALIZE measured" in plan or "CTE Scan on measured" in plan
    assert not reads_whole(plan, "memos") or "ix_memos_fingerprint_state" in plan or "Seq Scan on memos" in plan, plan
    narrow = search_plan(catalog, ComponentQuery(column="c7"), sort, after=PageKey(1, "1"))
    for table in ("components", "component_columns", "memos", "model_inputs"):
        assert not reads_whole(narrow, table), narrow


def test_sums_over_memos_use_indexes(catalog: Catalog) -> None:
    of = schema.memos.c
    with catalog.read() as connection:
        some = select(measures.size_bytes()).where(schema.components.c.fingerprint == "100000007")
        assert "ix_memos_fingerprint_state" in plan_of(connection, some.select_from(schema.components))
        named = select(func.sum(of.size_bytes)).where(of.file == 2, of.state == "READY")
        assert "ix_memos_file_state" in plan_of(connection, named)
