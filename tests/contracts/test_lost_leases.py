"""Leases of lost workers on tasks that no live model reads expire like others, on each database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.warehouse.scenes import Clock, compute, events, model, states, work, write_log, write_partition
from warehouse import (
    Warehouse,
    WarehouseConfig,
    collect_garbage,
    commit_memos,
    heartbeat,
    lease_tasks,
    queue_missing,
    register_table,
    retire_model,
    submit_model,
    verify_warehouse,
)
from warehouse.queue.lost_leases import UNCOLLECTED_SECS

MAX_LOSSES = 3


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def warehouse(config: WarehouseConfig, tmp_path: Path, clock: Clock) -> Iterator[Warehouse]:
    with Warehouse.open(replace(config, max_losses=MAX_LOSSES), clock) as opened:
        register_table(opened, "log", str(write_log(tmp_path / "log", hours=2)))
        submit_model(opened, model(inputs=2))
        yield opened


def memo_files(warehouse: Warehouse) -> set[str]:
    home = Path(warehouse.config.home)
    return {str(path.relative_to(home)) for path in (home / "memos").rglob("*") if path.is_file()}


def retire(warehouse: Warehouse, _: Path) -> None:
    retire_model(warehouse, "ctr")


def submit_another_version(warehouse: Warehouse, _: Path) -> None:
    submit_model(warehouse, model(inputs=2, buckets=77))


def change_the_table(warehouse: Warehouse, root: Path) -> None:
    for hour in range(2):
        write_partition(root / "log", hour, events(25, seed=50 + hour))
    register_table(warehouse, "log", str(root / "log"))
    queue_missing(warehouse)


LEAVING = [retire, submit_another_version, change_the_table]


@pytest.mark.parametrize("leave", LEAVING)
def test_collecting_garbage_ends_them_and_deletes_their_files(
    warehouse: Warehouse, clock: Clock, tmp_path: Path, leave: Callable[[Warehouse, Path], None]
) -> None:
    tasks = lease_tasks(warehouse, "lost", limit=4)
    keys = {task.memo_key for task in tasks}
    written = [compute(warehouse, task) for task in tasks]
    leave(warehouse, tmp_path)
    assert verify_warehouse(warehouse).findings == (), "its worker may be alive"
    clock.advance(warehouse.config.lease_secs + 1)
    found = verify_warehouse(warehouse).findings
    assert [(one.kind, one.repaired) for one in found] == [("lease", False)] * 2, "one for each fragment"
    assert "lost" in found[0].where
    assert "gc --yes" in found[0].next_step
    paths = {one.file.path for one in written}
    planned = collect_garbage(warehouse)
    assert (planned.expired, {one.path for one in planned.garbage}) == (4, paths)
    assert memo_files(warehouse) == paths
    done = collect_garbage(warehouse, dry_run=False)
    assert (done.expired, done.garbage, memo_files(warehouse)) == (4, planned.garbage, set())
    assert states(warehouse, keys) == [("QUEUED", "PENDING", 1, False)] * 4
    assert verify_warehouse(warehouse).findings == ()
    assert heartbeat(warehouse, tasks) == ()
    assert not commit_memos(warehouse, [(tasks[0], written[0])])[0], "its file is gone"


@pytest.mark.parametrize("leave", LEAVING)
def test_the_next_lease_of_any_worker_ends_them(
    warehouse: Warehouse, clock: Clock, tmp_path: Path, leave: Callable[[Warehouse, Path], None]
) -> None:
    tasks = lease_tasks(warehouse, "lost", limit=4)
    keys = {task.memo_key for task in tasks}
    leave(warehouse, tmp_path)
    lease_tasks(warehouse, "early", limit=1)
    assert states(warehouse, keys) == [("LEASED", "PENDING", 0, True)] * 4, "they have not run out"
    clock.advance(warehouse.config.lease_secs + 1)
    assert {task.memo_key for task in lease_tasks(warehouse, "next")}.isdisjoint(keys)
    assert states(warehouse, keys) == [("QUEUED", "PENDING", 1, False)] * 4


def test_asked_for_again_they_are_computed(warehouse: Warehouse, clock: Clock) -> None:
    lease_tasks(warehouse, "lost", limit=3)
    retire_model(warehouse, "ctr")
    clock.advance(warehouse.config.lease_secs + 1)
    collect_garbage(warehouse, dry_run=False)
    submit_model(warehouse, model(inputs=2))
    assert work(warehouse) == 4
    assert {state for state, *_ in states(warehouse)} == {"DONE"}
    assert verify_warehouse(warehouse, recompute=4).findings == ()


def test_expired_leases_of_live_models_are_left_to_the_next_worker(warehouse: Warehouse, clock: Clock) -> None:
    task, *_ = lease_tasks(warehouse, "late", limit=4)
    written = compute(warehouse, task)
    clock.advance(warehouse.config.lease_secs + 1)
    assert collect_garbage(warehouse, dry_run=False).expired == 0
    assert verify_warehouse(warehouse).findings == ()
    assert commit_memos(warehouse, [(task, written)])[0], "no other worker took it"


def test_a_lease_that_expired_a_day_ago_is_reported_and_repaired(warehouse: Warehouse, clock: Clock) -> None:
    (task,) = lease_tasks(warehouse, "lost", limit=1)
    clock.advance(UNCOLLECTED_SECS + warehouse.config.lease_secs + 1)
    (found,) = verify_warehouse(warehouse).findings
    assert (found.kind, "headrace work" in found.next_step) == ("lease", True)
    assert verify_warehouse(warehouse, repair=True).wrong == 0
    assert states(warehouse, [task.memo_key]) == [("QUEUED", "PENDING", 1, False)]
    assert verify_warehouse(warehouse).findings == ()


def test_repair_leaves_a_lease_that_holds_again(warehouse: Warehouse, clock: Clock) -> None:
    tasks = lease_tasks(warehouse, "paused", limit=1)
    retire_model(warehouse, "ctr")
    clock.advance(warehouse.config.lease_secs + 1)
    heartbeat(warehouse, tasks)
    assert verify_warehouse(warehouse, repair=True).findings == ()
    assert heartbeat(warehouse, tasks) == tasks


def test_a_task_that_ends_too_many_workers_is_quarantined_all_the_same(warehouse: Warehouse, clock: Clock) -> None:
    for _ in range(MAX_LOSSES):
        submit_model(warehouse, model(inputs=2))
        lease_tasks(warehouse, "lost", limit=1)
        retire_model(warehouse, "ctr")
        clock.advance(warehouse.config.lease_secs + 1)
        assert collect_garbage(warehouse, dry_run=False).expired == 1
    assert [one[:2] for one in states(warehouse)].count(("FAILED", "FAILED")) == 1


def test_a_lease_from_before_the_clock_was_set_back_expires_too(warehouse: Warehouse, clock: Clock) -> None:
    lease_tasks(warehouse, "lost", limit=2)
    retire_model(warehouse, "ctr")
    clock.advance(-100 * warehouse.config.lease_secs)
    assert [one.kind for one in verify_warehouse(warehouse).findings] == ["lease"]
    assert collect_garbage(warehouse, dry_run=False).expired == 2
    assert verify_warehouse(warehouse).findings == ()
