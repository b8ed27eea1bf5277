"""The quarantine, on each database: listed, shown, retried and dropped tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.warehouse.scenes import Clock, events, model, pretended, work, write_log
from transforms.errors import DataError, InputError
from warehouse import (
    Failure,
    LeasedTask,
    TaskQuery,
    TaskRow,
    Warehouse,
    WarehouseConfig,
    commit_memos,
    drop_tasks,
    explain_model,
    fail_tasks,
    get_task,
    heartbeat,
    lease_tasks,
    list_clients,
    quarantine_groups,
    quarantine_tasks,
    queue_depths,
    queue_missing,
    read_fragment,
    read_solution,
    register_table,
    release_tasks,
    retry_tasks,
    set_client,
    status,
    submit_model,
    task_sample,
)
from warehouse.errors import (
    IllegalTransition,
    UnknownClient,
    UnknownComponent,
    UnknownModel,
    UnknownTable,
    UnknownTask,
)
from warehouse.maintenance.compact_table import compact_table
from warehouse.queue.failures import encoded_sample
from warehouse.scheduling.task_states import TaskState

ROWS = pa.table({"query": ["red h0", None], "price": pa.array([2.5, 4.0], pa.float32())})
BROKEN = Failure("raised", "ValueError: cannot read 'red h0'", "hash_buckets", "hash_buckets(unigrams(query))", (3, 5),
                 encoded_sample(ROWS))  # fmt: skip
HUGE = Failure("memory", "needed more than 2.0 GB", "unigrams", "unigrams(title)")
DROPPED = TaskQuery(states=(TaskState.DROPPED,))


@pytest.fixture
def warehouse(config: WarehouseConfig, tmp_path: Path, clock: Clock) -> Iterator[Warehouse]:
    """Three inputs over three hours, for two models of two clients; nothing is computed yet."""
    with Warehouse.open(replace(config, retry_backoff_secs=100.0), clock) as opened:
        register_table(opened, "log", str(write_log(tmp_path / "log")))
        submit_model(opened, model("one", "ads", priority=2, inputs=2))
        submit_model(opened, model("two", "search", priority=1, inputs=3))
        yield opened


def fail(
    warehouse: Warehouse, clock: Clock, failure: Failure, fingerprint: str, hours: int = 3, times: int = 3
) -> None:
    """Let the component's tasks fail ``times`` times, over the first hours; the others are given back untouched."""
    for _ in range(times):
        tasks = lease(warehouse)
        mine = [task for task in tasks if task.fingerprint == fingerprint and int(task.partition[-2:]) < hours]
        for task in mine:
            fail_tasks(warehouse, [(task, failure)], worker="w7", draw=lambda: 0.5)
        release_tasks(warehouse, [task for task in tasks if task not in mine])
        clock.advance(400)


def lease(warehouse: Warehouse) -> tuple[LeasedTask, ...]:
    return lease_tasks(warehouse, "w7", limit=100)


def component(warehouse: Warehouse, position: int) -> str:
    return list(model(inputs=3).inputs.values())[position].fingerprint


def each(warehouse: Warehouse, **conditions: object) -> tuple[TaskRow, ...]:
    return quarantine_tasks(warehouse, TaskQuery(**conditions))  # type: ignore[arg-type]


def test_equal_failures_are_one_group(warehouse: Warehouse, clock: Clock) -> None:
    first, second = component(warehouse, 0), component(warehouse, 2)
    assert quarantine_groups(warehouse) == ()
    fail(warehouse, clock, BROKEN, first)
    fail(warehouse, clock, HUGE, second, hours=2, times=1)
    broken, huge = quarantine_groups(warehouse)
    assert (broken.fingerprint, broken.kind, broken.operator, broken.exception) == (
        first, "raised", "hash_buckets", "ValueError"
    )  # fmt: skip
    assert (broken.tasks, broken.states, broken.tables, broken.partitions) == (3, {TaskState.FAILED: 3}, ("log",), 3)
    assert broken.error == BROKEN.error
    assert [(one.model, one.client, one.priority) for one in broken.models] == [("one", "ads", 2), ("two", "search", 1)]
    assert (huge.tasks, huge.exception, huge.kind) == (2, "", "memory")
    assert [one.model for one in huge.models] == ["two"]
    assert huge.states == {TaskState.QUEUED: 2}, "another attempt waits"
    assert quarantine_groups(warehouse, limit=1) == (broken,)
    assert quarantine_groups(warehouse, limit=9, offset=1) == (huge,)
    example = get_task(warehouse, str(huge.example))
    assert example.failed_at == huge.failed_at


