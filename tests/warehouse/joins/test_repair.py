"""After a change of some rows only events with their keys are computed again, and all have the values of a computation of everything."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from tests.warehouse.joins.scenes import at, clicks
from tests.warehouse.joins.test_joined_data import _saved
from tests.warehouse.joins.test_refresh import CLICKS, check_counts, column_of, model, refresh
from transforms.errors import StorageError
from warehouse import collect_garbage, register_table, submit_model
from warehouse.changes.append import append_rows
from warehouse.changes.deletion import delete_rows
from warehouse.changes.overlay import fix_columns
from warehouse.joins import computation, repair, rows_of_keys
from warehouse.joins.preview import previewed_columns
from warehouse.search.column_use import column_use
from warehouse.storage.storage import Storage
from warehouse.tables.manifests import current_fragments, get_table

EXPRESSIONS = (
    CLICKS.count(window="50m"),
    CLICKS.latest(hr.text("country")),
    CLICKS.last(4, hr.float64("paid"), window="2h"),
    CLICKS.decayed(hr.float64("paid"), half_life="20m"),
    hr.table("clicks").by(hr.text("country"), equals=hr.text("nation")).count(),
)


@pytest.fixture
def counted(monkeypatch):
    """The events that each repair has computed; None where everything was."""
    found: list[int | None] = []
    original, computing = repair.repaired_columns, repair.joined_columns

    def joined_columns(definitions, events, *given, **options):
        found[-1] = events.num_rows
        return computing(definitions, events, *given, **options)

    def repaired(work, changed, before):
        found.append(0)
        answer = original(work, changed, before)
        if answer is None:
            found[-1] = None
        return answer

    monkeypatch.setattr(repair, "joined_columns", joined_columns)
    monkeypatch.setattr("warehouse.joins.refresh.repaired_columns", repaired)
    return found


@pytest.fixture
def joined(warehouse, folders, monkeypatch):
    monkeypatch.setattr(repair, "MOST_SHARE", 0.5)
    monkeypatch.setattr(rows_of_keys, "LEAST_ROWS", 1)
    monkeypatch.setattr(rows_of_keys, "MOST_KEYS_SHARE", 1.0)
    submit_model(
        warehouse, model(EXPRESSIONS[0].log1p(), EXPRESSIONS[1].hash_buckets(5), EXPRESSIONS[2], EXPRESSIONS[3] * 2.0)
    )
    refresh(warehouse)
    return warehouse


def late(hour: int, user: int, rows: int = 3) -> dict[str, pa.Array]:
    return {**clicks(hour, rows, seed=500), "id": pa.array([user] * rows, pa.int64())}


def check_all(warehouse) -> None:
    with warehouse.catalog.read() as connection:
        table, fragments = get_table(connection, "log"), current_fragments(connection, "log")
    definitions = {one.node.name: one.node.definition for one in EXPRESSIONS[:4]}
    for name, values in previewed_columns(warehouse, table, definitions, fragments).items():
        assert column_of(warehouse, name)[name].to_pylist() == [one for part in values for one in part.to_pylist()], (
            name
        )


def test_late_rows_of_one_user_compute_the_events_of_that_user(joined, folders, counted):
    users = column_of(joined, EXPRESSIONS[0].node.name)["user"].to_pylist()
    append_rows(joined, "clicks", [_saved(folders, late(0, user=3))])
    refresh(joined)
    assert 0 < sum(counted) <= users.count(3)
    check_all(joined)
    check_counts(joined, EXPRESSIONS[0], 3_000)


def test_rows_of_no_event_compute_none(joined, folders, counted):
    append_rows(joined, "clicks", [_saved(folders, late(0, user=99))])
    assert refresh(joined) == [(3, 0)]
    assert set(counted) == {0}


def test_much_that_changed_is_computed_from_everything(joined, folders, counted):
    append_rows(joined, "clicks", [_saved(folders, clicks(0, 200, seed=600))])
    refresh(joined)
    assert set(counted) == {None}
    check_all(joined)


def test_deleted_and_corrected_rows_are_repaired(joined, folders, counted):
    delete_rows(joined, "clicks", where=[("id", "1")])
    refresh(joined)
    check_all(joined)
    row = {name: values.slice(0, 1) for name, values in clicks(2).items() if name != "country"}
    fix_columns(
        joined,
        "clicks",
        _saved(folders, {**row, "paid": pa.array([100.0])}),
        why="x",
        on=("time", "id"),
        columns=("paid",),
    )
    refresh(joined)
    check_all(joined)
    assert counted


def test_events_that_are_corrected_are_computed_from_everything(joined, folders, counted):
    """Their values follow other keys, so those of before say nothing."""
    known = column_of(joined, EXPRESSIONS[0].node.name)
    times = known["at"].to_pylist()
    place = next(one for one in range(len(times)) if times.count(times[one]) == 1)
    fixed = {"at": known["at"].slice(place, 1).combine_chunks(), "user": pa.array([4], pa.int64())}
    fix_columns(joined, "log", _saved(folders, fixed), why="x", on=("at",), columns=("user",))
    append_rows(joined, "clicks", [_saved(folders, late(0, user=3))])
    refresh(joined)
    check_all(joined)
    assert sum(counted) < 3 * 20


def test_new_events_beside_late_rows(joined, folders, counted):
    new = {"at": at(1, [1_000.5, 2_000.25]), "user": pa.array([3, 4], pa.int64()), "clicked": pa.array([True, False])}
    append_rows(joined, "log", [_saved(folders, new)])
    append_rows(joined, "clicks", [_saved(folders, late(0, user=3))])
    refresh(joined)
    check_all(joined)
    assert np.all(np.array(counted) >= 0)


def files_of(warehouse) -> list[Path]:
    return sorted(Path(warehouse.storage.root).glob("rows/*/*.rows"))


@pytest.fixture
def read_rows(monkeypatch):
    """The rows of fragments that were read whole, beside those of a change."""
    found: list[int] = []
    reading = computation.read_events

    def read_events(storage, fragment, columns, time):
        found.append(fragment.rows)
        return reading(storage, fragment, columns, time)

    monkeypatch.setattr(computation, "read_events", read_events)
    return found


def test_the_next_repair_reads_the_rows_of_its_keys_alone(joined, folders, read_rows):
    append_rows(joined, "clicks", [_saved(folders, late(0, user=3))])
    refresh(joined)
    files, whole = files_of(joined), len(read_rows)
    assert len(files) > 6
    assert whole >= len(files)
    append_rows(joined, "clicks", [_saved(folders, late(0, user=2))])
    read_rows.clear()
    refresh(joined)
    assert set(read_rows) == {3}, "what is late"
    assert {*files} < {*files_of(joined)}
    check_all(joined)
    files = files_of(joined)
    delete_rows(joined, "clicks", where=[("id", "3")])
    refresh(joined)
    assert files_of(joined) == files, "deletions change no file"
    check_all(joined)


@pytest.mark.parametrize("damage", ["torn", "changed", "gone", "of others", "a folder"])
def test_a_damaged_file_changes_no_value(joined, folders, read_rows, caplog, damage):
    append_rows(joined, "clicks", [_saved(folders, late(0, user=3))])
    refresh(joined)
    files = files_of(joined)
    for one in files:
        content = one.read_bytes()
        if damage == "torn":
            one.write_bytes(content[: len(content) // 2])
        elif damage == "changed":
            one.write_bytes(content[:-30] + bytes(30))
        elif damage == "of others":
            one.write_bytes(files[one == files[0]].read_bytes())
        else:
            one.unlink()
            if damage == "a folder":
                one.mkdir()
    append_rows(joined, "clicks", [_saved(folders, late(0, user=2))])
    refresh(joined)
    check_all(joined)
    if damage not in ("gone", "a folder"):
        assert "a file of rows by key must have the bytes" in caplog.text
    if damage != "a folder":
        read_rows.clear()
        append_rows(joined, "clicks", [_saved(folders, late(0, user=1))])
        refresh(joined)
        assert set(read_rows) == {3}, "the files were written again"


def test_a_full_disk_changes_no_value(joined, folders, caplog, monkeypatch):
    writing = Storage.write_atomic

    def write_atomic(self, path, content, *, synced=True):
        if path.startswith("rows/"):
            raise StorageError("the disk is full")
        return writing(self, path, content, synced=synced)

    monkeypatch.setattr(Storage, "write_atomic", write_atomic)
    append_rows(joined, "clicks", [_saved(folders, late(0, user=3))])
    refresh(joined)
    assert "no file of rows by key is left" in caplog.text
    check_all(joined)


def test_files_that_are_not_used_are_collected(joined, folders):
    append_rows(joined, "clicks", [_saved(folders, late(0, user=3))])
    refresh(joined)
    files = files_of(joined)
    collected = collect_garbage(joined, dry_run=False, leftover_secs=3_600.0)
    assert "rows by key" not in collected.by_kind()
    for one in files[1:]:
        os.utime(one, (0, 0))
    collected = collect_garbage(joined, dry_run=False, leftover_secs=3_600.0)
    assert collected.by_kind()["rows by key"][0] == len(files) - 1
    assert files_of(joined) == files[:1]
    assert collected.foreign == ()
    held = [one for one in column_use(joined, "clicks", "country").files if one.kind == "rows by key"]
    assert [Path(joined.storage.root, one.path) for one in held] == [
        one for one in files[:1] if one.parent.name == "clicks"
    ]
    append_rows(joined, "clicks", [_saved(folders, late(0, user=2))])
    refresh(joined)
    check_all(joined)


def test_columns_of_any_type_are_joined_again(warehouse, tmp_path, monkeypatch):
    """Types that such a file does not hold are read from their table."""
    monkeypatch.setattr(repair, "MOST_SHARE", 2.0)
    monkeypatch.setattr(rows_of_keys, "LEAST_ROWS", 1)
    monkeypatch.setattr(rows_of_keys, "MOST_KEYS_SHARE", 1.0)
    rows = pa.table({"time": at(0, range(20)), "id": pa.array([f"u{k % 4}" for k in range(20)]).dictionary_encode(), "tags": [["a"] * (k % 3) for k in range(20)]})  # fmt: skip
    events = pa.table({"at": at(1, range(8)), "user": [f"u{k % 5}" for k in range(8)], "clicked": [True] * 8})
    for name, one in (("clicks", rows), ("log", events)):
        folder = tmp_path / name / "date=2026-01-01"
        folder.mkdir(parents=True)
        pq.write_table(one, folder / "part.parquet")
        register_table(warehouse, name, str(tmp_path / name), time_column="at" if name == "log" else "time")
    clicks_of = hr.table("clicks").by(hr.text("id"), equals=hr.text("user"))
    made = hr.Model("ctr", client="search", label="clicked", table="log")
    made.input("tags", clicks_of.sum(hr.ragged("tags", "string").count()) * 1.0)
    made.input("count", clicks_of.count().log1p())
    submit_model(warehouse, made)
    refresh(warehouse)
    for k in range(2):
        pq.write_table(rows.slice(k, 3), tmp_path / f"late{k}.parquet")
        append_rows(warehouse, "clicks", [str(tmp_path / f"late{k}.parquet")])
        refresh(warehouse)
        for column in made.joins:
            got = column_of(warehouse, column)[column].to_pylist()
            with warehouse.catalog.read() as connection:
                table, fragments = get_table(connection, "log"), current_fragments(connection, "log")
            (values,) = previewed_columns(warehouse, table, {column: made.joins[column]}, fragments)[column]
            assert got == values.to_pylist()
