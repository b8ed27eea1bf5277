"""Tables that follow a Delta table, written by delta-rs and, for deletion vectors, as Spark writes them."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.warehouse.lakes.scenes import (
    ALL_TYPES,
    SCHEMA,
    START,
    Follower,
    delta_rows,
    events,
    inline_vector,
    log_paths,
    same_rows,
    stored_vector,
    with_vectors,
)
from transforms.errors import DataError, InputError, TypeMismatch, UnknownColumn
from warehouse import collect_garbage, verify_warehouse
from warehouse.changes.append import append_rows
from warehouse.changes.deletion import delete_rows
from warehouse.changes.drop_table import drop_table
from warehouse.changes.overlay import fix_columns, overlay_columns
from warehouse.changes.values import GivenRows
from warehouse.errors import CorruptFile, SchemaDrift
from warehouse.lakes import edits
from warehouse.lakes.delta import DeltaSnapshot
from warehouse.lakes.snapshot import LakeFile
from warehouse.tables.history import table_history
from warehouse.tables.register import register_table


@pytest.fixture
def lake(tmp_path: Path) -> str:
    location = str(tmp_path / "la ke")
    write_deltalake(location, events(range(40)), partition_by=["country"])
    return location


@pytest.fixture
def follower(tmp_path: Path, lake: str) -> Follower:
    return Follower.open(tmp_path / "home", lake)


def kinds(follower: Follower) -> list[str]:
    with follower.warehouse.catalog.read() as connection:
        return [one.kind for one in table_history(connection, "log")]


def by_id(follower: Follower) -> dict[int, tuple[str, int]]:
    return {row["id"]: place for place, row in follower.placed_rows("id")}


@pytest.mark.medium
def test_each_operation_becomes_what_changed(follower: Follower, lake: str) -> None:
    first = follower.refresh()
    assert (first.appended_rows, first.table.version, first.table.time_column) == (40, 1, "time")
    assert same_rows(follower.rows(), delta_rows(lake))
    assert not follower.refresh().changed
    places = by_id(follower)

    write_deltalake(lake, events(range(40, 48)), mode="append")
    assert follower.refresh().appended_rows == 8
    DeltaTable(lake).update(predicate="id % 5 = 3", updates={"label": "9.5"})
    updated = follower.refresh()
    assert (updated.updated_rows, updated.updated_columns, updated.deleted_rows) == (9, ("label",), 0)
    assert same_rows(follower.rows(), delta_rows(lake))
    DeltaTable(lake).delete("id < 4")
    assert follower.refresh().deleted_rows == 4
    table = DeltaTable(lake)
    table.optimize.compact()
    table.optimize.z_order(["label"])
    table.vacuum(0, enforce_retention_duration=False, dry_run=False)
    moved = follower.refresh()
    assert (moved.changed, moved.appended_rows, moved.moved_rows) == (False, 0, 44)
    assert kinds(follower) == ["register", "append", "overlay", "delete"]
    assert {one: place for one, place in by_id(follower).items() if one < 40} == {
        one: place for one, place in places.items() if one >= 4
    }
    # What was moved is found where it is now.
    DeltaTable(lake).delete("id = 20")
    assert follower.refresh().deleted_rows == 1
    assert same_rows(follower.rows(), delta_rows(lake))


def test_a_merge_with_a_key_keeps_the_place_of_updated_rows(follower: Follower, lake: str) -> None:
    follower.refresh(keys=("id",))
    places = by_id(follower)
    source = events([10, 11, 100, 101], label=3.0)
    merge = DeltaTable(lake).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update({"label": "s.label"}).when_not_matched_insert_all().when_not_matched_by_source_delete(
        "t.id < 3"
    ).execute()
    found = follower.refresh()
    assert (found.appended_rows, found.updated_rows, found.deleted_rows, found.notes) == (2, 2, 3, ())
    assert kinds(follower) == ["register", "delete", "overlay", "append"]
    assert same_rows(follower.rows(), delta_rows(lake))
    after = by_id(follower)
    assert all(after[one] == places[one] for one in range(3, 40))


def test_without_a_key_a_mixed_merge_says_what_a_key_would_keep(follower: Follower, lake: str) -> None:
    follower.refresh()
    merge = DeltaTable(lake).merge(events([10, 100], label=3.0), "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    found = follower.refresh()
    assert (found.appended_rows, found.updated_rows, found.deleted_rows) == (2, 0, 1)
    assert "--key" in found.notes[0]
    assert same_rows(follower.rows(), delta_rows(lake))


def test_a_version_can_be_named_and_a_restore_is_followed(follower: Follower, lake: str) -> None:
    write_deltalake(lake, events(range(40, 48)), mode="append")
    assert follower.refresh("0").rows == 40
    assert follower.refresh().rows == 48
    assert follower.refresh("0").rows == 40
    assert follower.refresh("1").rows == 48
    DeltaTable(lake).restore(0)
    assert follower.refresh().rows == 40
    assert same_rows(follower.rows(), delta_rows(lake))
    with pytest.raises(DataError, match="must be readable"):
        follower.refresh("77")
    with pytest.raises(InputError, match="must be a number"):
        follower.refresh("newest")


def test_deletion_vectors(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    write_deltalake(lake, events(range(20)))
    write_deltalake(lake, events(range(20, 30)), mode="append")
    first, second = log_paths(lake)
    sizes = {path: pq.read_table(Path(lake) / path)["id"].to_pylist() for path in (first, second)}
    with_vectors(lake, {first: inline_vector([0, 3])})
    follower = Follower.open(tmp_path / "home", lake)
    gone = {sizes[first][0], sizes[first][3]}
    assert follower.refresh().appended_rows == 28
    assert {row["id"] for row in follower.rows()} == set(range(30)) - gone
    assert same_rows(follower.rows(), delta_rows(lake))
    places = by_id(follower)
    with_vectors(lake, {first: stored_vector(lake, [0, 3, 5]), second: inline_vector([1])})
    found = follower.refresh()
    assert (found.deleted_rows, found.appended_rows, found.moved_rows) == (2, 0, 0)
    assert same_rows(follower.rows(), delta_rows(lake))
    assert all(places[one] == place for one, place in by_id(follower).items())
    # A restore brings rows back, as new events.
    with_vectors(lake, {first: inline_vector([3]), second: None})
    found = follower.refresh()
    assert (found.deleted_rows, found.appended_rows) == (0, 3)
    assert same_rows(follower.rows(), delta_rows(lake))
    assert all(
        by_id(follower)[one] == place for one, place in places.items() if one not in {sizes[first][5], sizes[second][1]}
    )


def test_an_update_by_a_deletion_vector_and_a_new_file_is_an_overlay(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    write_deltalake(lake, events(range(20)))
    follower = Follower.open(tmp_path / "home", lake)
    follower.refresh()
    places = by_id(follower)
    (path,) = log_paths(lake)
    ids = pq.read_table(Path(lake) / path)["id"].to_pylist()
    write_deltalake(lake, events([7, 8], label=1.0), mode="append")
    with_vectors(lake, {path: inline_vector([ids.index(7), ids.index(8)])})
    found = follower.refresh()
    assert (found.updated_rows, found.updated_columns, found.appended_rows, found.deleted_rows) == (2, ("label",), 0, 0)
    assert same_rows(follower.rows(), delta_rows(lake))
    assert by_id(follower) == places


def test_column_mapping_and_older_files_without_a_column(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    write_deltalake(lake, events(range(6)).select(["id", "time", "label"]))
    write_deltalake(lake, events(range(6, 9)), mode="append", schema_mode="merge")
    first = next(iter(sorted((Path(lake) / "_delta_log").glob("*.json"))))
    log = Path(lake) / "_delta_log"
    schema = json.loads(DeltaTable(lake).schema().to_json())
    for number, field in enumerate(schema["fields"], 1):
        field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
        field["name"] = {"label": "clicked"}.get(field["name"], field["name"])
    meta = next(json.loads(line)["metaData"] for line in first.read_text().splitlines() if "metaData" in line)
    meta |= {"schemaString": json.dumps(schema), "configuration": {"delta.columnMapping.mode": "name"}}
    features = ["columnMapping"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    (log / f"{2:020}.json").write_text(
        json.dumps({"protocol": protocol}) + "\n" + json.dumps({"metaData": meta}) + "\n"
    )
    follower = Follower.open(tmp_path / "home", lake)
    follower.refresh()
    rows = follower.rows("id", "time", "clicked", "country", "tags")
    assert same_rows(rows, delta_rows(lake))
    assert [row["country"] for row in sorted(rows, key=lambda row: row["id"])][:7] == [None] * 6 + [None]
    assert {row["clicked"] for row in rows} == {0.5}


def test_values_of_every_type_are_followed(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    write_deltalake(lake, ALL_TYPES)
    follower = Follower.open(tmp_path / "home", lake)
    follower.refresh(time_column="time", keys=("id",))
    DeltaTable(lake).update(predicate="id = 2", updates={"small": "77"})
    done = follower.refresh()
    assert (done.updated_rows, done.updated_columns, done.moved_rows) == (1, ("small",), 5)
    assert same_rows(follower.rows(*ALL_TYPES.column_names), delta_rows(lake))


def test_times_that_spark_writes_as_int96(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    until = pa.array([datetime(9999, 12, 31, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)], SCHEMA.field("time").type)
    write_deltalake(lake, events([1, 2]).append_column("until", until))
    (path,), (log,) = Path(lake).glob("*.parquet"), (Path(lake) / "_delta_log").glob("*.json")
    size = path.stat().st_size
    pq.write_table(pq.read_table(path), path, use_deprecated_int96_timestamps=True)
    log.write_text(log.read_text().replace(f'"size":{size}', f'"size":{path.stat().st_size}'))
    follower = Follower.open(tmp_path / "home", lake)
    follower.refresh(time_column="time")
    rows = follower.rows("id", "time", "until")
    assert [row["until"].year for row in rows] == [9999, 1]
    assert same_rows(rows, delta_rows(lake))


def test_a_log_whose_old_versions_were_cleaned_up(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    write_deltalake(lake, events(range(4)))
    write_deltalake(lake, events([10]), mode="append")
    DeltaTable(lake).create_checkpoint()
    for path in (Path(lake) / "_delta_log").glob("*.json"):
        path.unlink()
    assert Follower.open(tmp_path / "home", lake).refresh().rows == 5


def test_a_feature_that_is_not_known_is_refused(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    write_deltalake(lake, events(range(6)))
    features = ["variantType"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    (Path(lake) / "_delta_log" / f"{1:020}.json").write_text(json.dumps({"protocol": protocol}) + "\n")
    with pytest.raises(DataError, match="Delta table"):
        Follower.open(tmp_path / "home", lake).refresh()


def test_hours_units_and_what_they_must_be(tmp_path: Path, follower: Follower, lake: str) -> None:
    table = events(range(4))
    seconds = table.set_column(
        1, "time", pa.array([int((START + timedelta(hours=one)).timestamp()) for one in range(4)])
    )
    other = str(tmp_path / "other")
    write_deltalake(other, seconds)
    found = Follower.open(tmp_path / "home2", other)
    with pytest.raises(InputError, match="--time-column"):
        found.refresh()
    with pytest.raises(InputError, match="must have a unit"):
        found.refresh(time_column="time")
    with pytest.raises(InputError, match="must have a unit"):
        follower.refresh(time_unit="s")
    with pytest.raises(TypeMismatch):
        follower.refresh(time_column="country")
    with pytest.raises(InputError):
        follower.refresh(time_column="tim")
    with pytest.raises(InputError, match="by hour or by day"):
        follower.refresh(partition_by="month")
    with pytest.raises(UnknownColumn):
        follower.refresh(keys=("idd",))
    done = found.refresh(time_column="time", time_unit="s", partition_by="hour")
    assert done.partitions == tuple(f"date=2026-03-01/hour={hour:02}" for hour in range(4))
    with pytest.raises(InputError, match="must stay"):
        found.refresh(partition_by="day")


def test_a_row_without_a_time_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    write_deltalake(lake, events(range(4)))
    follower = Follower.open(tmp_path / "home", lake)
    follower.refresh()
    write_deltalake(lake, events([4]).set_column(1, "time", pa.nulls(1, SCHEMA.field("time").type)), mode="append")
    before = follower.warehouse.storage.list("lakes")
    with pytest.raises(DataError, match="must not be null"):
        follower.refresh()
    assert follower.warehouse.storage.list("lakes") == before
    assert len(follower.rows()) == 4


def test_a_column_that_a_lake_gains_is_null_before_and_changes_like_others(follower: Follower, lake: str) -> None:
    follower.refresh(keys=("id",))
    places = {row["id"]: place for place, row in follower.placed_rows("id")}
    DeltaTable(lake).alter.add_columns([Field("extra", PrimitiveType("long"))])
    added = follower.refresh()
    assert (added.changed, added.schema_changes) == (False, ())  # no row has it yet
    write_deltalake(lake, events([50]).append_column("extra", pa.array([1])), mode="append")
    appended = follower.refresh()
    assert [(one.column, one.before, one.after) for one in appended.schema_changes] == [("extra", "", "int64")]
    assert (appended.appended_rows, appended.updated_rows) == (1, 0)
    assert {row["id"]: row["extra"] for row in follower.rows("id", "extra") if row["extra"]} == {50: 1}
    DeltaTable(lake).update(predicate="id < 3", updates={"extra": "id + 10"})
    updated = follower.refresh()
    assert (updated.updated_columns, updated.updated_rows, updated.deleted_rows) == (("extra",), 3, 0)
    found = {row["id"]: row["extra"] for row in follower.rows("id", "extra") if row["extra"]}
    assert found == {50: 1, 0: 10, 1: 11, 2: 12}
    assert {row["id"]: place for place, row in follower.placed_rows("id")}.items() >= places.items()
    assert follower.refresh().changed is False


def test_a_column_and_new_values_of_kept_rows_arrive_in_one_version(follower: Follower, lake: str) -> None:
    follower.refresh(keys=("id",))
    rows = pa.Table.from_pylist(delta_rows(lake), schema=SCHEMA)
    more = rows.append_column("extra", pa.array([f"x{one}" for one in rows.column("id").to_pylist()]))
    write_deltalake(lake, more, mode="overwrite", schema_mode="merge")
    done = follower.refresh()
    assert (done.updated_columns, done.updated_rows, done.appended_rows) == (("extra",), rows.num_rows, 0)
    assert {row["extra"] for row in follower.rows("extra")} == set(more.column("extra").to_pylist())


def test_other_columns_and_another_table_are_refused(tmp_path: Path, follower: Follower, lake: str) -> None:
    follower.refresh()
    kept = events(range(3))
    write_deltalake(lake, kept.drop_columns("label"), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SchemaDrift, match="columns of a lake") as caught:
        follower.refresh()
    assert ("label" in caught.value.where, caught.value.value) == (True, "absent")
    texts = kept.set_column(3, "label", kept.column("label").cast(pa.string()))
    write_deltalake(lake, texts, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SchemaDrift, match="a column of another type") as caught:
        follower.refresh()
    assert ("label" in caught.value.where, caught.value.value) == (True, "string")
    assert "double in the lake, or add the lake under another table name" in caught.value.next_step
    other = str(tmp_path / "other")
    write_deltalake(other, events(range(3)))
    with pytest.raises(InputError, match="the one of the registered table"):
        Follower(follower.warehouse, other).refresh()
    write_deltalake(lake, events(range(3)), mode="overwrite", schema_mode="overwrite")
    shutil.rmtree(lake)
    write_deltalake(lake, events(range(3)))
    with pytest.raises(DataError, match="another one was created"):
        follower.refresh()


def test_changes_by_commands_beside_the_lake(follower: Follower, lake: str) -> None:
    follower.refresh(keys=("id",))
    warehouse = follower.warehouse
    with pytest.raises(InputError, match="changed in the lake"):
        fix_columns(warehouse, "log", GivenRows("x", pa.table({"id": [1], "label": [2.0]})), on=["id"], why="x")
    labels = pa.table({"id": list(range(40)), "spam": [one % 2 == 0 for one in range(40)]})
    overlay_columns(warehouse, "log", GivenRows("spam", labels), on=["id"])
    delete_rows(warehouse, "log", where=[("id", "5")])
    late = events([4]).set_column(0, "id", pa.array([900]))
    append_rows(warehouse, "log", [GivenRows("late", late)])
    with pytest.raises(InputError, match="follows a lake"):
        register_table(warehouse, "log", lake)
    DeltaTable(lake).update(predicate="id < 8", updates={"label": "7.0"})
    DeltaTable(lake).optimize.compact()
    done = follower.refresh()
    assert (done.updated_columns, done.deleted_rows, done.appended_rows) == (("label",), 0, 0)
    rows = {row["id"]: row for row in follower.rows("id", "label", "spam")}
    assert rows.keys() == {*range(40), 900} - {5}
    assert all(rows[one]["label"] == 7.0 and rows[one]["spam"] == (one % 2 == 0) for one in range(8) if one != 5)
    assert rows[900]["label"] == 0.5
    assert not verify_warehouse(warehouse).findings


def test_each_source_is_read_only_for_partitions_that_it_has_rows_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = str(tmp_path / "lake")
    for first in range(0, 60, 10):  # each of a partition of its own
        write_deltalake(lake, events(range(first, first + 3)), mode="append")
    follower = Follower.open(tmp_path / "home", lake)
    follower.refresh(keys=("id",))
    for first in range(0, 60, 10):  # each rewrites one file
        DeltaTable(lake).update(predicate=f"id >= {first} AND id < {first + 3}", updates={"label": "2.5"})
    read, rows = [], DeltaSnapshot.rows

    def counted(self: DeltaSnapshot, file: LakeFile, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        if columns is None:
            read.append(file.path)
        return rows(self, file, columns)

    monkeypatch.setattr(DeltaSnapshot, "rows", counted)
    monkeypatch.setattr(edits, "ROWS_AT_ONCE", 6)
    assert follower.refresh().updated_rows == 18
    assert sorted(read) == [unquote(path) for path in log_paths(lake)]
    assert same_rows(follower.rows(), delta_rows(lake))


def test_partitions_that_are_paired_one_after_the_other(
    follower: Follower, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edits, "ROWS_AT_ONCE", 7)
    follower.refresh(keys=("id",))
    places = by_id(follower)
    merge = DeltaTable(lake).merge(events([10, 11, 300], label=3.0), "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().when_not_matched_by_source_delete(
        "t.id < 3"
    ).execute()
    DeltaTable(lake).optimize.compact()
    found = follower.refresh()
    assert (found.appended_rows, found.updated_rows, found.deleted_rows) == (1, 2, 3)
    assert same_rows(follower.rows(), delta_rows(lake))
    assert all(place == places[one] for one, place in by_id(follower).items() if one < 40)


def test_damaged_origins_are_named(follower: Follower, lake: str) -> None:
    follower.refresh()
    for file in follower.warehouse.storage.list("lakes/log/origins"):
        content = bytearray(Path(file.path).read_bytes())
        content[len(content) // 3] ^= 1
        Path(file.path).write_bytes(bytes(content))
    DeltaTable(lake).delete("id < 4")
    with pytest.raises(CorruptFile, match="origins"):
        follower.refresh()


def test_gc_keeps_what_is_needed_and_deletes_what_a_killed_refresh_left(
    follower: Follower, lake: str, tmp_path: Path
) -> None:
    follower.refresh()
    storage = follower.warehouse.storage
    storage.write_atomic(f"lakes/log/data/date=2026-03-01/{'a' * 32}.parquet", b"left")
    storage.write_atomic(f"lakes/log/origins/{'b' * 32}-{'c' * 64}.parquet", b"left")
    late = events([4]).set_column(0, "id", pa.array([900]))
    append_rows(follower.warehouse, "log", [GivenRows("late", late)])
    DeltaTable(lake).delete("id < 4")
    follower.refresh()  # writes new origins of the touched parts
    collected = collect_garbage(follower.warehouse, dry_run=False, leftover_secs=-10)
    assert collected.by_kind().keys() == {"lake files"}
    assert collected.foreign == ()
    assert same_rows(follower.rows(), [*delta_rows(lake), *late.to_pylist()])
    DeltaTable(lake).delete("id = 9")
    assert follower.refresh().deleted_rows == 1
    follower.warehouse.close()
    moved = (tmp_path / "home").rename(tmp_path / "moved")
    again = Follower.open(moved, lake)
    planned = collect_garbage(again.warehouse, dry_run=True, leftover_secs=-10).garbage
    assert planned
    assert all(one.path.startswith("lakes/log/origins/") for one in planned)  # of the part that was written again
    drop_table(again.warehouse, "log")
    collect_garbage(again.warehouse, dry_run=False, leftover_secs=-10)
    assert again.warehouse.storage.list("lakes") == ()
    assert again.refresh().appended_rows == 35


_REFRESH = """
import os, signal, sys
from pathlib import Path
from tests.warehouse.lakes.scenes import Follower
from warehouse.changes import publish
from warehouse.lakes import commit
from warehouse.storage.storage import Storage
home, lake, point, number = sys.argv[1:]
owner = {"write_atomic": Storage, "begin_version": publish, "write_manifests": publish}.get(point, commit)
original, left = getattr(owner, point), int(number)

