"""Deleted events: chosen, merged, skipped by readers, without new computation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import transforms.expressions.expression as hr
from tests.warehouse.changes.scenes import column, events, overlay_files, placed, save, version
from tests.warehouse.scenes import work
from transforms.errors import DataError, HeadraceError, InputError, UnknownColumn
from transforms.expressions.model import Model
from warehouse import Warehouse, queue_missing, read_fragment, read_solution, register_table, submit_model
from warehouse.changes.deletion import delete_rows
from warehouse.changes.overlay import fix_columns
from warehouse.files.digests import column_digest


def ids(warehouse: Warehouse, at_version: int | None = None) -> list[Any]:
    return column(warehouse, "event_id", at_version, live=True)


def test_conditions_hold_together_and_deletions_unite(warehouse: Warehouse, log: Path) -> None:
    done = delete_rows(warehouse, "log", where=[("price", "1"), ("clicked", "false")], why="bots")
    assert (done.rows, done.fragments, done.recompute) == (2, 2, ())
    assert [one for one in range(6) if one not in ids(warehouse)] == [1, 5]
    again = delete_rows(warehouse, "log", where=[("price", "1.0")])
    assert (again.rows, again.notes) == (2, ("deleted before: 2 of these events",))
    assert [one.fragment.deleted_rows for one in placed(warehouse)] == [1, 1, 1, 1, 0, 0]
    assert [one.fragment.live_rows for one in placed(warehouse)] == [3, 1, 3, 1, 4, 2]
    assert len(ids(warehouse, at_version=1)) == 18
    assert len(ids(warehouse, at_version=2)) == 16
    assert not delete_rows(warehouse, "log", where=[("price", "1")]).changed
    assert version(warehouse) == 3


def test_values_are_of_the_columns_type(warehouse: Warehouse, log: Path) -> None:
    for condition, count in (
        (("event_id", "204"), 1),
        (("query", "word0 h0"), 2),
        (("query", ""), 0),
        (("clicked", "TRUE"), 9),
        (("time", "2026-01-01T02:03:00Z"), 1),
    ):
        assert delete_rows(warehouse, "log", where=[condition], dry_run=True).rows == count, condition
    assert delete_rows(warehouse, "log", where=[("clicked", "true")]).rows == 9


def test_by_keys(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    path = save(tmp_path / "keys.parquet", {"event_id": [0, 101, 777], "note": ["a", "b", "c"]})
    planned = delete_rows(warehouse, "log", on=["event_id"], keys=path, dry_run=True)
    assert (planned.rows, version(warehouse), overlay_files(warehouse)) == (2, 1, [])
    done = delete_rows(warehouse, "log", on=["event_id"], keys=path)
    assert (done.rows, done.unknown_keys) == (2, 1)
    assert len(ids(warehouse)) == 16


WRONG: tuple[tuple[dict[str, Any], type[HeadraceError], str], ...] = (
    ({}, InputError, "by conditions or by keys"),
    ({"where": [("price", "1")], "on": ["event_id"], "keys": "x"}, InputError, "by conditions or by keys"),
    ({"on": ["event_id"]}, InputError, "by conditions or by keys"),
    ({"where": [("pryce", "1")]}, UnknownColumn, "no such column"),
    ({"where": [("price", "cheap")]}, InputError, "must have its column"),
    ({"where": [("clicked", "1")]}, InputError, "must have its column"),
    ({"where": [("event_id", "1.5")]}, InputError, "must have its column"),
    ({"on": ["event_id"], "keys": "nulls"}, DataError, "a key must not be null"),
    ({"on": ["event"], "keys": "nulls"}, UnknownColumn, "no such column"),
)


def test_bad_input_is_one_error_and_nothing_written(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    path = save(tmp_path / "nulls.parquet", {"event_id": pa.array([1, None], pa.int64())})
    for options, kind, text in WRONG:
        given = {**options, "keys": path} if "keys" in options else options
        with pytest.raises(kind, match=text):
            delete_rows(warehouse, "log", **given)
        assert (options, version(warehouse), overlay_files(warehouse)) == (options, 1, [])


def test_training_does_not_see_them_and_memos_do_not_care(warehouse: Warehouse, log: Path) -> None:
    made = Model("m", client="c", label="clicked", table="log")
    made.input("query", hr.text("query").unigrams().hash_buckets(9))
    made.input("price", hr.float32("price"))
    submit_model(warehouse, made)
    work(warehouse)
    before = read_solution(warehouse, "m")
    delete_rows(warehouse, "log", where=[("event_id", "2")])
    assert queue_missing(warehouse) == 0
    now = read_solution(warehouse, "m")
    assert (before.rows, now.rows) == (18, 17)
    assert not any(fragment.deletions for fragment in before.fragments)
    assert sum(fragment.deletions is not None for fragment in now.fragments) == 1

    def read_ids(solution: Any) -> list[float]:
        read = (read_fragment(warehouse.storage, solution, one, columns=["event_id"]) for one in solution.fragments)
        return [value for table in read for value in table.column("event_id").to_pylist()]

    assert len(read_ids(before)) == 18
    assert 2 not in read_ids(now)


def test_registering_again_keeps_deletions_of_what_stayed(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    delete_rows(warehouse, "log", where=[("event_id", "2")])
    fix_columns(
        warehouse, "log", save(tmp_path / "v.parquet", {"event_id": [2], "price": pa.array([9.0], pa.float32())}),
        on=["event_id"], why="x",
    )  # fmt: skip
    assert len(ids(warehouse)) == 17
    save(log / "date=2026-01-01/hour=00/another.parquet", events(0, 1, first=50))
    done = register_table(warehouse, "log", str(log))
    assert (done.changed, done.dropped) == (("date=2026-01-01/hour=00",), ())
    assert 2 not in ids(warehouse)
    (log / "date=2026-01-01/hour=00/part.parquet").unlink()
    done = register_table(warehouse, "log", str(log))
    assert len(done.dropped) == 1
    assert "overlays of price and 1 deleted events" in done.dropped[0]


def test_vectors_are_known_by_their_digest(warehouse: Warehouse, log: Path) -> None:
    delete_rows(warehouse, "log", where=[("event_id", "1")])
    vector = placed(warehouse)[0].fragment.deletions
    assert vector is not None
    assert vector.checksum == column_digest(pa.array([False, True, False, False]))
