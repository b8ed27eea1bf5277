"""The queue in memory and the catalog's queue give equal results at each step.

What the simulator shows of thousands of workers is shown of production to the extent that this holds.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from sqlalchemy import select, update

from tests.simulation.referee import Referee
from tests.simulation.twin_queue import learn, statuses, twin_of, waiting
from tests.simulation.work import Grant
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
    register_table,
    release_tasks,
    retire_model,
    retry_tasks,
    submit_model,
)
from warehouse.catalog import schema
from warehouse.costs.work_estimates import TASK_SECS
from warehouse.queue.fair_queue import read_shares
from warehouse.scheduling.batching import BatchBudget
from warehouse.scheduling.task_states import TaskState

LEASE_SECS = 60.0
Held = tuple[LeasedTask, Grant]


class TwinQueues(RuleBasedStateMachine):
    """The referee judges what the queue in memory does, and so what both do."""

    leases = Bundle("leases")

    @initialize(weight=st.sampled_from([0.01, 1.0, 5.0]), ads=st.integers(1, 3), search=st.integers(1, 5))
    def open(self, weight: float, ads: int, search: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-twins-"))
        self.clock = Clock()
        config = WarehouseConfig(str(self.folder / "home"), lease_secs=LEASE_SECS, max_losses=4, retry_backoff_secs=8)
        self.warehouse = Warehouse.open(config, self.clock)
        register_table(self.warehouse, "log", str(write_log(self.folder / "log", hours=3, rows=3)))
        self.two = model("two", "search", priority=1, inputs=search)
        self.models = {
            "one": model("one", "ads", priority=2, inputs=ads),
            "two": self.two,
            "three": model("three", "search", priority=3, buckets=50, inputs=1),
        }
        for one in self.models.values():
            submit_model(self.warehouse, one)
        with self.warehouse.catalog.write() as connection:
            connection.execute(update(schema.clients).where(schema.clients.c.name == "ads").values(weight=weight))
        self.twin = twin_of(self.warehouse)
        self.referee = Referee(self.twin.statuses, config.limits, LEASE_SECS)
        self.names = itertools.count()
        self.grants: dict[str, Grant] = {}

    @rule(target=leases, limit=st.integers(1, 6), batch_bytes=st.sampled_from([1.0, 500.0, 2e3, 1e9]))
    def lease(self, limit: int, batch_bytes: float) -> object:
        name = f"lease-{next(self.names)}"
        learn(self.twin, self.warehouse)
        before = dict(self.twin.statuses)
        real = lease_tasks(self.warehouse, "w", limit=limit, batch_bytes=batch_bytes, lease=lambda: name)
        twin = self.twin.lease(self.clock.now, name, BatchBudget(batch_bytes, limit))
        assert [
            (one.memo_key, one.fence, one.lease, one.client, one.priority, one.attempt, one.losses) for one in real
        ] == [
            (one.task.memo_key, one.fence, one.lease, one.client, max(one.task.priorities.values()), one.attempt,
             one.losses)
            for one in twin
        ]  # fmt: skip
        for key, status in self.twin.statuses.items():
            if before[key].state is TaskState.LEASED and status.state is TaskState.QUEUED:
                self.referee.expired(key, self.clock.now)
        self.referee.granted(twin, self.clock.now)
        self.grants.update((grant.task.memo_key, grant) for grant in twin)
        return multiple(*zip(real, twin, strict=True))

    @rule(held=st.lists(consumes(leases), min_size=1, max_size=3))
    def commit(self, held: list[Held]) -> None:
        grants = [grant for _, grant in held]
        answers = commit_memos(self.warehouse, [(task, pretended(f"memos/{task.lease}")) for task, _ in held])
        committed = self.twin.commit((grant, TASK_SECS + pretended().secs) for grant in grants)
        assert [grant for grant, answer in zip(grants, answers, strict=True) if answer] == list(committed)
        self.referee.committed(grants, committed)

    @rule(held=consumes(leases), draw=st.sampled_from([0.0, 0.5]))
    def fail(self, held: Held, draw: float) -> None:
        task, grant = held
        state = fail_tasks(self.warehouse, [(task, Failure("raised", "it raised"))], draw=lambda: draw)[0]
        assert state == self.twin.fail(self.clock.now, grant, draw)
        self.referee.failed(grant, state)

    @rule(held=st.lists(leases, min_size=1, max_size=3, unique_by=lambda one: one[0].memo_key))
    def beat(self, held: list[Held]) -> None:
        """A lease is renewed for all memos of a task; in memory, each has a task of its own."""
        given = {(task.memo_key, task.fence, task.lease) for task, _ in held}
        grants = [grant for _, grant in held]
        kept = heartbeat(self.warehouse, [task for task, _ in held])
        listed = {(task.memo_key, task.fence, task.lease) for task in kept}
        for key in self._together([task.memo_key for task in kept]):
            grant = self.grants[key]
            if (key, grant.fence, grant.lease) not in given:
                grants.append(grant)
                listed.add((key, grant.fence, grant.lease))
        beaten = self.twin.beat(self.clock.now, grants)
        assert listed == {(grant.task.memo_key, grant.fence, grant.lease) for grant in beaten}
        self.referee.beaten(grants, beaten, self.clock.now)

    def _together(self, keys: list[str]) -> list[str]:
        """The memos of the tasks that have these memos."""
        memos = schema.memos.c
        with self.warehouse.catalog.read() as connection:
            tasks = select(memos.task).where(memos.memo_key.in_(keys))
            return list(connection.execute(select(memos.memo_key).where(memos.task.in_(tasks))).scalars())

    @rule(held=consumes(leases))
    def release(self, held: Held) -> None:
        task, grant = held
        released = self.twin.release([grant])
        assert release_tasks(self.warehouse, [task]) == len(released)
        self.referee.released([grant], released)

    @rule(secs=st.sampled_from([-900.0, -20.0, 1.0, 10.0, 30.0, 61.0, 800.0]))
    def another_worker_has_another_clock(self, secs: float) -> None:
        self.clock.advance(secs)

    def _in(self, state: TaskState) -> list[str]:
        return [key for key, status in self.twin.statuses.items() if status.state is state]

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        failed = self._in(TaskState.FAILED)
        if failed:
            key = data.draw(st.sampled_from(failed))
            with self.warehouse.catalog.read() as connection:
                number = connection.execute(
                    select(schema.memos.c.task).where(schema.memos.c.memo_key == key)
                ).scalar_one()
            assert drop_tasks(self.warehouse, TaskQuery(ids=(number,)), why="test").tasks == 1
            self.twin.drop(key)
            self.referee.dropped(key)

    @rule(state=st.sampled_from([TaskState.FAILED, TaskState.DROPPED]))
    def retry(self, state: TaskState) -> None:
        wanted = self._in(state)
        assert retry_tasks(self.warehouse, TaskQuery(states=(state,))).tasks == len(wanted)
        for key in wanted:
            self.twin.requeue(key)
            self.referee.requeued(key)

    @rule(which=st.integers(0, 4))
    def evict_and_ask_again(self, which: int) -> None:
        inputs = list(self.two.inputs.values())
        evict_component(self.warehouse, inputs[which % (len(inputs) - 1)].fingerprint, why="test")
        done = {one for one, status in self.twin.statuses.items() if status.state is TaskState.DONE}
        assert submit_model(self.warehouse, self.two).unchanged
        with self.warehouse.catalog.read() as connection:
            waits = waiting(connection)
        for key, status in statuses(self.warehouse).items():
            if key in done and status.state is TaskState.QUEUED:
                self.twin.requeue(key, waits[key])
                self.referee.requeued(key)
        self._wait_alike()

    @rule(which=st.sampled_from(["one", "two", "three"]))
    def retire(self, which: str) -> None:
        """Leases of tasks that only this model waited for run out, and no worker takes them over."""
        retire_model(self.warehouse, which)
        self._wait_alike()

    @rule(which=st.sampled_from(["one", "three"]))
    def submit_again(self, which: str) -> None:
        submit_model(self.warehouse, self.models[which])
        self._wait_alike()

    def _wait_alike(self) -> None:
        with self.warehouse.catalog.read() as connection:
            waits = waiting(connection)
        for key, status in statuses(self.warehouse).items():
            if status.state in (TaskState.QUEUED, TaskState.LEASED):
                self.twin.wait(key, waits.get(key, {}))

    @invariant()
    def they_say_the_same(self) -> None:
        if not hasattr(self, "twin"):
            return
        unfinished = {key: status for key, status in self.twin.statuses.items() if status.state is not TaskState.DONE}
        assert statuses(self.warehouse) == unfinished
        with self.warehouse.catalog.read() as connection:
            real = read_shares(connection)
        assert [(one.name, one.served) for one in real] == [(one.name, one.served) for one in self.twin.clients]
        assert [one.virtual_secs for one in real] == pytest.approx([one.virtual_secs for one in self.twin.clients])

    def teardown(self) -> None:
        if hasattr(self, "warehouse"):
            self.warehouse.close()
            shutil.rmtree(self.folder)


TestTwinQueues = TwinQueues.TestCase
TestTwinQueues.settings = settings(
    max_examples=scaled(6), stateful_step_count=25, suppress_health_check=list(HealthCheck)
)
