from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from tests.support import statements as sent
from tests.support.examples import scaled
from tests.warehouse.scenes import Clock, model, work
from tests.warehouse.small_catalogs import (
    COMPONENTS,
    DAY,
    FINGERPRINTS,
    SmallCatalog,
    SomeMemo,
    SomeModel,
    small_catalogs,
    write_catalog,
)
from transforms.comparison.pattern import Pattern
from transforms.errors import InputError, UnknownColumn
from transforms.graphs.component_reader import ComponentReader
from transforms.graphs.subgraphs import subgraphs
from warehouse import ComponentQuery, SearchResult, Warehouse, get_component, search_components, submit_model
from warehouse.catalog import schema
from warehouse.errors import UnknownClient, UnknownComponent, UnknownModel, UnknownTable
from warehouse.scheduling.task_states import MemoState
from warehouse.search import sql as search_sql
from warehouse.search.facets import FacetValue, facets
from warehouse.search.paging import PageKey
from warehouse.search.query import SORTS, Sort

_FEW = settings(max_examples=scaled(60))


@pytest.fixture
def two_models(warehouse: Warehouse, log: Path, clock: Clock) -> None:
    submit_model(warehouse, model("one", inputs=2))
    clock.advance(DAY)
    submit_model(warehouse, model("two", "ads", inputs=5))


def find(warehouse: Warehouse, **conditions: Any) -> tuple[Any, ...]:
    return search_components(warehouse, ComponentQuery(**conditions)).components


@pytest.mark.usefixtures("two_models")
def test_everything_newest_first(warehouse: Warehouse) -> None:
    found = search_components(warehouse, count=True)
    assert (len(found.components), found.more, found.total) == (6, False, 6)
    moments = [row.created_at for row in found.components]
    assert moments == sorted(moments, reverse=True)
    assert len(set(moments)) == 2


@pytest.mark.usefixtures("two_models")
def test_a_count_ends_at_the_most_that_is_counted(warehouse: Warehouse) -> None:
    every, some = ComponentQuery(), ComponentQuery(pattern=Pattern.parse("_(query, ...)"))
    for query, all_of_them in ((every, 6), (some, 2), (ComponentQuery(pattern=Pattern.parse("lower(_)")), 0)):
        for most in (1, all_of_them, all_of_them + 1):
            found = search_components(warehouse, query, limit=1, count=True, most_counted=most)
            assert (found.total, found.is_least) == (min(all_of_them, most), all_of_them > most), (query.text, most)


@pytest.mark.usefixtures("two_models")
def test_by_column_operator_and_model(warehouse: Warehouse) -> None:
    assert len(find(warehouse, column="query")) == 2
    assert len(find(warehouse, column="title")) == 3
    assert find(warehouse, column="clicked") == (), "a column of the table that nothing reads"
    assert len(find(warehouse, operator="intersect")) == 1
    assert find(warehouse, operator="log1p@1") == find(warehouse, operator="log1p", operator_version=1)
    assert len(find(warehouse, model="one")) == 3
    assert len(find(warehouse, model="two", column="title", operator="length")) == 1
    assert len(find(warehouse, client="ads")) == 6
    assert len(find(warehouse, client="search", table="log", state=MemoState.PENDING)) == 2


@pytest.mark.usefixtures("two_models")
def test_names_that_mean_nothing_are_refused_with_the_nearest(warehouse: Warehouse) -> None:
    for conditions, error, allowed in (
        ({"model": "on"}, UnknownModel, "one"),
        ({"client": "searhc"}, UnknownClient, "search"),
        ({"table": "lug"}, UnknownTable, "log"),
        ({"column": "tilte"}, UnknownColumn, "title"),
        ({"operator": "lenght"}, InputError, "length"),
        ({"operator": "lenght@1"}, InputError, "length"),
        ({"operator": "length@7"}, InputError, "1"),
        ({"operator": "length@x"}, InputError, "hash_buckets@1"),
        ({"operator_version": 1}, InputError, ""),
        ({"subgraph": "xyz"}, InputError, "digits"),
        ({"min_size_bytes": -1}, InputError, "0 or more"),
    ):
        with pytest.raises(error) as caught:
            find(warehouse, **conditions)
        assert allowed in caught.value.allowed, conditions