def test_the_conditions(warehouse: Warehouse, clock: Clock) -> None:
    first, second = component(warehouse, 0), component(warehouse, 2)
    fail(warehouse, clock, BROKEN, first)
    fail(warehouse, clock, HUGE, second, hours=2, times=1)
    everything = each(warehouse)
    assert len(everything) == 5
    assert {row.task_id for row in each(warehouse, states=(TaskState.QUEUED,))} == {
        row.task_id for row in each(warehouse, kind="memory")
    }
    for conditions, count in [
        ({"client": "ads"}, 3), ({"client": "search"}, 5), ({"model": "one"}, 3), ({"model": "two"}, 5),
        ({"table": "log"}, 5), ({"partition": "date=2026-01-01/hour=02"}, 1), ({"component": second[:9].upper()}, 2),
        ({"operator": "hash_buckets"}, 3), ({"operator": "length"}, 0), ({"kind": "stalled"}, 0),
        ({"exception": "ValueError"}, 3), ({"exception": "KeyError"}, 0), ({"states": (TaskState.FAILED,)}, 3),
        ({"states": (TaskState.FAILED, TaskState.QUEUED)}, 5), ({"states": (TaskState.DROPPED,)}, 0),
        ({"ids": tuple(row.task_id for row in everything[:2])}, 2), ({"model": "one", "kind": "memory"}, 0),
    ]:  # fmt: skip
        assert len(each(warehouse, **conditions)) == count, conditions
        assert sum(group.tasks for group in quarantine_groups(warehouse, TaskQuery(**conditions))) == count
    assert quarantine_tasks(warehouse, limit=2, offset=1) == everything[1:3]


@pytest.mark.parametrize(
    ("conditions", "error", "part"),
    [
        ({"client": "adds"}, UnknownClient, "ads"),
        ({"model": "oen"}, UnknownModel, "one"),
        ({"table": "lag"}, UnknownTable, "log"),
        ({"partition": "date=2026-01-01/hour=77"}, UnknownTask, ""),
        ({"component": "0000000000"}, UnknownComponent, ""),
        ({"operator": "hash_bucket"}, InputError, ""),
        ({"ids": (1, 10**6)}, UnknownTask, ""),
    ],
)
def test_names_that_mean_nothing(warehouse: Warehouse, conditions: dict[str, object], error: type, part: str) -> None:
    with pytest.raises(error) as caught:
        each(warehouse, **conditions)
    assert part in caught.value.allowed
    with pytest.raises(error):
        drop_tasks(warehouse, TaskQuery(**conditions), why="x")  # type: ignore[arg-type]


def test_one_task_with_everything(warehouse: Warehouse, clock: Clock) -> None:
    first = component(warehouse, 0)
    fail(warehouse, clock, BROKEN, first, hours=1, times=1)
    (row,) = each(warehouse)
    task = get_task(warehouse, str(row.task_id))
    assert (task.fingerprint, task.state, task.table, task.partition) == (
        first, TaskState.QUEUED, "log", "date=2026-01-01/hour=00"
    )  # fmt: skip
    assert (task.failure, task.failed_worker, task.attempts, task.losses) == (BROKEN, "w7", 1, 0)
    assert task.failed_at == clock.now - 400
    assert task.next_at is None, "75 s of backoff are over"
    assert task.fragment.path.endswith("hour=00/part.parquet")
    assert task.columns == ("query",)
    assert task.alike == 0
    assert task_sample(warehouse, task).equals(ROWS)
    assert get_task(warehouse, first[:10], partition=task.partition) == task
    assert get_task(warehouse, first.upper()) == task


def test_a_sample_too_large_to_keep_is_read_again(warehouse: Warehouse, clock: Clock) -> None:
    first = component(warehouse, 0)
    fail(warehouse, clock, replace(BROKEN, sample="", events=(1, 4)), first, hours=1)
    task = get_task(warehouse, first)
    rows = task_sample(warehouse, task)
    assert rows.column_names == ["query"]
    assert rows["query"].to_pylist() == [events(20)["query"][at].as_py() for at in (1, 4)]


