"""Leases, fencing tokens, attempts, priorities and fairness."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select, update

from tests.warehouse import scenes
from tests.warehouse.scenes import (
    Clock,
    compute,
    events,
    model,
    pretended,
    pretended_by,
    read_of,
    work,
    write_partition,
)
from warehouse import (
    Failure,
    TaskQuery,
    Warehouse,
    WarehouseConfig,
    commit_memos,
    fail_tasks,
    heartbeat,
    lease_tasks,
    queue_depths,
    read_solution,
    register_table,
    release_tasks,
    retry_tasks,
    submit_model,
)
from warehouse.catalog import schema
from warehouse.costs.work_estimates import TASK_SECS
from warehouse.matching.submit import queue_missing
from warehouse.memos.memos import requeue_tasks
from warehouse.models.retire import retire_model
from warehouse.queue.depths import queued_tasks, unfinished_tasks
from warehouse.queue.fair_queue import read_shares
from warehouse.scheduling.task_states import TaskState

pytestmark = pytest.mark.usefixtures("log")
WRITTEN = pretended("memos/x")


def states(warehouse: Warehouse) -> list[tuple[str, str]]:
    """(task state, memo state) of every memo."""
    return [(task, memo) for task, memo, *_ in scenes.states(warehouse)]


def first_read(warehouse: Warehouse) -> tuple[str, str]:
    solution = read_solution(warehouse, "ctr")
    return read_of(solution, solution.partitions[0].fragments[0], "input_0")


def test_lease_commit_and_nothing_is_left(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(priority=4))
    tasks = lease_tasks(warehouse, "w", limit=100)
    assert len(tasks) == 6
    assert {(task.client, task.priority, task.attempt, task.fence, task.table) for task in tasks} == {
        ("search", 4, 1, 1, "log")
    }
    assert lease_tasks(warehouse, "other", limit=100) == ()
    assert set(states(warehouse)) == {("LEASED", "PENDING")}
    written = [pretended_by(task) for task in tasks]
    assert commit_memos(warehouse, zip(tasks, written, strict=True)) == (True,) * 6
    assert set(states(warehouse)) == {("DONE", "READY")}
    assert first_read(warehouse) == ("load", written[0].file.path)
    assert commit_memos(warehouse, [(tasks[0], written[0])])[0] is True, "this very commit was made"
    other = replace(written[0], file=replace(written[0].file, path=f"memos/other/y-{tasks[0].lease}-z.memo"))
    assert commit_memos(warehouse, [(tasks[0], other)])[0] is False, "done is done"


def test_a_dry_lease_changes_nothing_in_the_catalog(warehouse: Warehouse) -> None:
    submit_model(warehouse, model())

    def catalog() -> list[object]:
        with warehouse.catalog.read() as connection:
            tables = (schema.tasks, schema.memos, schema.clients)
            return [tuple(row) for table in tables for row in connection.execute(select(table))]

    before = catalog()
    seen = lease_tasks(warehouse, "w", limit=4, lease=lambda: "name", keep=False)
    assert catalog() == before
    assert seen == lease_tasks(warehouse, "w", limit=4, lease=lambda: "name")
    assert len(seen) == 4


def test_a_limit_keeps_a_partition_together(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(inputs=4))
    first = lease_tasks(warehouse, "w", limit=6)
    assert [task.partition[-2:] for task in first] == ["00"] * 4 + ["01"] * 2
    assert [task.partition[-2:] for task in lease_tasks(warehouse, "w", limit=100)] == ["01"] * 2 + ["02"] * 4


def test_more_urgent_models_go_first_and_are_read_at_lease_time(
    warehouse: Warehouse, log: Path, tmp_path: Path
) -> None:
    write_partition(tmp_path / "more", 8, events(20, seed=8))
    register_table(warehouse, "more", str(tmp_path / "more"))
    submit_model(warehouse, model("low", priority=1))
    submit_model(warehouse, model("high", priority=7), table="more")
    assert {(task.table, task.priority) for task in lease_tasks(warehouse, "w", limit=1)} == {("more", 7)}
    submit_model(warehouse, model("low", priority=9))
    assert {(task.table, task.priority) for task in lease_tasks(warehouse, "w", limit=1)} == {("log", 9)}


def test_urgent_tasks_are_first_within_a_partition(warehouse: Warehouse) -> None:
    submit_model(warehouse, model("low", "search", priority=1, inputs=1))
    submit_model(warehouse, model("high", "ads", priority=7, inputs=3))
    tasks = lease_tasks(warehouse, "w", limit=3)
    assert {task.priority for task in tasks} == {7}, "the shared one is as urgent as its most urgent model"
    assert {task.partition for task in tasks} == {"date=2026-01-01/hour=00"}


@pytest.mark.medium
def test_clients_alternate(warehouse: Warehouse) -> None:
    submit_model(warehouse, model("one", "ads", priority=100, inputs=4))
    submit_model(warehouse, model("two", "search", priority=0, buckets=50, inputs=3))
    turns = [lease_tasks(warehouse, "w", limit=1)[0].client for _ in range(8)]
    assert sorted(turns[:2]) == ["ads", "search"]
    assert 3 <= turns.count("ads") <= 5, "priorities are for a client's own models"


def test_clients_get_what_they_weigh(warehouse: Warehouse) -> None:
    submit_model(warehouse, model("one", "ads", inputs=4))
    submit_model(warehouse, model("two", "search", buckets=50, inputs=4))
    clients = schema.clients
    with warehouse.catalog.write() as connection:
        connection.execute(update(clients).where(clients.c.name == "ads").values(weight=3.0))
    turns = [lease_tasks(warehouse, "w", limit=1)[0].client for _ in range(12)]
    assert 8 <= turns.count("ads") <= 10


def test_a_later_client_starts_at_the_virtual_time_of_the_others(warehouse: Warehouse) -> None:
    submit_model(warehouse, model("one", "ads", inputs=4))
    for _ in range(6):
        lease_tasks(warehouse, "w", limit=1)
    submit_model(warehouse, model("two", "search", buckets=50, inputs=4))
    turns = [lease_tasks(warehouse, "w", limit=1)[0].client for _ in range(6)]
    assert 2 <= turns.count("search") <= 4, "it does not make up for the time before it came"


def test_what_another_release_computes_costs_its_client_no_turn(warehouse: Warehouse) -> None:
    submit_model(warehouse, model("one", "ads", inputs=1))
    submit_model(warehouse, model("two", "search", buckets=50, inputs=1))
    newer = {"op": "not_here_yet", "version": 7}
    with warehouse.catalog.write() as connection:
        for row in connection.execute(select(schema.components)).all():
            nodes = [{**node, **(newer if "op" in node else {})} for node in row.document["nodes"]]
            mine = schema.components.c.fingerprint == row.fingerprint
            connection.execute(update(schema.components).where(mine).values(document={**row.document, "nodes": nodes}))
    (task,) = lease_tasks(warehouse, "w", limit=1)
    assert task.work_secs < 1.0, "nothing is computed: it fails at once"
    with warehouse.catalog.read() as connection:
        assert max(connection.execute(select(schema.clients.c.virtual_secs)).scalars()) < 1.0


def test_a_long_queue_is_leased_in_the_same_order(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many tasks wait, by which it is decided whether partitions are looked up together or one by one."""
    for hour in (7, 9):
        write_partition(tmp_path / "more", hour, events(20, seed=hour))
    register_table(warehouse, "more", str(tmp_path / "more"))
    submit_model(warehouse, model("low", "ads", priority=1, inputs=3))
    submit_model(warehouse, model("high", "ads", priority=7, inputs=2), table="more")
    submit_model(warehouse, model("urgent", "ads", priority=7, buckets=50, inputs=1))
    submit_model(warehouse, model("other", "search", priority=3, inputs=4), table="more")
    submit_model(warehouse, model("gone", "search", priority=9, buckets=70, inputs=2))
    retire_model(warehouse, "gone")

    def turns(few_memos: int) -> list[list[tuple[str, str]]]:
        monkeypatch.setattr("warehouse.queue.fair_queue._FEW_MEMOS", few_memos)
        found = []
        for limit in (1, 4, 2, 5, 100, 100):
            tasks = lease_tasks(warehouse, "w", limit=limit)
            found.append([(task.client, task.memo_key) for task in tasks])
        with warehouse.catalog.write() as connection:
            connection.execute(update(schema.tasks).values(state="QUEUED", lease_until=None, attempts=0))
            connection.execute(update(schema.clients).values(virtual_secs=None, served=0))
        return found

    one_by_one, together = turns(0), turns(1_000)
    assert one_by_one == together
    assert {client for turn in together for client, _ in turn} == {"ads", "search"}
    assert together[-1] == []