@pytest.mark.medium
@pytest.mark.usefixtures("two_models")
def test_a_row_shows_costs_and_models(warehouse: Warehouse) -> None:
    (row,) = find(warehouse, operator="intersect")
    assert (row.columns, row.models, dict(row.memos)) == (("query", "title"), ("one", "two"), {"PENDING": 3})
    assert set(row.operators) == {"hash_buckets", "intersect", "unigrams"}
    assert (row.rows, row.bytes, row.secs, row.hits) == (0, 0, 0.0, 2)
    work(warehouse)
    (row,) = find(warehouse, operator="intersect")
    assert dict(row.memos) == {"READY": 3}
    assert (row.rows, row.secs, row.saved_secs) == (60, 1.5, 1.5)
    assert row.bytes > 0


@pytest.mark.usefixtures("two_models")
def test_by_fingerprint(warehouse: Warehouse) -> None:
    (row,) = find(warehouse, operator="log1p")
    assert get_component(warehouse, row.fingerprint[:12]) == row
    for nothing in ("zz", "%", "F" * 64):
        with pytest.raises(UnknownComponent, match="no such component"):
            get_component(warehouse, nothing)
    with pytest.raises(UnknownComponent, match="several components"):
        get_component(warehouse, "")


@pytest.mark.usefixtures("two_models")
def test_the_graphs_of_a_bare_pattern_are_read_if_another_version_is_in_the_catalog(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []
    plain = ComponentReader.read
    monkeypatch.setattr(ComponentReader, "read", lambda self, document: read.append(document) or plain(self, document))
    before = find(warehouse, pattern=Pattern.parse("length(_)"))
    assert (len(before), read) == (1, []), "its name is enough"
    older = (
        update(schema.component_operators).where(schema.component_operators.c.operator == "length").values(version=7)
    )
    warehouse.catalog.run(lambda connection: connection.execute(older))
    after = find(warehouse, pattern=Pattern.parse("length(_)"))
    assert [one.fingerprint for one in after] == [one.fingerprint for one in before]
    assert len(read) == 1


_PARTS = sorted({part.identity for component in COMPONENTS for part in subgraphs(component)})
_PATTERNS = (
    "unigrams(_)",
    "hash_buckets@1(..., buckets=10)",
    "hash_buckets(intersect(...))",
    "hash_buckets(unigrams(query))",
    "intersect(unigrams(_), unigrams(_))",
    "_(unigrams(_), ...)",
    "fill_null(_, value=0)",
    "fill_null(price, ...)",
    "_(query)",
    "lower(_)",
    "log1p(_)",
)
_MOMENTS = st.integers(0, 40).map(lambda quarter: quarter * DAY / 4)


@st.composite
def queries(draw: st.DrawFn) -> ComponentQuery:
    """Up to three conditions, most of which hold for something."""
    possible: dict[str, st.SearchStrategy[Any]] = {
        "column": st.sampled_from(("query", "title", "price", "unread")),
        "operator": st.sampled_from(("lower", "unigrams", "hash_buckets", "intersect@1", "log1p", "length")),
        "subgraph": st.sampled_from(_PARTS).flatmap(lambda part: st.sampled_from((part, part[:8], part[:1]))),
        "pattern": st.sampled_from(_PATTERNS).map(Pattern.parse),
        "fingerprint": st.sampled_from(FINGERPRINTS).flatmap(lambda key: st.sampled_from((key, key[:5], key[:1]))),
        "model": st.sampled_from(("a", "b", "c")),
        "client": st.sampled_from(("east", "west")),
        "table": st.sampled_from(("ads", "log")),
        "created_before": _MOMENTS,
        "created_after": _MOMENTS,
        "min_size_bytes": st.integers(0, 100),
        "max_size_bytes": st.integers(0, 100),
        "min_hits": st.integers(0, 5),
        "min_saved_secs": st.integers(0, 6).map(lambda quarters: quarters / 4),
        "state": st.sampled_from(tuple(MemoState)),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(possible)), unique=True, max_size=3))
    return ComponentQuery(**{name: draw(possible[name]) for name in chosen})


def known_names(small: SmallCatalog, query: ComponentQuery) -> bool:
    return query.model in (None, *(one.name for one in small.models)) and query.client in (
        None,
        *(one.client for one in small.models),
    )