def test_without_events_there_is_no_sample(warehouse: Warehouse, clock: Clock) -> None:
    fail(warehouse, clock, HUGE, component(warehouse, 2), hours=1)
    with pytest.raises(UnknownTask) as caught:
        task_sample(warehouse, get_task(warehouse, component(warehouse, 2)))
    assert caught.value.value == HUGE.error


def test_several_tasks_are_candidates(warehouse: Warehouse, clock: Clock) -> None:
    first = component(warehouse, 0)
    fail(warehouse, clock, BROKEN, first)
    with pytest.raises(InputError) as caught:
        get_task(warehouse, first[:8])
    for row in each(warehouse):
        assert f"{row.task_id} ({first[:12]} over log {row.partition}, failed)" in caught.value.allowed
    with pytest.raises(UnknownTask):
        get_task(warehouse, component(warehouse, 2)[:12])
    with pytest.raises(UnknownTask):
        get_task(warehouse, "99999999999999999999999")
    with pytest.raises(InputError):
        get_task(warehouse, "no digits")


def test_retried_tasks_have_all_their_attempts_at_once(warehouse: Warehouse, clock: Clock) -> None:
    first, second = component(warehouse, 0), component(warehouse, 2)
    fail(warehouse, clock, BROKEN, first)
    fail(warehouse, clock, HUGE, second, hours=1, times=1)
    planned = retry_tasks(warehouse, TaskQuery(), dry_run=True)
    assert (planned.done, planned.tasks, len(each(warehouse))) == (False, 4, 4)
    done = retry_tasks(warehouse, TaskQuery(component=first))
    assert (done.done, done.tasks, done.groups[0].tasks) == (True, 3, 3)
    assert [row.fingerprint for row in each(warehouse)] == [second]
    assert {
        row.reason for row in explain_model(warehouse, "one") if row.state == "PENDING" and "ValueError" in row.reason
    }
    again = [task for task in lease(warehouse) if task.fingerprint == first]
    assert [(task.attempt, task.losses) for task in again] == [(1, 0)] * 3


def test_a_retry_ends_a_backoff(warehouse: Warehouse, clock: Clock) -> None:
    first = component(warehouse, 0)
    for task in lease(warehouse):
        if task.fingerprint == first:
            fail_tasks(warehouse, [(task, BROKEN)], draw=lambda: 0.5)
    (row, *_) = each(warehouse)
    assert row.next_at == clock.now + 75
    assert not [task for task in lease(warehouse) if task.fingerprint == first]
    assert retry_tasks(warehouse, TaskQuery(ids=(row.task_id,))).tasks == 1
    assert [task.task_id for task in lease(warehouse) if task.fingerprint == first] == [row.task_id]


def test_what_a_worker_has_is_not_retried(warehouse: Warehouse, clock: Clock) -> None:
    first = component(warehouse, 0)
    fail(warehouse, clock, BROKEN, first, hours=1, times=1)
    held = [task for task in lease(warehouse) if task.fingerprint == first and task.partition.endswith("00")]
    assert [row.state for row in each(warehouse)] == [TaskState.LEASED]
    report = retry_tasks(warehouse, TaskQuery())
    assert (report.tasks, report.left_leased) == (0, 1)
    with pytest.raises(IllegalTransition) as caught:
        retry_tasks(warehouse, TaskQuery(ids=(held[0].task_id,)))
    assert caught.value.value == f"{held[0].task_id} (leased)"
    assert commit_memos(warehouse, [(held[0], pretended())])[0], "and nothing happened to it"


