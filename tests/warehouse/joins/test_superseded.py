"""``headrace gc`` forgets values of joined columns that later ones have superseded, once no job can read them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import headrace as hr
from tests.warehouse.joins.scenes import clicks
from tests.warehouse.joins.test_joined_data import _saved
from tests.warehouse.joins.test_refresh import CLICKS, check_counts, column_of, memoize, model, refresh
from warehouse import collect_garbage, read_solution, submit_model, verify_warehouse
from warehouse.changes.append import append_rows
from warehouse.changes.overlay import overlay_columns
from warehouse.errors import OverlayDamaged
from warehouse.joins.superseded import forget_superseded, superseded_files
from warehouse.maintenance.compact_table import compact_table
from warehouse.reading.pinned import pinned_solution
from warehouse.tables.manifests import current_fragments
from warehouse.tables.raw import read_raw

KIND = "superseded joined columns"
DAY_SECS = 86_400.0
COUNT = CLICKS.count(window="50m")


@pytest.fixture
def joined(warehouse, folders):
    """A model whose joined columns were refreshed three times, a second apart."""
    submit_model(warehouse, model(COUNT.log1p(), CLICKS.sum(hr.float64("paid")) * 2.0))
    refresh(warehouse)
    for seed in (500, 501):
        warehouse.clock.advance(10.0)
        come_late(warehouse, folders, seed)
    return warehouse


def come_late(warehouse, folders, seed):
    append_rows(warehouse, "clicks", [_saved(folders, clicks(0, 3, seed=seed))])
    refresh(warehouse)


def files_of(warehouse):
    return {
        str(one.relative_to(warehouse.storage.root)) for one in Path(warehouse.storage.root).glob("overlays/**/*.memo")
    }


def current_files(warehouse):
    with warehouse.catalog.read() as connection:
        placed = current_fragments(connection, "log")
    return {overlay.path for one in placed for overlay in one.fragment.overlays}


def collected(warehouse, **options):
    return (
        collect_garbage(warehouse, **{"dry_run": False, "leftover_secs": DAY_SECS, **options})
        .by_kind()
        .get(KIND, (0, 0))[0]
    )


def problems(warehouse):
    return [one.what for one in verify_warehouse(warehouse, recompute=100).findings]


def test_superseded_values_are_forgotten_after_a_day(joined):
    before, current = files_of(joined), current_files(joined)
    assert before > current
    values = column_of(joined, COUNT.node.name)
    assert collected(joined) == 0, "a reader may have just begun"
    assert files_of(joined) == before
    joined.clock.advance(DAY_SECS + 60.0)
    planned = collect_garbage(joined, leftover_secs=DAY_SECS)
    assert planned.by_kind()[KIND][0] == len(before - current)
    assert planned.by_kind()[KIND][1] > 0
    assert files_of(joined) == before, "it was a dry run"
    assert collected(joined) == len(before - current)
    assert files_of(joined) == current
    assert problems(joined) == []
    assert column_of(joined, COUNT.node.name).equals(values)
    check_counts(joined, COUNT, 3_000)
    assert refresh(joined) == [], "nothing is outdated by that"
    assert collected(joined) == 0


def test_values_since_the_oldest_pin_stay(joined, folders):
    memoize(joined)
    with pinned_solution(joined, "ctr", holder="job") as solution:
        joined.clock.advance(10.0)
        come_late(joined, folders, 502)
        joined.clock.advance(30.0)
        assert collected(joined, leftover_secs=1.0) == 0
        for one in solution.fragments:
            for overlay in one.overlays:
                assert joined.storage.exists(overlay.path)
    joined.clock.advance(1_000.0)
    assert collected(joined, leftover_secs=1.0) > 0
    assert files_of(joined) == current_files(joined)


def test_an_earlier_version_cannot_be_read_from_then_on(joined):
    joined.clock.advance(2 * DAY_SECS)
    with joined.catalog.read() as connection:
        had = current_fragments(connection, "log", at_version=2)
    for one in had:
        read_raw(joined.storage, one.fragment, [COUNT.node.name])
    assert collected(joined)
    with pytest.raises(OverlayDamaged, match="of an earlier version of a table can be read until headrace gc"):
        [read_raw(joined.storage, one.fragment, [COUNT.node.name]) for one in had]


def test_overlays_of_people_stay(joined, folders, tmp_path):
    """Also where a file that is superseded has nothing else than such a column."""
    for value in (1.0, 2.0):
        rows = column_of(joined, COUNT.node.name).select(["at", "user"]).append_column("score", pa.array([value] * 60))
        overlay_columns(
            joined,
            "log",
            _saved(folders, {name: rows.column(name).combine_chunks() for name in rows.column_names}),
            on=("at", "user"),
        )
        joined.clock.advance(10.0)
    before = files_of(joined)
    joined.clock.advance(2 * DAY_SECS)
    gone = collected(joined)
    assert gone == len(before) - len(files_of(joined)) > 0
    assert len(files_of(joined) - current_files(joined)) == 3, "the first scores of three hours"
    assert problems(joined) == []


def test_merged_fragments_stay_whole(joined, folders):
    compact_table(joined, "log")
    memoize(joined)
    joined.clock.advance(10.0)
    come_late(joined, folders, 502)
    memoize(joined)
    joined.clock.advance(2 * DAY_SECS)
    assert collected(joined) > 0
    assert files_of(joined) == current_files(joined)
    assert problems(joined) == []
    check_counts(joined, COUNT, 3_000)
    assert read_solution(joined, "ctr").fragments


@pytest.mark.parametrize("killed", ["before the files", "after some files"])
def test_a_collection_that_is_killed_is_ended_by_the_next(joined, killed, monkeypatch):
    joined.clock.advance(2 * DAY_SECS)
    current, deleting, done = current_files(joined), type(joined.storage).delete, []

    def delete(self, path):
        if len(done) >= (0 if killed == "before the files" else 2):
            raise KeyboardInterrupt
        done.append(path)
        return deleting(self, path)

    with monkeypatch.context() as patched:
        patched.setattr(type(joined.storage), "delete", delete)
        with pytest.raises(KeyboardInterrupt):
            collected(joined)
    assert problems(joined) == []
    assert len(files_of(joined)) > len(current)
    collect_garbage(joined, dry_run=False, leftover_secs=-1e9)
    assert files_of(joined) == current
    assert problems(joined) == []


def test_what_became_current_meanwhile_stays(joined):
    """The catalog is looked at again in the transaction that forgets."""
    joined.clock.advance(2 * DAY_SECS)
    with joined.catalog.read() as connection:
        found = superseded_files(connection, joined.clock())
    some = sorted(found)[:1]
    with joined.catalog.write() as connection:
        assert forget_superseded(connection, joined.clock(), [*some, *current_files(joined), "overlays/none"]) == {
            *some
        }
        assert forget_superseded(connection, 0.0, found) == set()


def test_tables_without_joined_columns_have_none(warehouse, folders):
    with warehouse.catalog.read() as connection:
        assert superseded_files(connection, 1e12) == {}