def killing(*args, **options):
    global left
    found, left = original(*args, **options), left - 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    return found

setattr(owner, point, killing)
Follower.open(Path(home), lake).refresh(keys=("id",))
"""
#: Files of origins, of overlays and of rows; the versions delete, overlay and append; the lake's state; nothing is left to write.
_POINTS = (
    ("write_atomic", 1),
    ("write_atomic", 4),
    ("begin_version", 2),
    ("write_manifests", 3),
    ("write_parts", 1),
    ("write_files", 1),
)


@pytest.mark.medium
@pytest.mark.parametrize("points", [_POINTS[2:4], pytest.param(_POINTS, marks=pytest.mark.slow)], ids=["two", "all"])
def test_a_refresh_that_is_killed_changes_nothing_and_is_repeated_once(
    follower: Follower, lake: str, tmp_path: Path, points: Sequence[tuple[str, int]]
) -> None:
    follower.refresh(keys=("id",))
    before = follower.placed_rows()
    write_deltalake(lake, events(range(100, 106)), mode="append")
    DeltaTable(lake).update(predicate="id % 7 = 1", updates={"label": "4.25"})
    DeltaTable(lake).delete("id = 3")
    for point, number in points:
        command = [sys.executable, "-c", _REFRESH, str(tmp_path / "home"), lake, point, str(number)]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert found.returncode == -signal.SIGKILL, (point, found.stderr)
        assert (kinds(follower), follower.placed_rows()) == (["register"], before), point
    done = follower.refresh()
    assert (done.appended_rows, done.updated_rows, done.deleted_rows) == (6, 6, 1)
    assert same_rows(follower.rows(), delta_rows(lake))
    assert not follower.refresh().changed
    assert kinds(follower) == ["register", "delete", "overlay", "append"]
    collect_garbage(follower.warehouse, dry_run=False, leftover_secs=-10)
    assert same_rows(follower.rows(), delta_rows(lake))
    assert not verify_warehouse(follower.warehouse).findings


_STEP = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 6)),
    st.tuples(st.just("update"), st.integers(2, 4)),
    st.tuples(st.just("delete"), st.integers(3, 6)),
    st.tuples(st.just("compact"), st.just(0)),
    st.tuples(st.just("merge"), st.integers(1, 5)),
    st.tuples(st.just("refresh"), st.just(0)),
)


@pytest.mark.slow
@settings(max_examples=scaled(16))
@given(steps=st.lists(_STEP, min_size=1, max_size=6), has_key=st.booleans(), partitioned=st.booleans())
def test_any_operations_leave_the_lakes_rows_and_the_places_of_kept_ones(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], has_key: bool, partitioned: bool
) -> None:
    folder = tmp_path_factory.mktemp("steps")
    lake, following = str(folder / "lake"), 20
    write_deltalake(lake, events(range(20)), partition_by=["country"] if partitioned else None)
    follower = Follower.open(folder / "home", lake)
    options: dict[str, Any] = {"keys": ("id",)} if has_key else {}
    follower.refresh(**options)
    places = by_id(follower)
    for number, (what, amount) in enumerate([*steps, ("refresh", 0)]):
        table = DeltaTable(lake)
        if what == "append":
            write_deltalake(lake, events(range(following, following + amount)), mode="append")
            following += amount
        elif what == "update":
            table.update(predicate=f"id % {amount} = 0", updates={"label": f"{number}.75"})
        elif what == "delete":
            table.delete(f"id % {amount} = 1")
        elif what == "compact":
            table.optimize.compact()
        elif what == "merge":
            source = events([*range(amount), following], label=number + 0.125)
            following += 1
            merge = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
        else:
            follower.refresh()
            assert same_rows(follower.rows(), delta_rows(lake))
            if has_key:
                now = by_id(follower)
                assert all(now[one] == place for one, place in places.items() if one in now and one not in gone(steps))
                places = now
    follower.warehouse.close()


def gone(steps: list[tuple[str, int]]) -> set[int]:
    """Ids that may have been deleted and merged again, which are new events then."""
    return set(range(5)) if any(what == "delete" for what, _ in steps) else set()


def test_times_before_1970(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    early = events([0, 1]).set_column(1, "time", pa.array([datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)], SCHEMA.field("time").type))  # fmt: skip
    write_deltalake(lake, early)
    follower = Follower.open(tmp_path / "home", lake)
    assert follower.refresh().partitions == ("date=0001-01-01", "date=1969-12-31")


def test_rows_of_a_part_are_in_the_order_of_their_times(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    rows = events([3, 0, 4, 1, 2])  # the same day, but for the last
    write_deltalake(lake, rows)
    follower = Follower.open(tmp_path / "home", lake)
    follower.refresh()
    times: dict[str, list[datetime]] = {}
    for (path, _), row in follower.placed_rows("time"):
        times.setdefault(path, []).append(row["time"])
    assert sorted(map(len, times.values())) == [5]
    assert all(found == sorted(found) for found in times.values())
    DeltaTable(lake).delete("id = 4")  # the third of the file, the last of the part
    assert follower.refresh().deleted_rows == 1
    assert sorted(row["id"] for row in follower.rows("id")) == [0, 1, 2, 3]
