"""Overlays and corrections: their effects, their refusals, and what stays."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import transforms.expressions.expression as hr
from tests.warehouse.changes.scenes import column, overlay_files, placed, save, version
from tests.warehouse.scenes import Clock, work
from transforms.errors import DataError, HeadraceError, InputError, TypeMismatch, UnknownColumn
from transforms.expressions.model import Model
from warehouse import Warehouse, explain_model, queue_missing, register_table, submit_model
from warehouse.changes.overlay import fix_columns, overlay_columns
from warehouse.errors import CatalogBusy, CorruptFile, OverlayDamaged, SchemaDrift, UnknownTable
from warehouse.files.memo_file import write_memo_file
from warehouse.tables.history import table_history
from warehouse.tables.table import content_of

F32 = pa.float32()


def keyed(tmp_path: Path, ids: list[int | None], **columns: Any) -> str:
    return save(tmp_path / "values.parquet", {"event_id": pa.array(ids, pa.int64()), **columns})


def test_a_new_column_by_key(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    path = keyed(tmp_path, [203, 0, 999], spam=pa.array([0.5, None, 1.0], F32))
    done = overlay_columns(warehouse, "log", path, on=["event_id"], why="verdicts of January")
    assert (done.version, done.changed, done.rows, done.unknown_keys) == (2, True, 2, 1)
    assert (done.added_columns, done.fragments, done.partitions) == (("spam",), 1, ("date=2026-01-01/hour=02",))
    assert column(warehouse, "spam") == [None] * 15 + [0.5] + [None] * 2
    assert [one.partition_version for one in placed(warehouse)] == [1, 1, 1, 1, 2, 2]
    # Events that the file names with a null, in a column that was never there, are as they were.
    assert len(overlay_files(warehouse)) == 1
    with warehouse.catalog.read() as connection:
        noted = table_history(connection, "log")[-1]
    assert (noted.kind, noted.why, noted.columns, noted.rows) == ("overlay", "verdicts of January", ("spam",), 2)


def test_what_the_file_does_not_name_keeps_its_value(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    before = column(warehouse, "clicked")
    path = keyed(tmp_path, [100, 101], clicked=pa.array([None, True]))
    overlay_columns(warehouse, "log", path, on=["event_id"])
    assert column(warehouse, "clicked") == [*before[:6], None, True, *before[8:]]
    assert column(warehouse, "clicked", at_version=1) == before
    assert column(warehouse, "event_id") == column(warehouse, "event_id", at_version=1)


def test_two_keys(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    values = {"query": ["word0 h0", "word0 h0"], "event_id": [3, 1], "price": pa.array([7, 9])}
    done = overlay_columns(warehouse, "log", save(tmp_path / "v.parquet", values), on=["query", "event_id"])
    assert (done.rows, done.unknown_keys) == (1, 1)
    assert column(warehouse, "price")[3] == 7.0


def test_the_same_overlay_again_changes_nothing(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    path = keyed(tmp_path, [0, 1], spam=pa.array([1.0, 2.0], F32))
    overlay_columns(warehouse, "log", path, on=["event_id"])
    files = overlay_files(warehouse)
    done = overlay_columns(warehouse, "log", path, on=["event_id"])
    assert (done.changed, done.version, version(warehouse)) == (False, 2, 2)
    assert overlay_files(warehouse) == files


def test_what_the_file_holds_again_is_the_file_again(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    first = placed(warehouse)[0].fragment
    fix_columns(warehouse, "log", keyed(tmp_path, [0], price=pa.array([8.0], F32)), on=["event_id"], why="x")
    assert content_of(placed(warehouse)[0].fragment, ["price"]) != first.fragment_id
    fix_columns(warehouse, "log", keyed(tmp_path, [0], price=pa.array([0.0], F32)), on=["event_id"], why="was right")
    again = placed(warehouse)[0].fragment
    assert (again.overlays, again.digests) == ((), first.digests)
    assert content_of(again, ["price"]) == first.fragment_id


def test_nulls_alone_are_no_column(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    overlay_columns(warehouse, "log", keyed(tmp_path, [0], spam=pa.array([1.0], F32)), on=["event_id"])
    overlay_columns(warehouse, "log", keyed(tmp_path, [0], spam=pa.array([None], F32)), on=["event_id"])
    fragments = [one.fragment for one in placed(warehouse)]
    assert all(one.is_absent for fragment in fragments for one in fragment.overlays)
    assert fragments[0].digests["spam"] == fragments[2].digests["spam"]


def test_aligned_values(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror/date=2026-01-01/hour=01/part.parquet"
    save(mirror, {"spam": pa.array(range(6), F32)})
    done = overlay_columns(warehouse, "log", str(tmp_path / "mirror"))
    assert (done.rows, done.fragments) == (6, 2)
    assert column(warehouse, "spam") == [None] * 6 + [0, 1, 2, 3, 4, 5] + [None] * 6


def test_only_a_range_is_looked_through(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    path = keyed(tmp_path, [0, 200], price=pa.array([5.0, 6.0], F32))
    done = overlay_columns(warehouse, "log", path, on=["event_id"], start=datetime(2026, 1, 1, 1, tzinfo=UTC))
    assert (done.rows, done.unknown_keys) == (1, 1)
    assert column(warehouse, "price", at_version=2)[0] == 0.0
    with pytest.raises(InputError, match="no partition starts"):
        overlay_columns(warehouse, "log", path, on=["event_id"], start=datetime(2027, 1, 1, tzinfo=UTC))


def wrong_inputs(tmp_path: Path) -> dict[str, tuple[type[HeadraceError], str, str, list[str]]]:
    """Error, part of its text, the file and its keys."""

    def write(name: str, columns: dict[str, Any]) -> str:
        return save(tmp_path / name / "v.parquet", columns)

    hour = "date=2026-01-01/hour=01"
    save(tmp_path / "short" / hour / "part.parquet", {"spam": pa.array([1.0] * 5, F32)})
    save(tmp_path / "elsewhere" / "date=2026-01-09/hour=01/part.parquet", {"spam": pa.array([1.0] * 6, F32)})
    save(tmp_path / "mixed" / hour / "part.parquet", {"spam": pa.array([1.0] * 6, F32)})
    save(tmp_path / "mixed/date=2026-01-01/hour=02/part.parquet", {"spam": ["a"] * 6})
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    return {
        "null key": (DataError, "a key must not be null", write("n", {"event_id": [1, None], "price": [1, 2]}), ["event_id"]),
        "duplicate": (DataError, "must be unique", write("d", {"event_id": [1, 2, 1], "price": [1, 2, 3]}), ["event_id"]),
        "no key column": (UnknownColumn, "no such column", write("k", {"id": [1], "price": [1]}), ["event_id"]),
        "key not of the table": (UnknownColumn, "no such column", write("t", {"id": [1], "price": [1]}), ["id"]),
        "key of another type": (TypeMismatch, "must have the table's type", write("y", {"event_id": ["1"], "price": [1]}), ["event_id"]),
        "value of another type": (SchemaDrift, "has a column of another type", write("v", {"event_id": [1], "price": ["1"]}), ["event_id"]),
        "value that does not fit": (TypeMismatch, "must fit the column", write("f", {"event_id": [1], "price": [2**40 + 1]}), ["event_id"]),
        "untyped column": (TypeMismatch, "one that a model can read", write("u", {"event_id": [1], "new": pa.nulls(1)}), ["event_id"]),
        "nothing but keys": (InputError, "other than its keys", write("o", {"event_id": [1]}), ["event_id"]),
        "list as key": (TypeMismatch, "a key must be", write("l", {"query": [["a"]], "price": [1]}), ["query"]),
        "torn file": (CorruptFile, "not a complete", str(tmp_path / "torn.parquet"), ["event_id"]),
        "absent file": (InputError, "no such file", str(tmp_path / "absent.parquet"), ["event_id"]),
        "absent folder": (InputError, "the folder of values does not exist", str(tmp_path / "absent"), []),
        "other rows": (DataError, "must have the rows of", str(tmp_path / "short"), []),
        "other partition": (DataError, "must have the path of a file", str(tmp_path / "elsewhere"), []),
        "other columns": (TypeMismatch, "equal columns", str(tmp_path / "mixed"), []),
    }  # fmt: skip


def test_bad_input_is_one_error_and_nothing_written(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    lists = {"query": [["a"]], "price": pa.array([1.0], F32)}
    save(tmp_path / "lists" / "date=2026-01-01/part.parquet", lists)
    register_table(warehouse, "lists", str(tmp_path / "lists"))
    for case, (kind, text, path, on) in wrong_inputs(tmp_path).items():
        with pytest.raises(kind, match=text):
            overlay_columns(warehouse, "lists" if case == "list as key" else "log", path, on=on)
        assert (case, overlay_files(warehouse), version(warehouse)) == (case, [], 1)


def test_corrections_are_of_columns_that_are_there_and_say_why(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    path = keyed(tmp_path, [0], pryce=pa.array([1.0], F32))
    with pytest.raises(UnknownColumn) as caught:
        fix_columns(warehouse, "log", path, on=["event_id"], why="typo")
    assert "price" in str(caught.value.allowed)
    with pytest.raises(InputError, match="must be a reason"):
        fix_columns(warehouse, "log", path, on=["event_id"], why=" ")
    with pytest.raises(UnknownTable):
        fix_columns(warehouse, "lag", path, on=["event_id"], why="typo")
    assert version(warehouse) == 1


def submitted(warehouse: Warehouse, **inputs: hr.Expr) -> None:
    made = Model("m", client="c", label="clicked", table="log")
    for name, expression in inputs.items():
        made.input(name, expression)
    submit_model(warehouse, made)


def test_exactly_the_readers_are_computed_again(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    price, query = hr.float32("price").fill_null(0.0).log1p(), hr.text("query").unigrams().hash_buckets(9)
    submitted(warehouse, price=price, query=query)
    assert work(warehouse) == 12
    path = keyed(tmp_path, [0, 205], price=pa.array([5.0, 6.0], F32), clicked=pa.array([True, True]))
    planned = fix_columns(warehouse, "log", path, on=["event_id"], why="x", dry_run=True)
    assert (version(warehouse), overlay_files(warehouse)) == (1, [])
    done = fix_columns(warehouse, "log", path, on=["event_id"], why="x")
    assert planned.recompute == done.recompute
    assert planned.dry_run
    assert (planned.version, planned.rows, planned.fragments) == (1, done.rows, done.fragments)
    (again,) = done.recompute
    assert (again.columns, again.models, again.memos, again.rows) == (("price",), ("m",), 2, 6)
    reasons = [one.reason for one in explain_model(warehouse, "m") if not one.hit]
    assert reasons == ["data changed in column price"] * 2
    assert queue_missing(warehouse) == 2
    assert work(warehouse) == 2


def test_what_a_policy_does_not_keep_is_not_computed_again(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    made = Model("m", client="c", label="clicked", table="log")
    made.input("price", hr.float32("price").fill_null(0.0).log1p())
    submit_model(warehouse, made, policy="none")
    path = keyed(tmp_path, [0], price=pa.array([5.0], F32))
    assert fix_columns(warehouse, "log", path, on=["event_id"], why="x").recompute == ()


def test_a_late_label_invalidates_no_memo(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    submitted(warehouse, query=hr.text("query").unigrams().hash_buckets(9))
    work(warehouse)
    done = overlay_columns(warehouse, "log", keyed(tmp_path, [0], clicked=[False]), on=["event_id"])
    assert done.recompute == ()
    assert queue_missing(warehouse) == 0


def test_a_model_may_read_an_added_column_everywhere(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    overlay_columns(warehouse, "log", keyed(tmp_path, [0], spam=pa.array([2.0], F32)), on=["event_id"])
    submitted(warehouse, spam=hr.float32("spam").fill_null(-0.5))
    # Six fragments; four of 4 or 2 events without any value are two contents.
    assert work(warehouse) == 3


def test_damaged_bytes_are_an_error(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    overlay_columns(warehouse, "log", keyed(tmp_path, [0], price=pa.array([2.0], F32)), on=["event_id"])
    (file,) = overlay_files(warehouse)
    write_memo_file(warehouse.storage, file, {"price": pa.array([2.0, 1.0, 2.0, 4.0], F32)})
    with pytest.raises(OverlayDamaged) as caught:
        column(warehouse, "price")
    assert str(caught.value.where) in file
    Path(file).unlink()
    with pytest.raises(OverlayDamaged):
        column(warehouse, "price")
    assert column(warehouse, "query") == column(warehouse, "query", at_version=1)


def test_two_changes_at_once_are_not_lost(
    warehouse: Warehouse, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = keyed(tmp_path, [0], price=pa.array([2.0], F32))
    other = save(tmp_path / "other.parquet", {"event_id": [0], "clicked": [False]})
    original = type(warehouse.catalog).write

    def write(catalog: Any) -> Any:
        monkeypatch.setattr(type(warehouse.catalog), "write", original)
        overlay_columns(warehouse, "log", other, on=["event_id"])
        return original(catalog)

    monkeypatch.setattr(type(warehouse.catalog), "write", write)
    with pytest.raises(CatalogBusy, match="meanwhile"):
        overlay_columns(warehouse, "log", path, on=["event_id"])
    assert (version(warehouse), column(warehouse, "clicked")[0]) == (2, False)


def test_registering_again_keeps_what_still_holds(
    warehouse: Warehouse, log: Path, tmp_path: Path, clock: Clock
) -> None:
    values = pa.array([1.0, 2.0, 3.0], F32)
    overlay_columns(warehouse, "log", keyed(tmp_path, [0, 5, 100], spam=values), on=["event_id"])
    first, second = (log / f"date=2026-01-01/hour=0{hour}/part.parquet" for hour in (0, 1))
    changed = pq.read_table(first)
    prices = pa.array([77.0 if i == 5 else float(i % 4) for i in range(6)], F32)
    save(first, changed.set_column(3, "price", prices), row_group_size=4)
    second.rename(second.with_name("renamed.parquet"))
    done = register_table(warehouse, "log", str(log))
    assert done.changed == ("date=2026-01-01/hour=00", "date=2026-01-01/hour=01")
    assert done.dropped == (f"{first}: overlays of spam",)
    # The first fragment of the rewritten file holds what it held; the second does not.
    assert column(warehouse, "spam") == [1.0] + [None] * 5 + [3.0] + [None] * 11
    assert done.table.column("spam").overlay_only