def expected(small: SmallCatalog, query: ComponentQuery, sort: Sort) -> list[str]:
    keys = {
        "newest": lambda at: (-small.created[at],),
        "oldest": lambda at: (small.created[at],),
        "size": lambda at: (-small.size_bytes(at),),
        "hits": lambda at: (-small.hits(at),),
        "saved": lambda at: (-small.saved_secs(at),),
        "secs": lambda at: (-small.secs(at),),
    }
    found = sorted((at for at in small.known if small.finds(query, at)), key=lambda at: FINGERPRINTS[at],
                   reverse=sort == "newest")  # fmt: skip
    return [FINGERPRINTS[at] for at in sorted(found, key=keys[sort])]


@pytest.mark.slow
@_FEW
@given(small=small_catalogs(), asked=st.lists(st.tuples(queries(), st.sampled_from(SORTS)), min_size=4, max_size=8),
       narrow=st.sampled_from((0, 1, 5000)), page=st.tuples(st.integers(1, 4), st.integers(0, 3)))  # fmt: skip
def test_a_search_finds_what_a_naive_one_does(
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
    small: SmallCatalog,
    asked: list[tuple[ComponentQuery, Sort]],
    narrow: int,
    page: tuple[int, int],
) -> None:
    write_catalog(warehouse, small, warehouse.clock())
    monkeypatch.setattr(search_sql, "NARROW", narrow)  # whichever condition leads, or none: the answer is the same
    limit, offset = page
    for query, sort in asked:
        if not known_names(small, query):
            with pytest.raises((UnknownModel, UnknownClient)):
                search_components(warehouse, query)
            continue
        wanted = expected(small, query, sort)
        found = search_components(warehouse, query, sort=sort, limit=limit, offset=offset, count=True)
        assert [row.fingerprint for row in found.components] == wanted[offset : offset + limit], query
        assert (found.total, found.more) == (len(wanted), len(wanted) > offset + limit)
        check_rows(small, found)
        assert walked(warehouse, query, sort, limit) == wanted


def walked(warehouse: Warehouse, query: ComponentQuery, sort: Sort, limit: int) -> list[str]:
    """The fingerprints of all pages, each after the key of the one before."""
    listed: list[str] = []
    after = None
    while True:
        page = search_components(warehouse, query, sort=sort, limit=limit, after=after, count=True)
        assert page.total is not None
        listed += [row.fingerprint for row in page.components]
        after = page.after if page.after is None else PageKey.parse(page.after.text)
        assert page.more == (after is not None)
        if after is None:
            return listed
        assert page.total >= len(listed)


@pytest.mark.usefixtures("two_models")
@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("pattern", [None, "_(_, ...)"])
def test_pages_after_keys_are_all_of_the_order(warehouse: Warehouse, sort: Sort, pattern: str | None) -> None:
    query = ComponentQuery(pattern=None if pattern is None else Pattern.parse(pattern))
    whole = [row.fingerprint for row in search_components(warehouse, query, sort=sort).components]
    assert len(whole) == 6 if pattern is None else len(whole) > 2
    for limit in (1, 2, 5):
        assert walked(warehouse, query, sort, limit) == whole


@pytest.mark.slow
@_FEW
@given(small=small_catalogs(), asked=st.lists(queries(), min_size=2, max_size=4), most=st.sampled_from((1, 3, 1000)))
def test_a_facet_counts_what_a_search_with_its_value_finds(
    warehouse: Warehouse, small: SmallCatalog, asked: list[ComponentQuery], most: int
) -> None:
    write_catalog(warehouse, small, warehouse.clock())
    for query in asked:
        if not known_names(small, query):
            continue
        wanted = expected(small, query, "newest")
        found = facets(warehouse, query, most_counted=most)
        assert (found.components, found.is_least) == (min(len(wanted), most), len(wanted) > most)
        for field, values in (
            ("operator", found.operators),
            ("table", found.tables),
            ("client", found.clients),
            ("state", found.states),
        ):
            if getattr(query, field) is not None:
                continue  # a value in place of the condition, not a further one
            for one in values:
                narrower = dataclasses.replace(query, **{field: MemoState(one.name) if field == "state" else one.name})
                total = search_components(warehouse, narrower, count=True).total
                assert total is not None
                assert total >= one.components > 0, (query.text, one)
                assert total == one.components or found.is_least, (query.text, one)
        if not found.is_least and (query.client, query.model, query.table) == (None, None, None):
            assert {one.name for one in found.clients} == {
                model.client for at in small.known if small.finds(query, at) for model in small.readers(at)
            }


