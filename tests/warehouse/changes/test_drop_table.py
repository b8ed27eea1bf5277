"""Dropping a table: what is removed, what stays, and what prevents it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.warehouse.scenes import compute, events, model, work, write_log, write_partition
from transforms.errors import Busy
from warehouse import (
    Warehouse,
    append_rows,
    collect_garbage,
    commit_memos,
    delete_rows,
    lease_tasks,
    list_tables,
    overlay_columns,
    pinned_solution,
    read_fragment,
    read_solution,
    register_table,
    retire_model,
    submit_model,
    table_history,
    verify_warehouse,
)
from warehouse.changes.drop_table import drop_table, plan_drop
from warehouse.errors import UnknownTable


@pytest.fixture
def root(warehouse: Warehouse, tmp_path: Path) -> Path:
    """A registered table that was changed in every way, and a model over it that is computed."""
    rows = [events(20, seed=hour, id=pa.array(range(20 * hour, 20 * hour + 20))) for hour in range(3)]
    for hour, table in enumerate(rows):
        write_partition(tmp_path / "log", hour, table)
    register_table(warehouse, "log", str(tmp_path / "log"))
    submit_model(warehouse, model())
    pq.write_table(pa.table({"id": [3, 4], "price": pa.array([1.0, 2.0], pa.float32())}), tmp_path / "values.parquet")
    overlay_columns(warehouse, "log", str(tmp_path / "values.parquet"), on=["id"])
    delete_rows(warehouse, "log", where=[("id", "7")])
    pq.write_table(events(5, seed=9, id=pa.array(range(100, 105))), tmp_path / "late.parquet")
    append_rows(warehouse, "log", [str(tmp_path / "late.parquet")], partition="date=2026-01-01/hour=01")
    submit_model(warehouse, model())
    assert work(warehouse) == 8
    return tmp_path / "log"


def test_a_table_in_use_is_refused_and_nothing_changes(warehouse: Warehouse, root: Path) -> None:
    planned = plan_drop(warehouse, "log")
    assert (planned.models, planned.memos, planned.rows, planned.partitions, planned.done) == (
        ("ctr",),
        8,
        65,
        3,
        False,
    )
    with pytest.raises(Busy, match="must not be in use") as caught:
        drop_table(warehouse, "log")
    assert caught.value.value == "live model ctr"
    assert "--force" in caught.value.next_step
    assert plan_drop(warehouse, "log") == planned
    retire_model(warehouse, "ctr")
    assert drop_table(warehouse, "log").done


def test_a_dropped_table_is_gone_with_its_memos_and_its_files_stay(warehouse: Warehouse, root: Path) -> None:
    files = sorted(path.read_bytes() for path in root.rglob("*.parquet"))
    assert drop_table(warehouse, "log", force=True, why="a trial").models == ("ctr",)
    assert list_tables(warehouse) == ()
    with pytest.raises(UnknownTable):
        plan_drop(warehouse, "log")
    with pytest.raises(UnknownTable):
        submit_model(warehouse, model())
    collected = collect_garbage(warehouse, dry_run=False, leftover_secs=-1e9)
    assert set(collected.by_kind()) == {"unreferenced memos", "overlays"}
    assert verify_warehouse(warehouse).findings == ()
    assert sorted(path.read_bytes() for path in root.rglob("*.parquet")) == files


def test_a_reused_name_continues_its_history(warehouse: Warehouse, root: Path) -> None:
    drop_table(warehouse, "log", force=True)
    found = register_table(warehouse, "log", str(root))
    assert (found.table.version, found.rows, len(found.added)) == (6, 65, 3)
    with warehouse.catalog.read() as connection:
        kinds = [one.kind for one in table_history(connection, "log")]
    assert kinds == ["register", "overlay", "delete", "append", "drop", "register"]
    assert submit_model(warehouse, model()).hits == 0
    assert work(warehouse) == 8
    solution = read_solution(warehouse, "ctr")
    assert sum(read_fragment(warehouse.storage, solution, one).num_rows for one in solution.fragments) == 65
    assert verify_warehouse(warehouse).findings == ()


def test_another_log_reuses_the_name(warehouse: Warehouse, root: Path, tmp_path: Path) -> None:
    drop_table(warehouse, "log", force=True)
    write_partition(tmp_path / "other", 5, pa.table({"a": [1]}))
    found = register_table(warehouse, "log", str(tmp_path / "other"))
    assert [column.name for column in found.table.columns] == ["a"]


def test_memos_of_data_that_another_table_holds_stay(warehouse: Warehouse, tmp_path: Path) -> None:
    register_table(warehouse, "log", str(write_log(tmp_path / "log")))
    submit_model(warehouse, model())
    work(warehouse)
    register_table(warehouse, "copy", str(write_log(tmp_path / "copy", hours=2)))
    planned = drop_table(warehouse, "log", force=True)
    assert (planned.memos, planned.shared_memos) == (2, 4)
    again = submit_model(warehouse, model("second"), table="copy")
    assert (again.hits, again.queued) == (4, 0)
    assert verify_warehouse(warehouse).findings == ()


def test_memos_stay_of_a_table_that_differs_in_an_unread_column(warehouse: Warehouse, tmp_path: Path) -> None:
    for name in ("log", "other"):
        for hour in range(2):
            clicked = pa.array([name == "log"] * 20)
            write_partition(tmp_path / name, hour, events(20, seed=hour, clicked=clicked))
        register_table(warehouse, name, str(tmp_path / name))
        submit_model(warehouse, model(name), table=name)
        work(warehouse)
    assert plan_drop(warehouse, "log").shared_memos == 4
    drop_table(warehouse, "log", force=True)
    assert read_solution(warehouse, "other").count("load") == 4
    assert verify_warehouse(warehouse, recompute=4).recomputed == 4


def test_running_tasks_and_readers_prevent_a_drop(warehouse: Warehouse, tmp_path: Path) -> None:
    register_table(warehouse, "log", str(write_log(tmp_path / "log")))
    submit_model(warehouse, model())
    lease_tasks(warehouse, "w", limit=2)
    retire_model(warehouse, "ctr")
    with pytest.raises(Busy) as caught:
        drop_table(warehouse, "log")
    assert caught.value.value == "running tasks: 2"
    submit_model(warehouse, model())
    with pinned_solution(warehouse, "ctr", holder="train ctr"):
        assert plan_drop(warehouse, "log").readers == ("train ctr",)


def test_a_worker_that_ends_after_the_drop_does_no_harm(warehouse: Warehouse, tmp_path: Path) -> None:
    register_table(warehouse, "log", str(write_log(tmp_path / "log")))
    submit_model(warehouse, model())
    tasks = lease_tasks(warehouse, "w", limit=2)
    drop_table(warehouse, "log", force=True)
    for task in tasks:
        commit_memos(warehouse, [(task, compute(warehouse, task))])
    assert verify_warehouse(warehouse).findings == ()
    assert lease_tasks(warehouse, "w", limit=10) == ()
