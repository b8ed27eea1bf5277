"""A log's schema changes over time: columns begin and widen, and memos of values that stay equal stay valid."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import transforms.expressions.expression as hr
from tests.warehouse.tables.evolution.scenes import (
    ROWS,
    add,
    changes,
    column_of,
    day,
    submit,
    the_table,
    values,
    work,
    write,
)
from transforms.errors import InputError, NotFound, TypeMismatch
from warehouse import Warehouse, read_fragment, read_solution
from warehouse.changes.append import append_rows
from warehouse.changes.deletion import delete_rows
from warehouse.changes.overlay import fix_columns, overlay_columns
from warehouse.errors import SchemaDrift
from warehouse.maintenance.compact_table import compact_table
from warehouse.tables.history import schema_at
from warehouse.tables.manifests import current_fragments
from warehouse.tables.table import Fragment

ORDERS = [(1, 2), (2, 1)]


def fragments(warehouse: Warehouse) -> list[Fragment]:
    with warehouse.catalog.read() as connection:
        return [placed.fragment for placed in current_fragments(connection, "log")]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
def test_null_then_text(warehouse: Warehouse, root: Path, order: tuple[int, int], together: bool) -> None:
    write(root, order[0], day(order[0], city=pa.nulls(ROWS)))
    if not together:
        add(warehouse, root)
    write(root, order[1], day(order[1], city=["x"] * ROWS))
    assert add(warehouse, root).rows == 40
    assert column_of(warehouse, "city").arrow_type == "string"
    expected = {order[0]: [None] * ROWS, order[1]: ["x"] * ROWS}
    assert values(warehouse, "city") == expected[1] + expected[2]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
def test_int32_then_int64(warehouse: Warehouse, root: Path, order: tuple[int, int], together: bool) -> None:
    files = {order[0]: pa.array(range(20), pa.int32()), order[1]: pa.array([2**40 + i for i in range(20)], pa.int64())}
    for number in sorted(files, reverse=order == (2, 1)):
        write(root, number, day(number, k=files[number]))
        if not together:
            add(warehouse, root)
    add(warehouse, root)
    assert column_of(warehouse, "k").arrow_type == "int64"
    assert values(warehouse, "k") == files[1].to_pylist() + files[2].to_pylist()


@pytest.mark.medium
def test_a_new_column_and_what_is_computed_again(warehouse: Warehouse, root: Path) -> None:
    write(root, 1, day(1))
    add(warehouse, root)
    submit(warehouse)
    assert work(warehouse) == [("date=2026-03-01", "user")]
    write(root, 2, day(2, score=[1.5] * ROWS))
    found = add(warehouse, root)
    assert [change.text for change in found.schema_changes] == ["new score, double"]
    assert work(warehouse) == [("date=2026-03-02", "user")]
    assert values(warehouse, "score") == [None] * ROWS + [1.5] * ROWS
    submit(warehouse, "later", score=hr.float64("score").fill_null(0.0).log1p())
    assert work(warehouse) == [("date=2026-03-01", "score"), ("date=2026-03-02", "score")]
    write(root, 3, day(3, score=pa.nulls(ROWS), other=["a"] * ROWS))
    assert add(warehouse, root).table.version == 3
    assert work(warehouse) == [("date=2026-03-03", "user")], "as many nulls as on the first day"
    assert changes(warehouse) == [[], ["new score, double"], ["new other, string"]]


@pytest.mark.medium
def test_a_widened_column_keeps_its_memos(warehouse: Warehouse, root: Path) -> None:
    write(root, 1, day(1, k=pa.array(range(20), pa.int32()), at=pa.array(range(20), pa.timestamp("ms"))))
    add(warehouse, root)
    inputs = {"k": hr.int64("k").hash_buckets(50), "at": hr.timestamp("at").hour_of_day()}
    submit(warehouse, **inputs)
    assert len(work(warehouse)) == 3
    write(root, 2, day(2, k=pa.array([2**40] * 20), at=pa.array(range(20), pa.timestamp("us"))))
    found = add(warehouse, root)
    assert [one.text for one in found.schema_changes] == [
        "k from int32 to int64",
        "at from timestamp[ms] to timestamp[us]",
    ]
    assert [file for file, _ in work(warehouse)] == ["date=2026-03-02"] * 3
    # A model that is submitted now reads one memo for each day too.
    submit(warehouse, "again", **inputs)
    assert work(warehouse) == []
    assert changes(warehouse)[-1] == ["k from int32 to int64", "at from timestamp[ms] to timestamp[us]"]


BACKFILLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "wider": ({"k": pa.array([1, None, *range(18)], pa.int32())}, {"k": pa.array([1, None, *range(18)], pa.int64())}),
    "float": ({"k": pa.array([0.5] * 20, pa.float32())}, {"k": pa.array([0.5] * 20)}),
    "list": ({"k": pa.array([[1], []] * 10, pa.list_(pa.int32()))}, {"k": pa.array([[1], []] * 10, pa.list_(pa.int64()))}),
    "time": ({"k": pa.array(range(20), pa.timestamp("s"))}, {"k": pa.array(range(20), pa.timestamp("s")).cast(pa.timestamp("ns"))}),
    "nulls": ({}, {"k": pa.nulls(20, pa.int64())}),
    "no nulls": ({"k": pa.nulls(20)}, {"k": pa.nulls(20, pa.int64())}),
    "untyped": ({"k": pa.nulls(20, pa.int64())}, {"k": pa.nulls(20)}),
}  # fmt: skip
READERS = {
    "float": hr.float64("k").fill_null(0.0).log1p(),
    "list": hr.ragged("k", "int64").count(),
    "time": hr.timestamp("k").hour_of_day(),
}


@pytest.mark.medium
@pytest.mark.parametrize("case", BACKFILLS)
def test_equal_values_in_another_type_keep_their_memos(warehouse: Warehouse, root: Path, case: str) -> None:
    """A backfill writes the old days with the new schema: nothing is computed again, overlays and deletions stay."""
    before, after = BACKFILLS[case]
    wide = after.get("k", before.get("k"))
    path = write(root, 1, day(1, **before))
    write(root, 2, day(2, k=wide if wide.null_count < 20 else pa.array(range(20))))
    add(warehouse, root)
    delete_rows(warehouse, "log", where=[("seat", "1")])
    verdicts = pa.table({"time": day(1)["time"], "spam": [0.5] * 20})
    pq.write_table(verdicts, root.parent / "verdicts.parquet")
    overlay_columns(warehouse, "log", str(root.parent / "verdicts.parquet"), on=["time"])
    inputs = {"k": READERS.get(case, hr.int64("k").hash_buckets(50)), "spam": hr.float64("spam").fill_null(0.0).log1p()}
    submit(warehouse, **inputs)
    assert len(work(warehouse)) == 6
    read = values(warehouse, "k")
    pq.write_table(day(1, **after), path)
    found = add(warehouse, root)
    assert (found.changed, found.dropped) == (("date=2026-03-01",), ())
    assert work(warehouse) == []
    assert values(warehouse, "k") == read
    assert values(warehouse, "spam")[:20] == [0.5] * 20
    assert [one.deleted_rows for one in fragments(warehouse)] == [4, 4]
    solution = read_solution(warehouse, "m")
    assert solution.count("load") == 6
    assert sum(read_fragment(warehouse.storage, solution, one).num_rows for one in solution.fragments) == 32


def test_values_that_differ_in_another_type_are_computed_again(warehouse: Warehouse, root: Path) -> None:
    path = write(root, 1, day(1, k=pa.array([0.1] * 20, pa.float32())))
    write(root, 2, day(2, k=pa.array([0.1] * 20)))
    add(warehouse, root)
    submit(warehouse, k=hr.float64("k").log1p())
    work(warehouse)
    pq.write_table(day(1, k=pa.array([0.1] * 20)), path)
    add(warehouse, root)
    assert work(warehouse) == []  # the value is that of the other day
    assert values(warehouse, "k") == [0.1] * 40
    pq.write_table(day(1, k=pa.array([0.2] * 20)), path)
    add(warehouse, root)
    assert work(warehouse) == [("date=2026-03-01", "k")]


def test_a_backfill_that_adds_a_column_keeps_overlays_and_deletions(warehouse: Warehouse, root: Path) -> None:
    path = write(root, 1, day(1))
    add(warehouse, root)
    submit(warehouse)
    work(warehouse)
    for name in ("spam", "score"):
        pq.write_table(pa.table({"time": day(1)["time"], name: [0.5] * 20}), root.parent / "v.parquet")
        overlay_columns(warehouse, "log", str(root.parent / "v.parquet"), on=["time"])
    delete_rows(warehouse, "log", where=[("seat", "1")])
    pq.write_table(day(1, score=[2.5] * 20), path)
    found = add(warehouse, root)
    assert found.dropped == ()
    assert work(warehouse) == []
    assert values(warehouse, "score") == [2.5] * 20, "the file is newer than the overlay"
    assert values(warehouse, "spam") == [0.5] * 20
    assert [one.deleted_rows for one in fragments(warehouse)] == [4]
    assert not column_of(warehouse, "score").overlay_only
    pq.write_table(day(1, score=[2.5] * 20, user=["someone else"] * 20), path)
    assert [text.partition(": ")[2] for text in add(warehouse, root).dropped] == [
        "overlays of spam and 4 deleted events"
    ]


def test_a_column_of_an_overlay_arrives_in_files_later(warehouse: Warehouse, root: Path) -> None:
    write(root, 1, day(1))
    add(warehouse, root)
    pq.write_table(
        pa.table({"time": day(1)["time"][:5], "score": pa.array([0.5] * 5, pa.float32())}), root.parent / "v.parquet"
    )
    overlay_columns(warehouse, "log", str(root.parent / "v.parquet"), on=["time"])
    submit(warehouse, score=hr.float64("score").fill_null(0.0).log1p())
    work(warehouse)
    write(root, 2, day(2, score=[1.5] * ROWS))
    add(warehouse, root)
    column = column_of(warehouse, "score")
    assert (column.arrow_type, column.overlay_only, column.stored_types) == ("double", False, ("float", "double"))
    assert values(warehouse, "score") == [0.5] * 5 + [None] * 15 + [1.5] * 20
    assert work(warehouse) == [("date=2026-03-02", "score"), ("date=2026-03-02", "user")]
    assert changes(warehouse) == [[], ["new score, float"], ["score from float to double"]]


def test_overlays_and_fixes_widen_a_column_by_their_values(warehouse: Warehouse, root: Path) -> None:
    write(root, 1, day(1, k=pa.array(range(20), pa.int32())))
    write(root, 2, day(2, k=pa.array(range(20), pa.int32())))
    add(warehouse, root)
    submit(warehouse, k=hr.int64("k").hash_buckets(50))
    work(warehouse)

    def keyed(rows: list[int], k: list[int | None]) -> str:
        path = root.parent / "v.parquet"
        pq.write_table(pa.table({"time": day(1)["time"].take(rows), "k": pa.array(k, pa.int64())}), path)
        return str(path)

    same = fix_columns(warehouse, "log", keyed([3, 4], [3, 4]), on=["time"], why="check")
    assert (same.changed, the_table(warehouse).version) == (False, 1)
    small = fix_columns(warehouse, "log", keyed([3], [33]), on=["time"], why="typo")
    assert (small.widened_columns, column_of(warehouse, "k").arrow_type) == ((), "int32")
    done = fix_columns(warehouse, "log", keyed([3], [2**40]), on=["time"], why="overflow")
    assert [one.text for one in done.widened_columns] == ["k from int32 to int64"]
    assert values(warehouse, "k") == [*range(3), 2**40, *range(4, 20), *range(20)]
    assert [one.memos for one in done.recompute] == [1]
    assert work(warehouse) == [("date=2026-03-01", "k")]
    # The values of the file, given in the wider type, are the file's again, and so are its memos.
    back = fix_columns(warehouse, "log", keyed(list(range(20)), list(range(20))), on=["time"], why="undo")
    assert (back.rows, back.recompute) == (20, ())
    assert work(warehouse) == []
    assert fragments(warehouse)[0].overlays == ()
    assert changes(warehouse) == [[], [], ["k from int32 to int64"], []]


def test_events_are_found_by_widened_columns(warehouse: Warehouse, root: Path) -> None:
    """Deletes and overlays look in all files, whatever type each has of the key."""
    write(root, 1, day(1, k=pa.array(range(20), pa.int16())))
    write(root, 2, day(2, k=pa.array([2**40 + i for i in range(20)]), score=[float(i) for i in range(20)]))
    write(root, 3, day(3, score=[7.0] * 20))
    add(warehouse, root)
    assert delete_rows(warehouse, "log", where=[("k", "3")]).rows == 1
    assert delete_rows(warehouse, "log", where=[("k", str(2**40 + 3))]).rows == 1
    assert delete_rows(warehouse, "log", where=[("score", "7.0"), ("seat", "1")]).rows == 4
    pq.write_table(pa.table({"k": [4, 2**40 + 4, 99], "spam": [0.5] * 3}), root.parent / "v.parquet")
    done = overlay_columns(warehouse, "log", str(root.parent / "v.parquet"), on=["k"])
    assert (done.rows, done.unknown_keys, done.added_columns) == (2, 1, ("spam",))
    assert delete_rows(warehouse, "log", on=["k"], keys=str(root.parent / "v.parquet")).rows == 2
    assert [one.deleted_rows for one in fragments(warehouse)] == [2, 2, 4]


def test_appended_rows_widen_and_add_columns(warehouse: Warehouse, root: Path, tmp_path: Path) -> None:
    write(root, 1, day(1, k=pa.array(range(20), pa.int32()), note=["n"] * 20))
    add(warehouse, root)
    submit(warehouse, k=hr.int64("k").hash_buckets(50))
    work(warehouse)
    late = day(1, 3, user=["late"] * 3, k=[2**40, None, 1], score=[1.0, 2.0, 3.0])
    pq.write_table(late, tmp_path / "late.parquet")
    dry = append_rows(warehouse, "log", [str(tmp_path / "late.parquet")], dry_run=True)
    done = append_rows(warehouse, "log", [str(tmp_path / "late.parquet")])
    assert dry.recompute == done.recompute
    assert (done.added_columns, [one.text for one in done.widened_columns]) == (("score",), ["k from int32 to int64"])
    assert values(warehouse, "k") == [*range(20), 2**40, None, 1]
    assert values(warehouse, "note") == ["n"] * 20 + [None] * 3
    assert len(work(warehouse)) == 2, "the late rows alone"
    assert changes(warehouse)[-1] == ["k from int32 to int64", "new score, double"]
    # The same rows in other types are the rows that the table has.
    narrow = late.set_column(
        late.schema.get_field_index("score"), "score", late["score"].cast(pa.float32())
    ).append_column("more", pa.nulls(3))
    pq.write_table(narrow, tmp_path / "late2.parquet")
    with pytest.raises(InputError, match="must not be in the table yet"):
        append_rows(warehouse, "log", [str(tmp_path / "late2.parquet")])


def test_files_of_one_append_may_differ(warehouse: Warehouse, root: Path, tmp_path: Path) -> None:
    write(root, 1, day(1))
    add(warehouse, root)
    pq.write_table(day(1, 2, user=["a"] * 2, k=pa.array([1, 2], pa.int32())), tmp_path / "a.parquet")
    pq.write_table(day(1, 2, user=["b"] * 2, k=[2**40, 4], city=["x", "y"]), tmp_path / "b.parquet")
    done = append_rows(
        warehouse, "log", [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")], unique_by=["user", "k"]
    )
    assert (done.rows, done.added_columns) == (4, ("k", "city"))
    assert values(warehouse, "k")[-4:] == [1, 2, 2**40, 4]
    assert values(warehouse, "city")[-4:] == [None, None, "x", "y"]
    again = append_rows(warehouse, "log", [str(tmp_path / "a.parquet")], unique_by=["user", "k"])
    assert (again.changed, again.notes) == (
        False, ("rows left out, since their partition or an earlier row has the same user, k: 2",),
    )  # fmt: skip


@pytest.mark.medium
def test_merged_fragments_of_several_schemas(warehouse: Warehouse, root: Path) -> None:
    for hour in range(3):
        path = root / f"date=2026-03-01/hour={hour:02d}/p.parquet"
        path.parent.mkdir(parents=True)
        extra = {0: {}, 1: {"k": pa.array(range(5), pa.int32())}, 2: {"k": [2**40] * 5, "city": ["x"] * 5}}[hour]
        pq.write_table(day(1, 5, user=[f"h{hour}"] * 5, **extra), path)
    add(warehouse, root)
    submit(warehouse, bucket=hr.int64("k").hash_buckets(50), length=hr.text("city").length())
    assert len(work(warehouse)) == 8  # two hours without a city are equal
    read = {name: values(warehouse, name) for name in ("k", "city", "user")}
    assert compact_table(warehouse, "log", ended_before=warehouse.clock() + 10**9).merged
    assert work(warehouse) == []
    assert {name: values(warehouse, name) for name in ("k", "city", "user")} == read
    solution = read_solution(warehouse, "m")
    assert solution.count("load") == 9
    parts = [read_fragment(warehouse.storage, solution, one, columns=["k", "city"]) for one in solution.fragments]
    whole = pa.concat_tables(parts)
    assert {name: whole[name].to_pylist() for name in ("k", "city")} == {name: read[name] for name in ("k", "city")}
    write(root, 2, day(2, k=[1] * ROWS, city=pa.nulls(ROWS), more=[1.0] * ROWS))
    add(warehouse, root)
    assert len(work(warehouse)) == 3
    fix = pa.table({"user": ["h0"], "k": [7]})
    pq.write_table(fix, root.parent / "fix.parquet")
    fix_columns(warehouse, "log", str(root.parent / "fix.parquet"), on=["user"], why="late")
    assert [columns for _, columns in work(warehouse)] == ["k"]
    assert values(warehouse, "k")[:10] == [7] * 5 + list(range(5))


def test_older_versions_are_read_as_they_were(warehouse: Warehouse, root: Path) -> None:
    write(root, 1, day(1, k=pa.array(range(20), pa.int32())))
    add(warehouse, root)
    submit(warehouse, k=hr.int64("k").hash_buckets(50))
    work(warehouse)
    pinned = read_solution(warehouse, "m")
    before = [read_fragment(warehouse.storage, pinned, one) for one in pinned.fragments]
    write(root, 2, day(2, k=[2**40] * ROWS, city=["x"] * ROWS))
    add(warehouse, root)
    again = type(pinned).from_document(pinned.to_document())
    assert [read_fragment(warehouse.storage, again, one) for one in again.fragments] == before
    then = read_solution(warehouse, "m", table_version=1)
    assert pa.concat_tables(read_fragment(warehouse.storage, then, one) for one in then.fragments) == before[0]
    assert values(warehouse, "city", at_version=1) == [None] * 20
    with warehouse.catalog.read() as connection:
        assert [(one.name, one.arrow_type) for one in schema_at(connection, "log", 1)][-1] == ("k", "int32")
        assert [(one.name, one.arrow_type) for one in schema_at(connection, "log", 2)][-2:] == [
            ("k", "int64"),
            ("city", "string"),
        ]
        with pytest.raises(NotFound, match="no such version"):
            schema_at(connection, "log", 3)


def test_moved_and_touched_files_change_nothing(warehouse: Warehouse, root: Path) -> None:
    """Files of an older schema are no removal of a column, even if they are read again."""
    write(root, 1, day(1))
    write(root, 2, day(2, score=[1.5] * ROWS))
    add(warehouse, root)
    submit(warehouse, score=hr.float64("score").fill_null(0.0).log1p())
    work(warehouse)
    os.utime(root / "date=2026-03-01/p.parquet", ns=(1, 1))
    assert add(warehouse, root).changed == ("date=2026-03-01",)
    shutil.move(root, root.parent / "elsewhere")
    assert len(add(warehouse, root.parent / "elsewhere").changed) == 2
    assert work(warehouse) == []


def test_a_widened_table_of_nested_objects(warehouse: Warehouse, root: Path) -> None:
    """No model reads objects, but a log that has them may get a field."""
    pairs = pa.array([[("x", 1)]] * ROWS, pa.map_(pa.string(), pa.int32()))
    write(root, 1, day(1, payload=[{"a": 1}] * ROWS, pairs=pairs))
    write(root, 2, day(2, payload=[{"a": 1, "b": "x"}] * ROWS, pairs=None))
    add(warehouse, root)
    assert values(warehouse, "payload") == [{"a": 1, "b": None}] * 20 + [{"a": 1, "b": "x"}] * 20


def test_times_beyond_nanoseconds(warehouse: Warehouse, root: Path) -> None:
    far = pa.array([253_402_300_799] * 20, pa.timestamp("s"))
    near = pa.array(range(20), pa.timestamp("ns"))
    path = write(root, 1, day(1, until=far))
    add(warehouse, root)
    late = write(root, 2, day(2, until=near))
    with pytest.raises(SchemaDrift, match="must fit its finest unit") as caught:
        add(warehouse, root)
    assert caught.value.where == f"{path}, column until"
    pq.write_table(day(1, until=pa.array(range(20), pa.timestamp("s"))), path)
    late.unlink()
    late.parent.rmdir()
    add(warehouse, root)
    write(root, 2, day(2, until=near))
    assert [one.text for one in add(warehouse, root).schema_changes] == ["until from timestamp[ms] to timestamp[ns]"]
    path = write(root, 3, day(3, until=far))
    with pytest.raises(SchemaDrift, match="must fit its finest unit") as caught:
        add(warehouse, root)
    assert caught.value.where == f"{path}, column until"
    assert "2262" in caught.value.allowed


def test_a_submission_meanwhile_is_checked(warehouse: Warehouse, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is submitted while files are read is checked with their schema."""
    import warehouse.tables.register as register

    write(root, 1, day(1, price=pa.array([1.0] * ROWS, pa.float32())))
    add(warehouse, root)
    write(root, 2, day(2, price=[0.1] * ROWS))
    reading = register.read_fragments

    def read(*arguments: Any, **options: Any) -> Any:
        submit(warehouse, price=hr.float32("price").log1p())
        return reading(*arguments, **options)

    monkeypatch.setattr(register, "read_fragments", read)
    with pytest.raises(SchemaDrift, match="live model m declares"):
        add(warehouse, root)
    assert the_table(warehouse).version == 1


