"""A task has the memos of a fragment that are leased together, and is split where some of them change, on each database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, update

from tests.warehouse.scenes import (
    Clock,
    compute,
    events,
    evict_component,
    model,
    pretended,
    pretended_by,
    states,
    task_of,
    work,
    write_log,
    write_partition,
)
from warehouse import (
    Failure,
    LeasedTask,
    TaskQuery,
    Warehouse,
    WarehouseConfig,
    collect_garbage,
    commit_memos,
    drop_tasks,
    fail_tasks,
    heartbeat,
    lease_tasks,
    queue_missing,
    register_table,
    release_tasks,
    retire_model,
    retry_tasks,
    submit_model,
    verify_warehouse,
)
from warehouse.catalog import schema
from warehouse.changes.drop_table import drop_table
from warehouse.scheduling.task_states import TaskState

BROKEN = Failure("raised", "ValueError: no")


@pytest.fixture
def warehouse(config: WarehouseConfig, tmp_path: Path, clock: Clock) -> Iterator[Warehouse]:
    """Three inputs over two hours: ``query``, ``query`` with ``title``, and ``title``."""
    with Warehouse.open(config, clock) as opened:
        register_table(opened, "log", str(write_log(tmp_path / "log", hours=2)))
        submit_model(opened, model(inputs=3))
        yield opened


def members(warehouse: Warehouse) -> list[tuple[str, int]]:
    """The state of each task with the number of its memos, sorted."""
    of: defaultdict[int, int] = defaultdict(int)
    with warehouse.catalog.read() as connection:
        rows = {row.id: row for row in connection.execute(select(schema.tasks))}
        for task in connection.execute(select(schema.memos.c.task).where(schema.memos.c.task.is_not(None))).scalars():
            of[task] += 1
    assert of.keys() == rows.keys()
    return sorted((rows[task].state, count) for task, count in of.items())


def lease(warehouse: Warehouse, worker: str = "w", limit: int = 100) -> tuple[LeasedTask, ...]:
    return lease_tasks(warehouse, worker, limit=limit)


def commit(warehouse: Warehouse, *tasks: LeasedTask) -> tuple[bool, ...]:
    return commit_memos(warehouse, [(task, pretended_by(task)) for task in tasks])


def test_the_memos_of_a_fragment_are_one_task(warehouse: Warehouse) -> None:
    assert members(warehouse) == [("QUEUED", 3)] * 2
    submit_model(warehouse, model("other", "ads", inputs=5))
    assert members(warehouse) == [("QUEUED", 2)] * 2 + [("QUEUED", 3)] * 2
    tasks = lease(warehouse)
    assert members(warehouse) == [("LEASED", 2)] * 2 + [("LEASED", 3)] * 2
    assert len({task.task_id for task in tasks}) == 4
    assert commit(warehouse, *tasks) == (True,) * 10
    assert members(warehouse) == []
    assert verify_warehouse(warehouse).overlays == 0


def test_one_component_fails_while_the_others_are_committed(warehouse: Warehouse) -> None:
    first, second, third, *_ = lease(warehouse)
    assert commit(warehouse, first) == (True,)
    assert fail_tasks(warehouse, [(second, BROKEN)]) == (TaskState.QUEUED,)
    assert members(warehouse) == [("LEASED", 1), ("LEASED", 3), ("QUEUED", 1)]
    assert heartbeat(warehouse, [first, second, third]) == (third,)
    assert fail_tasks(warehouse, [(second, BROKEN)]) == (None,), "it was reported"
    assert commit(warehouse, second) == (False,)
    assert commit(warehouse, third) == (True,)
    assert members(warehouse) == [("LEASED", 3), ("QUEUED", 1)]
    with warehouse.catalog.read() as connection:
        assert connection.execute(select(schema.failures.c.task)).scalars().all() == [task_of(warehouse, second)]


def test_failures_of_several_are_tasks_of_their_own(warehouse: Warehouse) -> None:
    tasks = lease(warehouse, limit=3)
    failed = [(replace(task, attempt=3), BROKEN) for task in tasks]
    assert fail_tasks(warehouse, failed) == (TaskState.FAILED,) * 3
    assert members(warehouse) == [("FAILED", 1)] * 3 + [("QUEUED", 3)]
    numbers = {task_of(warehouse, task) for task in tasks}
    assert len(numbers) == 3
    assert retry_tasks(warehouse, TaskQuery(ids=(max(filter(None, numbers)),))).tasks == 1
    assert members(warehouse) == [("FAILED", 1)] * 2 + [("QUEUED", 1), ("QUEUED", 3)]


def test_a_part_is_released(warehouse: Warehouse) -> None:
    first, *others = lease(warehouse)
    assert release_tasks(warehouse, [first]) == 1
    assert members(warehouse) == [("LEASED", 2), ("LEASED", 3), ("QUEUED", 1)]
    assert release_tasks(warehouse, [first]) == 0
    (again,) = lease(warehouse, "another")
    assert (again.memo_key, again.fence, again.attempt) == (first.memo_key, first.fence + 1, 1)
    assert commit(warehouse, first, *others) == (False, *[True] * 5)
    assert commit(warehouse, again) == (True,)


def test_a_part_is_leased(warehouse: Warehouse) -> None:
    mine, theirs = lease(warehouse, "one", limit=2), lease(warehouse, "two", limit=2)
    assert members(warehouse) == [("LEASED", 1), ("LEASED", 1), ("LEASED", 2), ("QUEUED", 2)]
    assert {task.memo_key for task in mine}.isdisjoint(task.memo_key for task in theirs)
    assert heartbeat(warehouse, [*mine, *theirs]) == (*mine, *theirs)
    assert commit(warehouse, *mine, *theirs) == (True,) * 4


def test_a_late_worker_keeps_the_part_that_no_other_took(warehouse: Warehouse, clock: Clock) -> None:
    late = lease(warehouse, "late", limit=3)
    clock.advance(1000)
    taken = {task.memo_key: task for task in lease(warehouse, "quick", limit=3)}
    assert taken.keys() < {task.memo_key for task in late}
    assert {task.losses for task in taken.values()} == {1}
    held = [task.memo_key not in taken for task in late]
    assert heartbeat(warehouse, late) == tuple(task for task, is_held in zip(late, held, strict=True) if is_held)
    assert list(commit(warehouse, *late)) == held
    assert commit(warehouse, *taken.values()) == (True, True)
    assert commit(warehouse, *late) == tuple(held), "a repeated commit of the same lease, and late ones"


def test_a_batch_after_losses_is_a_part(warehouse: Warehouse, clock: Clock) -> None:
    """A component that ends its workers is alone after some losses, and no other is quarantined with it."""
    key = min(task.memo_key for task in lease(warehouse))
    for _ in range(200):
        clock.advance(1000)
        tasks = lease(warehouse)
        if not tasks:
            break
        if key not in {task.memo_key for task in tasks}:
            commit(warehouse, *tasks)
    assert members(warehouse) == [("FAILED", 1)]
    assert [memo for _, memo, *_ in states(warehouse)].count("READY") == 5


def test_a_dropped_memo_is_in_a_task_of_its_own(warehouse: Warehouse, clock: Clock) -> None:
    lease(warehouse)
    clock.advance(1000)
    dropped, *others = lease(warehouse)
    query = TaskQuery(component=dropped.fingerprint, partition=dropped.partition)
    assert drop_tasks(warehouse, query, why="it never ends").tasks == 1
    assert members(warehouse) == [("DROPPED", 1), ("LEASED", 2), ("LEASED", 3)]
    assert heartbeat(warehouse, [dropped, *others]) == tuple(others)
    assert fail_tasks(warehouse, [(dropped, BROKEN)]) == (None,)
    assert commit(warehouse, dropped, *others) == (False, *[True] * 5)
    assert retry_tasks(warehouse, TaskQuery(states=(TaskState.DROPPED,))).tasks == 1
    assert commit(warehouse, dropped) == (False,), "its lease is over"
    assert commit(warehouse, *lease(warehouse)) == (True,)


def test_a_lease_stays_valid_where_a_part_moves_to_an_equal_fragment(
    warehouse: Warehouse, tmp_path: Path, clock: Clock
) -> None:
    """The file is written again with other titles: memos of the query are of the new fragment, the others of the old one."""
    tasks = lease(warehouse, limit=3)
    numbers = {task_of(warehouse, task) for task in tasks}
    old = events(20, seed=0)
    titles = [f"new {number}" for number in range(20)]
    write_partition(tmp_path / "log", 0, old.set_column(old.schema.get_field_index("title"), "title", [titles]))
    register_table(warehouse, "log", str(tmp_path / "log"))
    assert queue_missing(warehouse) == 2
    assert len({task_of(warehouse, task) for task in tasks} | numbers) == 2, "it was split"
    assert verify_warehouse(warehouse).findings == ()
    clock.advance(50)
    assert heartbeat(warehouse, tasks) == tasks
    clock.advance(50)
    assert {task.memo_key for task in lease(warehouse, "other")}.isdisjoint(task.memo_key for task in tasks)
    assert commit(warehouse, *tasks) == (True,) * 3


def test_what_only_a_retired_model_waits_for_expires_alone(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model("small", "ads", inputs=1))
    tasks = lease(warehouse)
    for task in tasks:
        compute(warehouse, task)
    retire_model(warehouse, "ctr")
    clock.advance(1000)
    assert verify_warehouse(warehouse).findings == (), "the model that is left waits for one of each"
    planned = collect_garbage(warehouse)
    assert (planned.expired, planned.garbage) == (4, ()), "the lease of the others may be used for a commit"
    assert collect_garbage(warehouse, dry_run=False).expired == 4
    assert members(warehouse) == [("LEASED", 1)] * 2 + [("QUEUED", 2)] * 2
    again = lease(warehouse, "other")
    assert len(again) == 2
    assert {task.losses for task in again} == {1}
    assert members(warehouse) == [("LEASED", 1)] * 2 + [("QUEUED", 2)] * 2
    assert not any(commit(warehouse, *tasks))


def test_a_memo_that_is_queued_again_has_a_new_task(warehouse: Warehouse) -> None:
    tasks = lease(warehouse)
    assert all(commit(warehouse, *tasks))
    evict_component(warehouse, tasks[0].fingerprint)
    assert submit_model(warehouse, model(inputs=3)).queued == 2
    assert members(warehouse) == [("QUEUED", 1)] * 2
    assert min(filter(None, (task_of(warehouse, task) for task in tasks))) > max(task.task_id for task in tasks)
    assert not any(commit(warehouse, *(task for task in tasks if task.fingerprint == tasks[0].fingerprint)))
    assert all(commit(warehouse, *lease(warehouse)))


def test_a_dropped_table_leaves_its_leases_to_expire(warehouse: Warehouse, clock: Clock) -> None:
    tasks = lease(warehouse, limit=3)
    assert drop_table(warehouse, "log", force=True).running_tasks == 3
    clock.advance(1000)
    assert collect_garbage(warehouse, dry_run=False).expired == 3
    assert not any(commit(warehouse, *tasks))


def faults(warehouse: Warehouse) -> list[str]:
    return [one.what for one in verify_warehouse(warehouse).findings if one.kind == "task"]


def broken(warehouse: Warehouse, **values: Any) -> None:
    """Change the first task."""
    with warehouse.catalog.write() as connection:
        connection.execute(update(schema.tasks).where(schema.tasks.c.id == first(warehouse)).values(**values))


def first(warehouse: Warehouse) -> int:
    with warehouse.catalog.read() as connection:
        return int(connection.execute(select(schema.tasks.c.id).order_by(schema.tasks.c.id).limit(1)).scalar_one())


def another_fragment(warehouse: Warehouse) -> None:
    with warehouse.catalog.read() as connection:
        last = connection.execute(select(schema.tasks).order_by(schema.tasks.c.id.desc()).limit(1)).one()
    broken(warehouse, fragment=last.fragment, partition=last.partition)


def no_memos(warehouse: Warehouse) -> None:
    task = first(warehouse)
    with warehouse.catalog.write() as connection:
        mine = connection.execute(select(schema.tasks).where(schema.tasks.c.id == task)).mappings().one()
        connection.execute(insert(schema.tasks).values(**{**mine, "id": task + 100}))


FAULTS = {
    "3 of its memos are over another fragment": another_fragment,
    "3 of its memos have another state": lambda warehouse: broken(warehouse, state="DROPPED"),
    "it has no memos": no_memos,
    "its fragment belongs to another table or partition": lambda warehouse: broken(warehouse, partition="else"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_contradictions_are_found_and_repaired(warehouse: Warehouse, fault: str) -> None:
    assert faults(warehouse) == []
    FAULTS[fault](warehouse)
    assert faults(warehouse) == [fault]
    assert verify_warehouse(warehouse, repair=True).wrong == 0
    assert verify_warehouse(warehouse).findings == ()
    assert members(warehouse) == [("QUEUED", 3)] * 2
    assert work(warehouse) == 6
    assert verify_warehouse(warehouse, recompute=6).findings == ()


def test_deleted_memos_leave_no_task(warehouse: Warehouse, tmp_path: Path) -> None:
    for hour in range(2):
        write_partition(tmp_path / "log", hour, events(25, seed=50 + hour))
    register_table(warehouse, "log", str(tmp_path / "log"))
    assert queue_missing(warehouse) == 6
    assert members(warehouse) == [("QUEUED", 3)] * 2
    with warehouse.catalog.write() as connection:
        assert connection.execute(delete(schema.awaited_contents)).rowcount == 0


def test_a_commit_in_another_file_is_another_commit(warehouse: Warehouse) -> None:
    task, *_ = lease(warehouse, limit=1)
    assert commit_memos(warehouse, [(task, compute(warehouse, task))]) == (True,)
    assert commit_memos(warehouse, [(task, pretended("memos/x"))]) == (False,)
    assert commit_memos(warehouse, [(task, pretended_by(replace(task, lease="0" * 32)))]) == (False,)