@pytest.mark.usefixtures("two_models")
def test_facets_of_a_search(warehouse: Warehouse) -> None:
    every = facets(warehouse, ComponentQuery())
    assert (every.components, every.is_least) == (6, False)
    assert every.clients[0] == FacetValue("ads", 6)
    assert every.tables == (FacetValue("log", 6),)
    assert [one.name for one in every.states] == ["PENDING"]
    assert every.operators[0].components == max(one.components for one in every.operators)
    assert len(facets(warehouse, ComponentQuery(), most_values=2).operators) == 2
    few = facets(warehouse, ComponentQuery(), most_counted=2)
    assert (few.components, few.is_least) == (2, True)
    with pytest.raises(UnknownModel):
        facets(warehouse, ComponentQuery(model="on"))
    with sent.asked(warehouse) as statements:
        facets(warehouse, ComponentQuery(column="query", state=MemoState.PENDING))
    assert len(statements) <= 6, statements.texts


def test_what_goes_and_comes_between_pages_moves_no_other(warehouse: Warehouse) -> None:
    """The component of the key is deleted, and others come before and after it."""
    made = [float(at) for at in range(len(COMPONENTS))]
    reader = SomeModel("asks", 1, True, "east", "log", frozenset({2}), (0.0,), ())
    small = SmallCatalog(tuple(range(2, len(COMPONENTS))), tuple(made), (reader,), ())
    write_catalog(warehouse, small, 0.0)
    first = search_components(warehouse, sort="oldest", limit=2)
    assert [FINGERPRINTS.index(row.fingerprint) for row in first.components] == [2, 3]
    write_catalog(warehouse, dataclasses.replace(small, known=(0, 1, 2, *range(4, len(COMPONENTS)))), 0.0)
    rest = search_components(warehouse, sort="oldest", after=first.after)
    assert [FINGERPRINTS.index(row.fingerprint) for row in rest.components] == list(range(4, len(COMPONENTS)))


def test_the_readers_of_what_is_inside_an_input_are_those_of_which_it_is_one(warehouse: Warehouse) -> None:
    inner, outer = FINGERPRINTS[:2]
    kept = SomeMemo(0, "log", 0, MemoState.READY, 0, 5, 2.0, 0.0, 0.0)
    asks = SomeModel("asks", 1, True, "east", "log", frozenset({0}), (0.0,), ())
    holds = SomeModel("holds", 1, True, "west", "log", frozenset({1}), (0.0, 1.0), ((None, None, 2.0),))
    write_catalog(warehouse, SmallCatalog((0, 1), (0.0,) * 7, (asks, holds), (kept,)), 0.0)
    assert {row.fingerprint for row in find(warehouse, model="holds")} == {outer}
    (row,) = find(warehouse, model="asks")
    assert (row.fingerprint, row.models, row.within, row.hits) == (inner, ("asks",), (), 1)
    write_catalog(warehouse, SmallCatalog((0, 1), (0.0,) * 7, (holds,), (kept,)), 0.0)
    by_name = {row.fingerprint: row for row in find(warehouse, model="holds", client="west")}
    assert set(by_name) == {inner, outer}
    assert (by_name[inner].models, by_name[inner].within, by_name[inner].hits) == ((), ("holds",), 3)


def check_rows(small: SmallCatalog, found: SearchResult) -> None:
    for row in found.components:
        at = FINGERPRINTS.index(row.fingerprint)
        readers = sorted({model.name for model in small.readers(at) if model.live})
        direct = any(at in model.inputs for model in small.models)
        assert [*row.models] == (readers if direct else [])
        assert [*row.within] == ([] if direct else readers)
        assert (row.bytes, row.secs, row.hits) == (small.size_bytes(at), small.secs(at), small.hits(at))
        assert row.saved_secs == small.saved_secs(at)
        states = [memo.state for memo in small.memos if memo.component == at]
        assert dict(row.memos) == {state: states.count(state) for state in set(states)}


def test_the_words_of_a_query_name_every_condition() -> None:
    some = ComponentQuery(column="c", operator="o@2", subgraph="ab", pattern=Pattern.parse("lower(_)"), fingerprint="cd",
                          model="m", client="k", table="t", created_before=0.0, created_after=0.0, min_size_bytes=1,
                          max_size_bytes=2, min_hits=3, min_saved_secs=4.0, state=MemoState.READY)  # fmt: skip
    given_fields = [field.name for field in dataclasses.fields(some) if getattr(some, field.name) is not None]
    assert len(some.text.split(", ")) == len(given_fields) - 1, "an operator and its version are one"
    assert ComponentQuery().text == "every component"