@pytest.mark.medium
def test_a_dropped_task_stays_dropped_until_a_retry(warehouse: Warehouse, clock: Clock) -> None:
    first = component(warehouse, 0)
    fail(warehouse, clock, BROKEN, first)
    assert drop_tasks(warehouse, TaskQuery(), why="Latin-1", dry_run=True).tasks == 3
    assert len(each(warehouse)) == 3, "that was a dry run"
    done = drop_tasks(warehouse, TaskQuery(component=first[:12]), why="Latin-1", who="ann")
    assert (done.done, done.tasks) == (True, 3)
    assert each(warehouse) == ()
    assert {depth.client: depth.failed for depth in queue_depths(warehouse)} == {"ads": 0, "search": 0}
    # Neither new data nor a submission, of this model or of another one, queues it again.
    assert queue_missing(warehouse) == 0
    again = submit_model(warehouse, model("one", "ads", priority=2, inputs=2))
    other = submit_model(warehouse, model("three", "ads", inputs=1))
    assert (again.queued, again.dropped, again.failed) == (0, 3, 0)
    assert (other.queued, other.shared, other.dropped, other.misses) == (0, 0, 3, 3)
    clock.advance(1000)
    assert work(warehouse) == 6
    assert {task.fingerprint for task in lease(warehouse)} == set()
    reasons = {one.reason for one in explain_model(warehouse, "one") if one.fingerprint == first}
    assert reasons == {"dropped on 2025-10-09 by ann: Latin-1; headrace tasks retry queues it again"}
    assert {row.fingerprint for row in quarantine_tasks(warehouse, DROPPED)} == {first}
    task = get_task(warehouse, first, partition="date=2026-01-01/hour=01")
    assert (task.state, task.failure, task.dropped) == (
        TaskState.DROPPED,
        BROKEN,
        (clock.now - 1000, "by ann: Latin-1"),
    )
    assert {one.model for one in task.models} == {"one", "two", "three"}, "who would get it"
    # It is computed on the fly.
    solution = read_solution(warehouse, "three")
    assert solution.count("compute") == 3
    assert read_fragment(warehouse.storage, solution, next(iter(solution.fragments))).num_rows == 20
    # A retry by condition leaves it, and says so.
    assert (found := retry_tasks(warehouse, TaskQuery())).tasks == 0
    assert found.left_dropped == 3
    assert retry_tasks(warehouse, DROPPED).tasks == 3
    assert {one.reason_code for one in explain_model(warehouse, "one") if one.fingerprint == first} == {"pending"}
    assert work(warehouse) == 3
    assert read_solution(warehouse, "three").count("load") == 3


def test_the_holder_of_a_dropped_task_cannot_commit(warehouse: Warehouse, clock: Clock) -> None:
    (held,) = lease_tasks(warehouse, "w7", limit=1)
    assert drop_tasks(warehouse, TaskQuery(ids=(held.task_id,)), why="it never ends").tasks == 1
    assert heartbeat(warehouse, [held]) == ()
    assert commit_memos(warehouse, [(held, pretended())])[0] is False
    assert fail_tasks(warehouse, [(held, BROKEN)])[0] is None
    assert retry_tasks(warehouse, TaskQuery(ids=(held.task_id,))).tasks == 1
    assert commit_memos(warehouse, [(held, pretended())])[0] is False, "its lease is over"
    (again,) = [task for task in lease(warehouse) if task.task_id == held.task_id]
    assert commit_memos(warehouse, [(held, pretended())])[0] is False, "somebody else has it"
    assert commit_memos(warehouse, [(again, pretended())])[0] is True
    for change in (retry_tasks(warehouse, TaskQuery(), dry_run=True), drop_tasks(warehouse, TaskQuery(), why="x")):
        assert change.tasks == 0
    with pytest.raises(UnknownTask, match="done"):
        drop_tasks(warehouse, TaskQuery(ids=(held.task_id,)), why="x")


def test_tasks_without_a_live_model_are_not_retried(warehouse: Warehouse, clock: Clock) -> None:
    third = component(warehouse, 2)
    fail(warehouse, clock, HUGE, third)
    submit_model(warehouse, model("two", "search", inputs=2))  # its third input is gone
    report = retry_tasks(warehouse, TaskQuery())
    assert (report.tasks, report.left_unwanted) == (0, 3)
    assert quarantine_groups(warehouse)[0].models == ()
    assert drop_tasks(warehouse, TaskQuery(), why="nobody reads it").tasks == 3
    assert submit_model(warehouse, model("two", "search", inputs=3)).dropped == 3
    assert retry_tasks(warehouse, DROPPED).tasks == 3
    assert work(warehouse) == 9


def test_tasks_that_lose_their_workers_are_listed(warehouse: Warehouse, clock: Clock) -> None:
    lease(warehouse)
    clock.advance(1000)
    lease(warehouse)
    rows = each(warehouse, kind="lost")
    assert len(rows) == len(each(warehouse)) == 9
    assert {(row.state, row.losses, row.failed_at) for row in rows} == {(TaskState.LEASED, 1, None)}
    with pytest.raises(InputError) as caught:
        get_task(warehouse, str(rows[0].task_id))
    assert str(caught.value.allowed).count(f"{rows[0].task_id} (") == 2, "those leased together have one number"
    found = get_task(warehouse, rows[0].fingerprint, partition=rows[0].partition)
    assert (found.failure, found.losses, found.task_id) == (None, 1, rows[0].task_id)


