"""Joined columns that no live model reads are evicted, and computed again for a model that joins them again."""

from __future__ import annotations

import pytest

import headrace as hr
from tests.warehouse.joins.test_refresh import CLICKS, check_counts, column_of, memoize, model, refresh
from tests.warehouse.joins.test_superseded import collected, current_files, files_of, problems
from transforms.errors import UnknownColumn
from warehouse import read_solution, retire_model, submit_model
from warehouse.errors import CatalogBusy, UnknownTable
from warehouse.joins import eviction
from warehouse.joins.eviction import UnreadColumn, evict_unread, unread_columns
from warehouse.maintenance.compact_table import compact_table
from warehouse.reading.pinned import pinned_solution
from warehouse.tables.history import table_history
from warehouse.tables.manifests import get_table

COUNT, PAID = CLICKS.count(window="50m"), CLICKS.sum(hr.float64("paid"))


@pytest.fixture
def joined(warehouse, folders):
    """Two models: one joins a count, the other one that and a sum."""
    submit_model(warehouse, model(COUNT.log1p(), name="one"))
    refresh(warehouse)
    submit_model(warehouse, model(COUNT.log1p(), PAID * 2.0, name="two"))
    refresh(warehouse)
    memoize(warehouse)
    return warehouse


def unread(warehouse, table=""):
    with warehouse.catalog.read() as connection:
        return unread_columns(connection, table)


def columns(warehouse):
    with warehouse.catalog.read() as connection:
        return {one.name for one in get_table(connection, "log").columns}


def test_what_a_live_model_reads_stays(joined):
    assert unread(joined) == evict_unread(joined) == ()
    retire_model(joined, "two")
    (one,) = unread(joined)
    assert (one.table, one.column, one.fragments) == ("log", PAID.node.name, 3)
    assert one.size_bytes > 0
    assert evict_unread(joined, "clicks") == ()
    assert evict_unread(joined, "log") == (one,)
    assert unread(joined) == ()
    assert PAID.node.name not in columns(joined)
    with pytest.raises(UnknownColumn):
        column_of(joined, PAID.node.name)
    check_counts(joined, COUNT, 3_000)
    assert read_solution(joined, "one").fragments
    assert refresh(joined) == [], "what is evicted is not computed for nothing"
    assert problems(joined) == []
    with joined.catalog.read() as connection:
        last = table_history(connection, "log")[-1]
    assert (last.columns, last.fragments, last.why) == ((PAID.node.name,), 3, "evicted: no live model reads them")


def test_a_model_that_joins_it_again_has_it_again(joined):
    before = column_of(joined, PAID.node.name)
    retire_model(joined, "two")
    evict_unread(joined)
    joined.clock.advance(200_000.0)
    assert collected(joined) == 3
    assert files_of(joined) == current_files(joined)
    found = submit_model(joined, model(COUNT.log1p(), PAID * 2.0, name="two"))
    assert found.unjoined == 3
    refresh(joined)
    assert column_of(joined, PAID.node.name).equals(before)
    assert memoize(joined) == 0, "memos above are those of the same values"
    assert read_solution(joined, "two").fragments
    assert problems(joined) == []


def test_a_job_that_reads_them_goes_on(joined):
    with pinned_solution(joined, "two", holder="job") as solution:
        retire_model(joined, "two")
        assert len(evict_unread(joined)) == 1
        joined.clock.advance(100.0)
        assert collected(joined, leftover_secs=1.0) == 0
        for one in solution.fragments:
            for overlay in one.overlays:
                assert joined.storage.exists(overlay.path)


def test_columns_of_merged_fragments_are_evicted(joined):
    compact_table(joined, "log")
    memoize(joined)
    retire_model(joined, "two")
    assert [one.column for one in evict_unread(joined)] == [PAID.node.name]
    memoize(joined)
    assert PAID.node.name not in columns(joined)
    check_counts(joined, COUNT, 3_000)
    assert read_solution(joined, "one").fragments
    assert problems(joined) == []


def test_a_model_that_is_submitted_meanwhile_keeps_its_columns(joined, monkeypatch):
    """The models are looked at in the transaction that evicts."""
    retire_model(joined, "two")
    assert len(unread(joined)) == 1
    submit_model(joined, model(COUNT.log1p(), PAID * 2.0, name="three"))
    assert evict_unread(joined) == ()
    retire_model(joined, "three")
    monkeypatch.setattr(eviction, "current_fragments", lambda *given: _raise())
    with pytest.raises(CatalogBusy):
        evict_unread(joined)
    monkeypatch.undo()
    assert unread(joined) == (UnreadColumn("log", PAID.node.name, 3, unread(joined)[0].size_bytes),), (
        "nothing was half evicted"
    )


def _raise():
    raise CatalogBusy("another process changed the table")


def test_an_unknown_table_is_refused(joined):
    with pytest.raises(UnknownTable):
        evict_unread(joined, "logs")