def test_a_batch_is_sized_by_bytes(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(inputs=4))
    assert len(lease_tasks(warehouse, "w", batch_bytes=1)) == 1
    whole = lease_tasks(warehouse, "w", batch_bytes=1e9)
    assert len(whole) == 11
    release_tasks(warehouse, whole)
    fragment = max(task.fragment.size_bytes for task in whole)
    # The memos of 20 events are smaller than the file they came from, so two fragments fit and three do not.
    parts = lease_tasks(warehouse, "w", batch_bytes=2.5 * fragment)
    assert 0 < len({task.partition for task in parts}) < 3


def test_fragments_are_kept_together_and_the_most_urgent_go_first(warehouse: Warehouse, tmp_path: Path) -> None:
    for part in (0, 1):
        write_partition(tmp_path / "two", 5, events(20, seed=part), name=f"part-{part}.parquet")
    register_table(warehouse, "two", str(tmp_path / "two"))
    submit_model(warehouse, model("low", priority=1, inputs=3), table="two")
    submit_model(warehouse, model("high", "ads", priority=7, inputs=1), table="two")
    tasks = lease_tasks(warehouse, "w")
    places = [task.fragment.fragment_id for task in tasks]
    assert len(set(places)) == 2
    assert places == sorted(places, key=places.index), "a fragment's tasks stand together"
    assert [task.priority for task in tasks] == [7, 1, 1] * 2