def test_texts_that_no_database_keeps(warehouse: Warehouse, clock: Clock) -> None:
    first = component(warehouse, 0)
    odd = replace(BROKEN, error="ValueError: \0 and \ud800", operator="op\0", sample="")
    fail(warehouse, clock, odd, first)
    (group,) = quarantine_groups(warehouse)
    assert (group.error, group.operator) == ("ValueError: \\0 and \\ud800", "op\\0")
    assert get_task(warehouse, str(group.example)).failure == odd
    drop_tasks(warehouse, TaskQuery(operator="op\\0"), why="\0\ud800")
    assert each(warehouse) == ()


def test_readers_name_a_dropped_component_that_fails(config: WarehouseConfig, tmp_path: Path, clock: Clock) -> None:
    import transforms.expressions.expression as hr
    from tests.contracts.broken_operator import broken
    from transforms.expressions.model import Model

    with Warehouse.open(config, clock) as warehouse:
        register_table(warehouse, "log", str(write_log(tmp_path / "log", hours=1)))
        made = Model("m", client="c", label="clicked", table="log")
        made.input("bad", broken(hr.text("query")))
        submit_model(warehouse, made)
        fail(warehouse, clock, BROKEN, made.inputs["bad"].fingerprint)
        drop_tasks(warehouse, TaskQuery(), why="no")
        solution = read_solution(warehouse, "m")
        with pytest.raises(DataError) as caught:
            read_fragment(warehouse.storage, solution, next(iter(solution.fragments)))
        assert "input bad" in caught.value.where
        assert "cannot read" in str(caught.value.value)


def test_clients_and_their_shares(warehouse: Warehouse, clock: Clock) -> None:
    ads, search = list_clients(warehouse)
    assert (ads.name, ads.weight, ads.share, ads.deadline_secs, ads.virtual_secs) == ("ads", 1.0, 0.5, None, None)
    assert (ads.queued, search.queued, search.leased_tasks) == (6, 9, 0)
    assert set_client(warehouse, "search", weight=3.0).share == 0.75
    assert set_client(warehouse, "search", weight=1e6).share == pytest.approx(0.95), "the floor stays"
    assert status(warehouse).shares == {"ads": pytest.approx(0.05), "search": pytest.approx(0.95)}
    assert set_client(warehouse, "ads", deadline_secs=7200.0).deadline_secs == 7200.0
    assert set_client(warehouse, "ads", weight=2.0).deadline_secs == 7200.0
    assert set_client(warehouse, "ads", default_deadline=True).deadline_secs is None
    work(warehouse)
    assert [one.share for one in list_clients(warehouse)] == [None, None]
    assert sum(one.leased_tasks for one in list_clients(warehouse)) == 9


@pytest.mark.parametrize("settings", [{"weight": 0.0}, {"weight": float("nan")}, {"deadline_secs": -1.0}, {}])
def test_settings_that_cannot_be(warehouse: Warehouse, settings: dict[str, float]) -> None:
    with pytest.raises(InputError):
        set_client(warehouse, "ads", **settings)  # type: ignore[arg-type]
    with pytest.raises(UnknownClient) as caught:
        set_client(warehouse, "adds", weight=1.0)
    assert caught.value.allowed == "ads"


def test_a_task_of_a_merged_fragment_is_over_all_of_its_partitions(warehouse: Warehouse, clock: Clock) -> None:
    assert compact_table(warehouse, "log").merged == 1
    first = component(warehouse, 0)
    fail(warehouse, clock, BROKEN, first)
    hours = [f"date=2026-01-01/hour={hour:02d}" for hour in range(3)]
    (task,) = each(warehouse)
    assert [each(warehouse, partition=hour) for hour in hours] == [(task,)] * 3
    assert [get_task(warehouse, first, partition=hour).task_id for hour in hours] == [task.task_id] * 3
    with pytest.raises(UnknownTask):
        each(warehouse, partition="date=2026-01-01/hour=03")
    assert retry_tasks(warehouse, TaskQuery(partition=hours[2])).tasks == 1
