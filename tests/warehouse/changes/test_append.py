"""Late rows: their partitions, refusals, and that only they are computed."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import transforms.expressions.expression as hr
from tests.warehouse.changes.scenes import START, column, events, placed, save, version
from tests.warehouse.scenes import work
from transforms.errors import Busy, DataError, HeadraceError, InputError, TypeMismatch, UnknownColumn
from transforms.expressions.model import Model
from warehouse import Warehouse, queue_missing, register_table, submit_model
from warehouse.changes.append import append_rows
from warehouse.changes.deletion import delete_rows
from warehouse.changes.values import GivenRows
from warehouse.errors import SchemaDrift, UnknownTable


def late(tmp_path: Path, *parts: pa.Table, name: str = "late.parquet") -> str:
    return save(tmp_path / name, pa.concat_tables(parts))


def test_rows_find_their_partition_by_time(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    path = late(tmp_path, events(2, 2, first=900), events(0, 1, first=800), events(2, 1, first=950))
    done = append_rows(warehouse, "log", [path], why="a phone came back")
    assert (done.rows, done.fragments, done.version) == (4, 2, 2)
    assert done.partitions == ("date=2026-01-01/hour=00", "date=2026-01-01/hour=02")
    assert column(warehouse, "event_id")[6:7] == [800]
    assert column(warehouse, "event_id")[-3:] == [900, 901, 950]
    assert column(warehouse, "event_id", at_version=1) == [100 * hour + i for hour in range(3) for i in range(6)]
    assert register_table(warehouse, "log", str(log)).unchanged == 3


def test_the_same_rows_are_not_doubled(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    path = late(tmp_path, events(0, 2, first=900))
    append_rows(warehouse, "log", [path])
    with pytest.raises(InputError, match="not be in the table yet"):
        append_rows(warehouse, "log", [late(tmp_path, events(0, 2, first=900), name="again.parquet")])
    both = late(tmp_path, events(0, 2, first=900), events(1, 3, first=950), name="both.parquet")
    done = append_rows(warehouse, "log", [both])
    assert (done.rows, done.partitions) == (3, ("date=2026-01-01/hour=01",))
    assert done.notes == ("left out, since the table has them already: 2 of the rows",)
    assert len(column(warehouse, "event_id")) == 18 + 2 + 3


def test_a_file_that_is_registered_is_not_appended(warehouse: Warehouse, tmp_path: Path) -> None:
    root = tmp_path / "log"
    save(root / "date=2026-01-01/part.parquet", events(0, 3))
    register_table(warehouse, "log", str(root), time_column="time")
    with pytest.raises(InputError, match="not be in the table yet"):
        append_rows(warehouse, "log", [str(root / "date=2026-01-01/part.parquet")])


def test_days_and_an_explicit_partition(warehouse: Warehouse, tmp_path: Path) -> None:
    root = tmp_path / "log"
    save(root / "date=2026-01-01/part.parquet", events(0, 3))
    register_table(warehouse, "log", str(root), time_column="time")
    assert append_rows(warehouse, "log", [late(tmp_path, events(7, 2, first=70))]).partitions == ("date=2026-01-01",)
    path = late(tmp_path, events(7, 2, first=90))
    done = append_rows(warehouse, "log", [path], partition="date=2026-01-02", create=True)
    assert done.partitions == ("date=2026-01-02",)
    with pytest.raises(DataError, match="overlap in time"):
        append_rows(warehouse, "log", [path], partition="date=2026-01-02/hour=03", create=True)


def test_new_partitions_are_made_only_when_asked(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    path = late(tmp_path, events(0, 1, first=800), events(30, 2, first=900))
    with pytest.raises(DataError, match="no such partition") as caught:
        append_rows(warehouse, "log", [path])
    assert "date=2026-01-02/hour=06 (rows: 2)" in str(caught.value.value)
    assert version(warehouse) == 1
    assert append_rows(warehouse, "log", [path], create=True).partitions[-1] == "date=2026-01-02/hour=06"
    assert [one.start for one in placed(warehouse)][-1] == START + timedelta(hours=30)


def bad_rows(tmp_path: Path) -> dict[str, tuple[type[HeadraceError], str, list[str], dict[str, Any]]]:
    plain = events(0, 2, first=900)

    def late(tmp_path: Path, rows: pa.Table) -> str:
        return save(tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet", rows)

    null_time = plain.set_column(1, "time", pa.array([None, None], plain.schema.field("time").type))
    return {
        "null time": (DataError, "a time must not be null", [late(tmp_path, null_time)], {}),
        "no time": (SchemaDrift, "lacks the time column", [late(tmp_path, plain.drop_columns(["time"]))], {}),
        "side file": (InputError, "must have rows to append", [save(tmp_path / "_late.parquet", plain)], {}),
        "other type": (SchemaDrift, "another type", [late(tmp_path, plain.set_column(0, "event_id", pa.array(["1", "2"])))], {}),
        "no rows": (InputError, "must have rows", [late(tmp_path, plain.slice(0, 0))], {}),
        "no file": (InputError, "no such file", [str(tmp_path / "absent.parquet")], {}),
        "no partition": (InputError, "must be a time partition", [late(tmp_path, plain)], {"partition": "hour=3"}),
    }  # fmt: skip


def test_bad_input_is_one_error_and_nothing_written(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    before = sorted(log.rglob("*"))
    for case, (kind, text, files, options) in bad_rows(tmp_path).items():
        with pytest.raises(kind, match=text):
            append_rows(warehouse, "log", files, **options)
        assert (case, version(warehouse), sorted(log.rglob("*"))) == (case, 1, before)


def test_a_table_without_a_time_column_needs_a_partition(warehouse: Warehouse, tmp_path: Path) -> None:
    root = tmp_path / "log"
    save(root / "date=2026-01-01/part.parquet", events(0, 3))
    register_table(warehouse, "log", str(root))
    path = late(tmp_path, events(0, 1, first=9))
    with pytest.raises(InputError, match="no time column"):
        append_rows(warehouse, "log", [path])
    assert append_rows(warehouse, "log", [path], partition="date=2026-01-01").rows == 1
    with pytest.raises(UnknownTable):
        append_rows(warehouse, "lag", [path])


def test_an_import_that_is_not_finished_is_waited_for(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    save(tmp_path / "log.imports" / "x.pending.json", events(0, 1))
    with pytest.raises(Busy):
        append_rows(warehouse, "log", [late(tmp_path, events(0, 1, first=9))])


def test_only_late_rows_are_computed(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    made = Model("m", client="c", label="clicked", table="log")
    made.input("query", hr.text("query").unigrams().hash_buckets(9))
    submit_model(warehouse, made)
    work(warehouse)
    path = late(tmp_path, events(1, 3, first=900))
    planned = append_rows(warehouse, "log", [path], dry_run=True)
    assert version(warehouse) == 1
    done = append_rows(warehouse, "log", [path])
    assert planned.recompute == done.recompute
    assert [(one.memos, one.rows) for one in done.recompute] == [(1, 3)]
    assert (queue_missing(warehouse), work(warehouse)) == (1, 1)


def test_a_partition_that_went_is_still_in_older_versions(warehouse: Warehouse, log: Path) -> None:
    shutil.rmtree(log / "date=2026-01-01/hour=01")
    assert register_table(warehouse, "log", str(log)).removed == ("date=2026-01-01/hour=01",)
    assert [one.start.hour for one in placed(warehouse)] == [0, 0, 2, 2]
    assert [one.start.hour for one in placed(warehouse, at_version=2)] == [0, 0, 2, 2]
    assert [one.start.hour for one in placed(warehouse, at_version=1)] == [0, 0, 1, 1, 2, 2]
    assert placed(warehouse, at_version=0) == ()


def test_rows_with_a_known_key_are_left_out_and_counted(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    new = [events(0, 2, first=4), events(1, 2, first=900), events(1, 2, first=901), events(2, 1, first=900)]
    done = append_rows(warehouse, "log", [late(tmp_path, *new)], unique_by=["event_id"])
    # 4 and 5 are in hour 0, 901 comes twice; 900 is in hours 1 and 2, which are looked at each by itself.
    assert (done.rows, done.partitions) == (4, ("date=2026-01-01/hour=01", "date=2026-01-01/hour=02"))
    assert done.notes == ("rows left out, since their partition or an earlier row has the same event_id: 3",)
    assert column(warehouse, "event_id").count(901) == 1
    again = append_rows(warehouse, "log", [late(tmp_path, *new, name="again.parquet")], unique_by=["event_id"])
    assert (again.changed, again.rows, again.version) == (False, 0, 2)
    assert again.notes[0].endswith(": 7")


def test_a_deleted_event_is_not_appended_again_by_its_key(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    delete_rows(warehouse, "log", where=[("event_id", "3")])
    path = late(tmp_path, events(0, 1, first=3))
    assert not append_rows(warehouse, "log", [path], unique_by=["event_id"], dry_run=True).changed


def test_keys_of_several_columns_and_missing_ones(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    rows = events(0, 6)  # the very rows that are there; the fifth has no query
    done = append_rows(warehouse, "log", [late(tmp_path, rows)], unique_by=["event_id", "query"])
    assert (done.rows, column(warehouse, "event_id").count(4)) == (1, 2)
    with pytest.raises(UnknownColumn):
        append_rows(warehouse, "log", [late(tmp_path, rows)], unique_by=["id"])


def test_rows_that_were_read_already_take_the_types_of_the_table(warehouse: Warehouse, log: Path) -> None:
    rows = events(0, 1, first=900)
    wide = rows.set_column(3, "price", rows.column("price").cast(pa.float64()))
    assert append_rows(warehouse, "log", [GivenRows("late.csv", wide)]).rows == 1
    bad = wide.set_column(0, "event_id", pa.array(["x"]))
    with pytest.raises(TypeMismatch) as caught:
        append_rows(warehouse, "log", [GivenRows("late.csv", bad)])
    assert caught.value.where == "late.csv, column event_id"