def test_tasks_of_other_clients_ride_along(warehouse: Warehouse) -> None:
    submit_model(warehouse, model("one", "ads", inputs=1))
    submit_model(warehouse, model("two", "search", buckets=50, inputs=1))
    tasks = lease_tasks(warehouse, "w", limit=2)
    assert len({task.fingerprint for task in tasks}) == 2
    assert len({task.partition for task in tasks}) == 1, "one read of the partition serves both clients"


@pytest.mark.medium
def test_an_expired_lease_is_taken_over_and_the_late_commit_is_fenced_off(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model(inputs=1))
    (slow,) = lease_tasks(warehouse, "slow", limit=1)
    clock.advance(59.9)
    assert slow.memo_key not in {task.memo_key for task in lease_tasks(warehouse, "w", limit=9)}
    clock.advance(0.2)
    (taken,) = lease_tasks(warehouse, "quick", limit=9)
    assert (taken.task_id, taken.fence, taken.attempt) == (slow.task_id, 2, 2)
    assert commit_memos(warehouse, [(slow, pretended("memos/late"))])[0] is False
    assert fail_tasks(warehouse, [(slow, Failure("raised", "late"))])[0] is None
    assert heartbeat(warehouse, [slow, taken]) == (taken,)
    assert release_tasks(warehouse, [slow]) == 0
    assert commit_memos(warehouse, [(taken, WRITTEN)])[0] is True
    assert first_read(warehouse) == ("load", "memos/x")


def test_an_expired_lease_can_commit_if_no_worker_took_the_task(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model(inputs=1))
    (task,) = lease_tasks(warehouse, "w", limit=1)
    clock.advance(1000)
    assert commit_memos(warehouse, [(task, WRITTEN)])[0] is True


def test_heartbeats_keep_a_lease(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model(inputs=1))
    tasks = lease_tasks(warehouse, "w", limit=100)
    for _ in range(5):
        clock.advance(50)
        assert heartbeat(warehouse, tasks) == tasks
        assert lease_tasks(warehouse, "other", limit=100) == ()


