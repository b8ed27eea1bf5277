"""Garbage collection while writers are paused between their files and the transaction that references them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import select

from tests.warehouse.scenes import compute, events, model, work, write_log
from warehouse import (
    CompactionPolicy,
    Warehouse,
    WarehouseConfig,
    append_rows,
    collect_garbage,
    commit_memos,
    compact_memos,
    delete_rows,
    fix_columns,
    lease_tasks,
    overlay_columns,
    read_fragment,
    read_solution,
    register_table,
    submit_model,
    verify_warehouse,
)
from warehouse.catalog import schema
from warehouse.errors import MissingFile
from warehouse.tables.manifests import get_table

Write = Callable[[Warehouse, Path], Any]


def _overlay(warehouse: Warehouse, root: Path) -> None:
    for hour in range(2):
        table = pa.table({"clicked": [True] * 20})
        folder = root / f"mirror/date=2026-01-01/hour={hour:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / "part.parquet")
    overlay_columns(warehouse, "log", str(root / "mirror"))


def _fix(warehouse: Warehouse, root: Path) -> None:
    for hour in range(2):
        table = pa.table({"price": pa.array([1.5] * 20, pa.float32())})
        folder = root / f"mirror/date=2026-01-01/hour={hour:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / "part.parquet")
    fix_columns(warehouse, "log", str(root / "mirror"), why="test")


def _delete(warehouse: Warehouse, _: Path) -> None:
    delete_rows(warehouse, "log", where=[("clicked", "true")])


def _append(warehouse: Warehouse, root: Path) -> None:
    pq.write_table(events(9, seed=77), root / "late.parquet")
    append_rows(warehouse, "log", [str(root / "late.parquet")], partition="date=2026-01-01/hour=00")


CHANGES: list[Write] = [_overlay, _fix, _delete, _append]


@pytest.fixture
def warehouse(config: WarehouseConfig, tmp_path: Path) -> Iterator[Warehouse]:
    with Warehouse.open(config) as opened:
        register_table(opened, "log", str(write_log(tmp_path / "log", hours=2)))
        submit_model(opened, model())
        yield opened


def paused(
    config: WarehouseConfig, write: Callable[[Warehouse], Any], meanwhile: Callable[[], Any]
) -> list[BaseException]:
    """Run ``write`` on a thread with a connection of its own; before its first write transaction, ``meanwhile`` happens.

    Returns what the writer raised.
    """
    at_gate, gate, raised = threading.Event(), threading.Event(), list[BaseException]()

    def body() -> None:
        with Warehouse.open(config) as opened:
            run = opened.catalog.run

            def gated(*arguments: Any, **options: Any) -> Any:
                at_gate.set()
                gate.wait()
                return run(*arguments, **options)

            opened.catalog.run = gated  # type: ignore[method-assign]
            try:
                write(opened)
            except BaseException as error:
                raised.append(error)
            finally:
                at_gate.set()

    writer = threading.Thread(target=body)
    writer.start()
    at_gate.wait()
    try:
        meanwhile()
    finally:
        gate.set()
        writer.join()
    return raised


def collect_all(warehouse: Warehouse) -> Callable[[], object]:
    """Nothing is too young to be taken for a leftover."""
    return lambda: collect_garbage(warehouse, dry_run=False, leftover_secs=-1e6)


@pytest.mark.parametrize("change", CHANGES[:3])
def test_a_change_whose_file_was_collected_is_not_committed(
    warehouse: Warehouse, config: WarehouseConfig, tmp_path: Path, change: Write
) -> None:
    with warehouse.catalog.read() as connection:
        before = get_table(connection, "log").version
    (error,) = paused(config, lambda opened: change(opened, tmp_path), collect_all(warehouse))
    assert isinstance(error, MissingFile), error
    assert str(error.value).startswith("overlays/")
    with warehouse.catalog.read() as connection:
        assert get_table(connection, "log").version == before
    change(warehouse, tmp_path)
    with warehouse.catalog.read() as connection:
        assert get_table(connection, "log").version == before + 1, "made again, it is made"
    assert verify_warehouse(warehouse).findings == ()


def test_an_append_looks_for_its_files_too(warehouse: Warehouse, config: WarehouseConfig, tmp_path: Path) -> None:
    """Garbage collection leaves a table's folder alone, a person may not."""

    def remove() -> None:
        collect_all(warehouse)()
        (late,) = (tmp_path / "log").rglob("late-*.parquet")
        late.unlink()

    (error,) = paused(config, lambda opened: _append(opened, tmp_path), remove)
    assert isinstance(error, MissingFile), error
    _append(warehouse, tmp_path)
    work(warehouse)
    assert verify_warehouse(warehouse, recompute=6).findings == ()


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_is_committed_first_keeps_its_files(warehouse: Warehouse, tmp_path: Path, change: Write) -> None:
    change(warehouse, tmp_path)
    collect_all(warehouse)()
    assert verify_warehouse(warehouse).findings == ()


def test_a_memo_that_a_leased_task_wrote_is_not_collected(warehouse: Warehouse, config: WarehouseConfig) -> None:
    (task,) = lease_tasks(warehouse, "w", limit=1)
    written = compute(warehouse, task)
    answers: list[bool] = []
    assert (
        paused(config, lambda one: answers.append(commit_memos(one, [(task, written)])[0]), collect_all(warehouse))
        == []
    )
    assert answers == [True]
    assert verify_warehouse(warehouse).findings == ()


def test_a_memo_whose_lease_was_lost_meanwhile_is_not_committed(warehouse: Warehouse, config: WarehouseConfig) -> None:
    (task,) = lease_tasks(warehouse, "w", limit=1)
    written = compute(warehouse, task)
    answers: list[bool] = []

    def lose_and_collect() -> None:
        with warehouse.catalog.write() as connection:
            mine = schema.tasks.c.id == task.task_id
            connection.execute(schema.tasks.update().where(mine).values(lease_until=0.0))
        assert task.memo_key in {other.memo_key for other in lease_tasks(warehouse, "other", limit=4)}
        collect_all(warehouse)()

    assert paused(config, lambda one: answers.append(commit_memos(one, [(task, written)])[0]), lose_and_collect) == []
    assert answers == [False]
    assert not (Path(config.home) / written.file.path).exists()
    assert verify_warehouse(warehouse).findings == ()


def test_a_compaction_whose_file_was_collected_moves_nothing(warehouse: Warehouse, config: WarehouseConfig) -> None:
    work(warehouse)
    policy = CompactionPolicy(many_files=2)
    assert paused(config, lambda one: compact_memos(one, policy, dry_run=False), collect_all(warehouse)) == []
    assert verify_warehouse(warehouse).findings == ()
    solution = read_solution(warehouse, "ctr")
    assert all(read_fragment(warehouse.storage, solution, one, on_damage=_fail) for one in solution.fragments)
    with warehouse.catalog.read() as connection:
        paths = set(connection.execute(select(schema.memo_files.c.path)).scalars())
    assert all((Path(config.home) / path).exists() for path in paths)


def _fail(*damage: object) -> None:
    pytest.fail(repr(damage))