def test_absent_and_untyped_columns_are_equal(warehouse: Warehouse, root: Path) -> None:
    """Of equal rows that do not have a column, have it without a type, or of nulls alone, each component is computed once."""
    cities = {1: None, 2: pa.nulls(ROWS), 4: ["x"] * ROWS}
    for number, city in cities.items():
        write(root, number, day(1, city=city).set_column(0, "time", day(number)["time"]))
    add(warehouse, root)
    submit(warehouse, city=hr.text("city").length())
    assert work(warehouse) == [("date=2026-03-01", "city"), ("date=2026-03-01", "user"), ("date=2026-03-04", "city")]
    write(root, 3, day(1, city=pa.nulls(ROWS, pa.string())).set_column(0, "time", day(3)["time"]))
    add(warehouse, root)
    assert work(warehouse) == []


def test_submitting_is_checked_with_the_widened_types(warehouse: Warehouse, root: Path) -> None:
    write(root, 1, day(1, k=pa.array(range(20), pa.float32())))
    write(root, 2, day(2, k=pa.array([0.5] * 20)))
    add(warehouse, root)
    with pytest.raises(TypeMismatch, match="not stored as it is declared"):
        submit(warehouse, k=hr.float32("k").log1p())
    submit(warehouse, k=hr.float64("k").log1p())