@pytest.mark.medium
def test_failures_are_retried_and_then_quarantined(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model(inputs=1))
    seen = []
    for _ in range(3):
        clock.advance(60)
        (task,) = lease_tasks(warehouse, "w", limit=1)
        seen.append((task.attempt, fail_tasks(warehouse, [(task, Failure("raised", f"error {task.attempt}"))])[0]))
    assert seen == [(1, TaskState.QUEUED), (2, TaskState.QUEUED), (3, TaskState.FAILED)]
    assert states(warehouse)[0] == ("FAILED", "FAILED")
    assert queue_depths(warehouse)[0] == replace(queue_depths(warehouse)[0], queued=2, leased=0, failed=1)
    assert work(warehouse) == 2, "one bad task costs no other"
    assert submit_model(warehouse, model(inputs=1)).queued == 0
    assert first_read(warehouse) == ("compute", "")
    assert retry_tasks(warehouse, TaskQuery()).tasks == 1
    assert work(warehouse) == 1
    assert retry_tasks(warehouse, TaskQuery()).tasks == 0


@pytest.mark.medium
def test_a_task_that_kills_its_workers_is_quarantined(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model(inputs=1))
    for _ in range(warehouse.config.max_losses):
        lease_tasks(warehouse, "doomed", limit=1)
        clock.advance(61)
    remaining = lease_tasks(warehouse, "w", limit=100)
    assert len(remaining) == 2
    assert ("FAILED", "FAILED") in states(warehouse)
    with warehouse.catalog.read() as connection:
        error = connection.execute(select(schema.tasks.c.error).where(schema.tasks.c.state == "FAILED")).scalar()
    assert error == "10 workers were lost while they computed it"


def test_lost_workers_use_up_no_attempt(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model(inputs=1))
    for _ in range(5):
        lease_tasks(warehouse, "doomed", limit=1)
        clock.advance(61)
    for attempt in (6, 7, 8):
        (task,) = lease_tasks(warehouse, "w", limit=1)
        assert (task.attempt, task.losses) == (attempt, 5)
        state = fail_tasks(warehouse, [(task, Failure("raised", "no"))])[0]
        clock.advance(60)
    assert state is TaskState.FAILED


def test_the_last_failure_is_kept_whole_until_it_is_asked_for_again(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model(inputs=1))
    failure = Failure("raised", "ValueError: no", "length", "length(query)", (3, 5))
    (task,) = lease_tasks(warehouse, "w", limit=1)
    fail_tasks(warehouse, [(task, failure)], worker="w")
    with warehouse.catalog.read() as connection:
        (row,) = connection.execute(select(schema.failures)).all()
    assert (row.task, row.worker, row.attempt, row.failed_at) == (task.task_id, "w", 1, clock.now)
    assert Failure.from_document(row.document) == failure
    clock.advance(60)
    assert work(warehouse) == 3
    with warehouse.catalog.read() as connection:
        assert connection.execute(select(schema.failures)).all() == []


def test_asking_again_for_what_a_worker_has_leaves_what_is_known_of_its_failure(
    warehouse: Warehouse, clock: Clock
) -> None:
    submit_model(warehouse, model(inputs=1))
    leased, queued, _ = lease_tasks(warehouse, "w", limit=100)
    for task in (leased, queued):
        fail_tasks(warehouse, [(task, Failure("raised", "ValueError: no"))])
    clock.advance(60)
    again = {task.task_id: task for task in lease_tasks(warehouse, "w", limit=100)}
    release_tasks(warehouse, [again[queued.task_id]])
    with warehouse.catalog.write() as connection:
        requeue_tasks(connection, [leased.memo_key, queued.memo_key], clock.now)
        assert connection.execute(select(schema.failures.c.task)).scalars().all() == [leased.task_id]


def test_released_tasks_lose_no_attempt(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(inputs=1))
    for _ in range(10):
        tasks = lease_tasks(warehouse, "w", limit=100)
        assert {task.attempt for task in tasks} == {1}
        assert release_tasks(warehouse, tasks) == 3
    assert {task.fence for task in lease_tasks(warehouse, "w", limit=100)} == {11}


