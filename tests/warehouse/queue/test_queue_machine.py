"""Workers lease, renew, commit, fail and disappear in any order: no task is leased twice or lost."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from sqlalchemy import func, select

from tests.support.examples import scaled
from tests.warehouse.scenes import Clock, evict_component, model, pretended, write_log
from warehouse import (
    Failure,
    LeasedTask,
    TaskQuery,
    Warehouse,
    WarehouseConfig,
    commit_memos,
    drop_tasks,
    fail_tasks,
    heartbeat,
    lease_tasks,
    quarantine_tasks,
    register_table,
    release_tasks,
    retry_tasks,
    submit_model,
)
from warehouse.catalog import schema
from warehouse.catalog.task_rows import computes, waits_for
from warehouse.scheduling.task_states import MEMO_OF_TASK, MemoState, TaskState

LEASE_SECS = 60.0


class QueueMachine(RuleBasedStateMachine):
    """``owners``: which lease holds a memo by the rules, and until when; the warehouse must agree."""

    leases = Bundle("leases")

    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-queue-"))
        self.clock = Clock()
        self.warehouse = Warehouse.open(WarehouseConfig(str(self.folder / "home"), lease_secs=LEASE_SECS), self.clock)
        register_table(self.warehouse, "log", str(write_log(self.folder / "log", hours=2, rows=3)))
        submit_model(self.warehouse, model("one", "ads", priority=2, inputs=2))
        submit_model(self.warehouse, model("two", "search", priority=1, inputs=3))
        self.owners: dict[str, tuple[str, float]] = {}
        self.expected_tasks = 6

    @rule(target=leases, limit=st.integers(1, 4))
    def lease(self, limit: int) -> object:
        tasks = lease_tasks(self.warehouse, "w", limit=limit)
        assert len(tasks) <= limit
        assert len({task.memo_key for task in tasks}) == len(tasks)
        for task in tasks:
            _, until = self.owners.get(task.memo_key, ("", 0.0))
            assert until < self.clock.now, "leased while somebody holds it"
            self._own(task, self.clock.now + LEASE_SECS)
        return multiple(*tasks)

    def _own(self, task: LeasedTask, until: float) -> None:
        self.owners[task.memo_key] = (task.lease, until)

    def _row(self, task: LeasedTask) -> Any:
        with self.warehouse.catalog.read() as connection:
            query = select(schema.tasks).join(schema.memos, computes())
            return connection.execute(query.where(schema.memos.c.memo_key == task.memo_key)).first()

    def _holds(self, task: LeasedTask) -> bool:
        row = self._row(task)
        holds = row is not None and row.state == TaskState.LEASED and (row.lease, row.fence) == (task.lease, task.fence)
        lease, until = self.owners[task.memo_key]
        assert not holds or (lease == task.lease and until), "its attempt ended, or another worker leased it"
        return holds

    @rule(task=consumes(leases))
    def commit(self, task: LeasedTask) -> None:
        holds = self._holds(task)
        written = pretended(f"memos/{task.memo_key}-{task.lease}")
        assert commit_memos(self.warehouse, [(task, written)])[0] == holds
        if holds:
            self._own(task, 0.0)

    @rule(task=consumes(leases))
    def fail(self, task: LeasedTask) -> None:
        holds = self._holds(task)
        state = fail_tasks(self.warehouse, [(task, Failure("raised", "it raised"))])[0]
        assert (state is not None) == holds
        if holds:
            assert state is (TaskState.QUEUED if task.attempt < 3 else TaskState.FAILED)
            self._own(task, 0.0)

    @rule(task=leases)
    def beat(self, task: LeasedTask) -> None:
        holds = self._holds(task)
        assert heartbeat(self.warehouse, [task]) == ((task,) if holds else ())
        if holds:
            with self.warehouse.catalog.read() as connection:
                of = schema.memos.c
                together = connection.execute(select(of.memo_key).where(of.task == self._row(task).id)).scalars().all()
            for key in together:  # the lease is renewed for all memos of the task
                self.owners[key] = (task.lease, self.clock.now + LEASE_SECS)

    @rule(task=consumes(leases))
    def release(self, task: LeasedTask) -> None:
        holds = self._holds(task)
        assert release_tasks(self.warehouse, [task]) == int(holds)
        if holds:
            self._own(task, 0.0)

    @rule(secs=st.sampled_from([1.0, 30.0, 61.0]))
    def wait(self, secs: float) -> None:
        self.clock.advance(secs)

    @rule()
    def retry(self) -> None:
        retry_tasks(self.warehouse, TaskQuery())

    @rule(state=st.sampled_from([None, TaskState.QUEUED, TaskState.LEASED, TaskState.FAILED]))
    def drop(self, state: TaskState | None) -> None:
        """What the quarantine holds; whoever has one of them holds it no more."""
        query = TaskQuery(states=() if state is None else (state,))
        listed = quarantine_tasks(self.warehouse, query)
        assert drop_tasks(self.warehouse, query, why="test").tasks == len(listed)
        with self.warehouse.catalog.read() as connection:
            of = schema.memos.c
            gone = connection.execute(select(of.memo_key).where(of.state == MemoState.DROPPED)).scalars().all()
        for key in gone:
            self.owners[key] = ("", 0.0)

    @rule()
    def submit_again(self) -> None:
        """It queues nothing that was dropped."""
        before = self._count(TaskState.DROPPED)
        submit_model(self.warehouse, model("one", "ads", priority=2, inputs=2))
        assert self._count(TaskState.DROPPED) == before

    @rule()
    def retry_dropped(self) -> None:
        before = self._count(TaskState.DROPPED)
        assert retry_tasks(self.warehouse, TaskQuery(states=(TaskState.DROPPED,))).tasks == before
        assert self._count(TaskState.DROPPED) == 0

    def _count(self, state: TaskState) -> int:
        with self.warehouse.catalog.read() as connection:
            query = select(func.count()).select_from(schema.tasks).join(schema.memos, computes())
            query = query.where(schema.tasks.c.state == state)
            return int(connection.execute(query).scalar_one())

    @rule(which=st.integers(0, 2))
    def evict_and_ask_again(self, which: int) -> None:
        again = model("two", "search", priority=1, inputs=3)
        evict_component(self.warehouse, list(again.inputs.values())[which].fingerprint, why="test")
        assert submit_model(self.warehouse, again).unchanged

    @invariant()
    def every_task_is_there_and_agrees_with_its_memo(self) -> None:
        if not hasattr(self, "warehouse"):
            return
        with self.warehouse.catalog.read() as connection:
            tasks, memos = schema.tasks.c, schema.memos.c
            query = select(tasks.state, memos.state, memos.memo_key).select_from(schema.memos)
            rows = connection.execute(query.outerjoin(schema.tasks, computes())).all()
            numbers = set(connection.execute(select(tasks.id)).scalars())
            assert numbers == set(connection.execute(select(memos.task).where(memos.task.is_not(None))).scalars())
            waits = select(schema.memos.c.memo_key).select_from(schema.tasks).join(schema.memos, computes())
            waiting = set(connection.execute(waits.join(schema.waits, waits_for())).scalars())
        assert len(rows) == self.expected_tasks
        for task, memo, key in rows:
            assert memo == MEMO_OF_TASK[TaskState(task or "DONE")] or (task is None and memo == MemoState.EVICTED)
            assert (key in waiting) or memo in (MemoState.READY, MemoState.EVICTED, MemoState.FAILED)

    def teardown(self) -> None:
        if not hasattr(self, "warehouse"):
            return
        # Whatever happened, the work can be finished.
        retry_tasks(self.warehouse, TaskQuery(states=(TaskState.DROPPED,)))
        retry_tasks(self.warehouse, TaskQuery())
        self.clock.advance(LEASE_SECS + 1)
        for _ in range(60):
            tasks = lease_tasks(self.warehouse, "last", limit=10)
            for task in tasks:
                assert commit_memos(self.warehouse, [(task, pretended())])[0]
            if not tasks and not retry_tasks(self.warehouse, TaskQuery()).tasks:
                break
        with self.warehouse.catalog.read() as connection:
            left = connection.execute(select(schema.tasks.c.state)).all()
        assert left == []
        self.warehouse.close()
        shutil.rmtree(self.folder)


TestQueueMachine = pytest.mark.medium(QueueMachine.TestCase)
TestQueueMachine.settings = settings(
    max_examples=scaled(20), stateful_step_count=20, suppress_health_check=list(HealthCheck)
)