def test_backoff_delays_the_next_attempt(tmp_path: Path, log: Path, clock: Clock) -> None:
    config = WarehouseConfig(str(tmp_path / "patient"), retry_backoff_secs=10)
    with Warehouse.open(config, clock) as warehouse:
        register_table(warehouse, "log", str(log))
        submit_model(warehouse, model(inputs=1))
        for wait_secs in (10, 20):
            tasks = lease_tasks(warehouse, "w", limit=100)
            failed = fail_tasks(warehouse, [(tasks[0], Failure("raised", "no"))], draw=lambda: 1 - 2**-53)[0]
            assert failed is TaskState.QUEUED
            release_tasks(warehouse, tasks[1:])
            clock.advance(wait_secs - 1)
            others = lease_tasks(warehouse, "w", limit=100)
            assert tasks[0].task_id not in {task.task_id for task in others}
            release_tasks(warehouse, others)
            clock.advance(1)


@pytest.mark.medium
def test_unreadable_tasks_are_delayed_for_minutes(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model(inputs=1))
    (task, *others) = lease_tasks(warehouse, "w", limit=100)
    release_tasks(warehouse, others)
    unreadable = Failure("unreadable", "cannot read the file")
    for attempt, wait_secs in ((1, 60), (2, 120), (3, 240), (4, 480), (5, 900)):
        assert task.attempt == attempt
        assert fail_tasks(warehouse, [(task, unreadable)], draw=lambda: 1 - 2**-53)[0] is TaskState.QUEUED
        clock.advance(wait_secs - 1)
        ready = lease_tasks(warehouse, "w", limit=100)
        assert task.task_id not in {one.task_id for one in ready}
        release_tasks(warehouse, ready)
        clock.advance(1)
        taken = {one.task_id: one for one in lease_tasks(warehouse, "w", limit=100)}
        task = taken.pop(task.task_id)
        release_tasks(warehouse, taken.values())
    assert fail_tasks(warehouse, [(task, unreadable)])[0] is TaskState.FAILED


def virtual_secs(warehouse: Warehouse) -> dict[str, float | None]:
    with warehouse.catalog.read() as connection:
        return {one.name: one.virtual_secs for one in read_shares(connection)}


def test_measured_time_is_charged_instead_of_the_estimate(warehouse: Warehouse) -> None:
    submit_model(warehouse, model("one", "ads", inputs=1))
    submit_model(warehouse, model("two", "search", inputs=1))
    first, second, third = lease_tasks(warehouse, "w", limit=100)
    assert first.payers == {"ads": 0.5, "search": 0.5}
    estimated = sum(task.work_secs for task in (first, second, third))
    assert virtual_secs(warehouse) == pytest.approx({"ads": estimated, "search": estimated})
    written = replace(pretended_by(first), secs=7.0)
    for _ in range(2):  # what is committed twice is charged once
        assert commit_memos(warehouse, [(first, written)]) == (True,)
        expected = TASK_SECS + 7.0 + second.work_secs + third.work_secs
        assert virtual_secs(warehouse) == pytest.approx({"ads": expected, "search": expected})
    fail_tasks(warehouse, [(second, Failure("stalled", "took more than 3 s"))], secs=3.0)
    assert virtual_secs(warehouse)["ads"] == pytest.approx(TASK_SECS + 10.0 + third.work_secs)
    assert release_tasks(warehouse, [third]) == 1
    assert release_tasks(warehouse, [third]) == 0
    assert virtual_secs(warehouse) == pytest.approx({"ads": TASK_SECS + 10.0, "search": TASK_SECS + 10.0})


@pytest.mark.medium
def test_what_was_estimated_well_is_charged_as_it_was(warehouse: Warehouse) -> None:
    """A task costs something besides what it computes; else a client of many cheap ones would have the workers for nothing."""
    submit_model(warehouse, model("one", "ads", inputs=1))
    tasks = lease_tasks(warehouse, "w", limit=100)
    before = virtual_secs(warehouse)
    computed = [replace(pretended(), secs=task.work_secs - TASK_SECS) for task in tasks]
    assert all(commit_memos(warehouse, zip(tasks, computed, strict=True)))
    assert virtual_secs(warehouse) == pytest.approx(before)


def test_an_attempt_without_a_try_is_not_charged(warehouse: Warehouse) -> None:
    submit_model(warehouse, model("one", "ads", inputs=1))
    tasks = lease_tasks(warehouse, "w", limit=100)
    fail_tasks(warehouse, [(tasks[0], Failure("unreadable", "cannot read the file"))])
    fail_tasks(warehouse, [(tasks[1], Failure("raised", "ValueError: no"))])
    assert virtual_secs(warehouse)["ads"] == pytest.approx(tasks[1].work_secs + tasks[2].work_secs)


def test_depths(warehouse: Warehouse) -> None:
    assert queue_depths(warehouse) == ()
    submit_model(warehouse, model("one", "ads", priority=3, inputs=1))
    submit_model(warehouse, model("two", "search", priority=5, inputs=2))
    lease_tasks(warehouse, "w", limit=2)
    ads, search = queue_depths(warehouse)
    assert (ads.client, ads.queued, ads.leased, ads.top_priority) == ("ads", 2, 1, 3)
    assert (search.client, search.queued, search.leased, search.top_priority) == ("search", 4, 2, 5)
    work(warehouse)
    assert [(depth.queued, depth.top_priority) for depth in queue_depths(warehouse)] == [(0, None), (0, None)]


@pytest.mark.medium
def test_what_is_leased_is_enough_to_compute(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(inputs=5))
    for task in lease_tasks(warehouse, "w", limit=100):
        written = compute(warehouse, task)
        assert written.rows == task.fragment.rows == 20
        assert commit_memos(warehouse, [(task, written)])[0]


def wait_rows(warehouse: Warehouse) -> set[tuple[str, str]]:
    """The waits as (model, table); one per component."""
    waits, models = schema.waits.c, schema.models.c
    with warehouse.catalog.read() as connection:
        query = select(models.name, waits.table_name).join(schema.waits, waits.model == models.id)
        rows = [(name, table) for name, table in connection.execute(query)]
    return set(rows) if len(rows) == len(set(rows)) else set()


@pytest.mark.medium
def test_a_model_waits_for_components_until_their_last_task_is_done(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(inputs=1))
    submit_model(warehouse, model("other", "ads", inputs=1))
    first, *others = lease_tasks(warehouse, "w", limit=100)
    both = {("ctr", "log"), ("other", "log")}
    assert wait_rows(warehouse) == both, "one row per model and component, not per hour"
    assert set(first.payers) == {"search", "ads"}
    commit_memos(warehouse, [(task, WRITTEN) for task in others])
    assert wait_rows(warehouse) == both
    last = [(replace(first, attempt=3), Failure("raised", "no"))]
    assert fail_tasks(warehouse, last) == (TaskState.FAILED,)
    assert wait_rows(warehouse) == both, "a retry is for those who wait"
    retry_tasks(warehouse, TaskQuery())
    commit_memos(warehouse, [(task, WRITTEN) for task in lease_tasks(warehouse, "w", limit=100)])
    assert wait_rows(warehouse) == set()


def test_tasks_over_replaced_data_are_not_waited_for(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model(inputs=1))
    (held,) = lease_tasks(warehouse, "w", limit=1)
    for hour in range(3):
        write_partition(log, hour, events(seed=70 + hour))
    register_table(warehouse, "log", str(log))
    assert (queued_tasks(warehouse), unfinished_tasks(warehouse)) == (0, 0)
    assert lease_tasks(warehouse, "w", limit=100) == ()
    assert queue_missing(warehouse) == 3
    of = schema.tasks.c
    with warehouse.catalog.read() as connection:
        kept = Counter(connection.execute(select(of.state)).scalars())
    assert kept == {"LEASED": 1, "QUEUED": 3}, "the queued ones of the replaced data are gone"
    assert {task.fragment.fragment_id for task in lease_tasks(warehouse, "w", limit=100)}.isdisjoint(
        {held.fragment.fragment_id}
    )
    assert commit_memos(warehouse, [(held, WRITTEN)]) == (True,), "its lease is valid, whatever became of the data"
