"""Writers that wait, fail, are killed, or have different clocks, on each database."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, delete, func, insert, select, update

from tests.contracts.test_catalog_contract import ready_files, run_together
from tests.support.processes import PATIENCE_SECS
from tests.warehouse.scenes import Clock, compute, model, pretended, start, work, write_log
from warehouse import (
    Failure,
    Warehouse,
    WarehouseConfig,
    collect_garbage,
    commit_memos,
    fail_tasks,
    heartbeat,
    lease_tasks,
    register_table,
    release_tasks,
    submit_model,
)
from warehouse.catalog import schema
from warehouse.catalog.catalog import Catalog
from warehouse.errors import CatalogBusy, CatalogConflict, CatalogLost, CommitInDoubt
from warehouse.scheduling.backoff import TRANSACTION_BACKOFF
from warehouse.scheduling.task_states import MemoState

WRITTEN = pretended("memos/x")
_CLIENT = {"name": "a", "served": 0, "leased_tasks": 0}


def add_client(connection: Connection) -> None:
    connection.execute(insert(schema.clients).values(**_CLIENT))


def served(catalog: Catalog) -> list[int]:
    with catalog.read() as connection:
        return list(connection.execute(select(schema.clients.c.served)).scalars())


@contextmanager
def opened(url: str, busy_timeout_secs: float = 30.0, sleep: Callable[[float], None] = time.sleep) -> Iterator[Catalog]:
    catalog = Catalog.open(url, busy_timeout_secs, sleep=sleep)
    try:
        yield catalog
    finally:
        catalog.close()


_COUNT_UP = """
import sys
from sqlalchemy import select, update
from warehouse.catalog import schema
from warehouse.catalog.catalog import Catalog
catalog = Catalog.open(sys.argv[1])
def count_up(connection):
    seen = connection.execute(select(schema.clients.c.served)).scalar()
    connection.execute(update(schema.clients).values(served=seen + 1))
print("ready", flush=True)
sys.stdin.readline()
for _ in range(100):
    catalog.run(count_up)
"""


@pytest.mark.medium
def test_what_a_writer_read_cannot_have_changed_when_it_commits(url: str) -> None:
    with opened(url) as catalog:
        catalog.run(add_client)
        run_together([start(_COUNT_UP, url) for _ in range(3)])
        assert served(catalog) == [300]


def test_a_writer_that_waited_reads_the_other_writers_rows(url: str) -> None:
    with opened(url) as first, opened(url) as second:
        seen: list[int] = []
        begun = threading.Event()

        def count() -> None:
            begun.set()
            seen.append(second.run(lambda connection: connection.execute(
                select(func.count()).select_from(schema.clients)).scalar_one()))  # fmt: skip

        thread = threading.Thread(target=count)
        with first.write() as connection:
            thread.start()
            begun.wait()
            time.sleep(0.1)
            add_client(connection)
        thread.join(timeout=PATIENCE_SECS)
        assert seen == [1]


def test_a_read_is_of_one_moment_and_waits_for_no_writer(url: str) -> None:
    with opened(url) as catalog:
        count = select(func.count()).select_from(schema.clients)
        with catalog.read() as reader:
            assert reader.execute(count).scalar() == 0
            with catalog.write() as writer:
                add_client(writer)
                assert reader.execute(count).scalar() == 0
            assert reader.execute(count).scalar() == 0
        assert served(catalog) == [0]


def test_a_lock_that_is_held_too_long_is_busy(url: str) -> None:
    waits: list[float] = []
    with opened(url) as holder, opened(url, busy_timeout_secs=0.2, sleep=waits.append) as waiter:
        calls: list[int] = []
        with holder.write():
            begun = time.monotonic()
            with pytest.raises(CatalogBusy) as caught:
                waiter.run(lambda _: calls.append(1))
            assert time.monotonic() - begun > 0.1, "it waited"
        assert waits == [], "once, and did not begin anew"
        assert calls == []
        assert (caught.value.where, caught.value.exit_status) == (waiter.where, 5)
        assert caught.value.next_step
        assert not isinstance(caught.value, CatalogConflict)
        waiter.run(add_client)
        assert served(holder) == [0]


def test_a_write_that_raises_is_undone_and_not_repeated(url: str) -> None:
    with opened(url) as catalog:
        calls: list[int] = []

        def fail_half_way(connection: Connection) -> None:
            calls.append(1)
            add_client(connection)
            raise RuntimeError("half way")

        with pytest.raises(RuntimeError, match="half way"):
            catalog.run(fail_half_way)
        assert (calls, served(catalog)) == ([1], [])


@pytest.mark.parametrize("kind", [CatalogConflict, CatalogLost])
def test_rolled_back_transactions_are_retried_with_backoff(url: str, kind: type[Exception]) -> None:
    waits: list[float] = []
    catalog = Catalog.open(url, sleep=waits.append, draw=lambda: 0.5)
    try:
        attempts: list[int] = []

        def fail_three_times(connection: Connection) -> int:
            attempts.append(1)
            add_client(connection)
            if len(attempts) <= 3:
                raise kind("undone")
            return len(attempts)

        assert catalog.run(fail_three_times) == 4
        assert waits == pytest.approx([0.0375, 0.075, 0.15])
        assert served(catalog) == [0]

        def always_fail(_: Connection) -> None:
            attempts.append(1)
            raise kind("undone")

        attempts.clear()
        with pytest.raises(kind):
            catalog.run(always_fail)
        assert len(attempts) == TRANSACTION_BACKOFF.attempts
    finally:
        catalog.close()


def test_an_error_after_a_commit_in_doubt_does_not_say_that_nothing_was_changed(url: str) -> None:
    catalog = Catalog.open(url, sleep=lambda _: None)
    try:
        attempts: list[int] = []

        def lose(_: Connection) -> None:
            attempts.append(1)
            raise CommitInDoubt("maybe") if len(attempts) == 1 else CatalogLost("gone")

        with pytest.raises(CommitInDoubt):
            catalog.run(lose, idempotent=True)
        assert len(attempts) == TRANSACTION_BACKOFF.attempts
        attempts.clear()
        with pytest.raises(CommitInDoubt):
            catalog.run(lose)
        assert len(attempts) == 1, "only what is idempotent is done again when it may have been done"
    finally:
        catalog.close()


_WRITE_AND_HANG = """
import sys, time
from sqlalchemy import insert
from warehouse.catalog import schema
from warehouse.catalog.catalog import Catalog
with Catalog.open(sys.argv[1]).write() as connection:
    connection.execute(insert(schema.clients).values(name="a", served=0, leased_tasks=0))
    print("inside", flush=True)
    time.sleep(3600)
"""


def test_a_writer_killed_inside_its_transaction_leaves_nothing_and_holds_nothing(url: str) -> None:
    with opened(url) as catalog:
        process = start(_WRITE_AND_HANG, url)
        assert process.stdout is not None
        assert process.stdout.readline() == "inside\n", process.communicate()
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert served(catalog) == []
        catalog.run(add_client)  # its lock went with it
        assert served(catalog) == [0]


_COMPUTE_AND_HANG = """
import sys, time
from tests.warehouse.scenes import compute
from warehouse import Warehouse, WarehouseConfig, lease_tasks
home, url = sys.argv[1:]
warehouse = Warehouse.open(WarehouseConfig(home, url, lease_secs=0.05))
written = [compute(warehouse, task) for task in lease_tasks(warehouse, "doomed", limit=2)]
print(*(one.file.path for one in written), flush=True)
time.sleep(3600)
"""


@pytest.mark.slow
def test_a_worker_killed_between_bytes_and_row_costs_only_its_work(config: WarehouseConfig, tmp_path: Path) -> None:
    with Warehouse.open(replace(config, lease_secs=0.05)) as warehouse:
        register_table(warehouse, "log", str(write_log(tmp_path / "log", hours=1)))
        submit_model(warehouse, model(inputs=3))
        process = start(_COMPUTE_AND_HANG, config.home, config.url)
        assert process.stdout is not None
        files = process.stdout.readline().split()
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert len(files) == 2
        assert all(warehouse.storage.exists(file) for file in files), "the bytes are there, the rows are not"
        assert ready_files(warehouse) == []
        time.sleep(0.1)
        with Warehouse.open(config) as other:
            assert work(other) == 3
        collect_garbage(warehouse, dry_run=False, leftover_secs=-10)
        assert len(ready_files(warehouse)) == 3
        assert all(warehouse.storage.exists(file) for file in ready_files(warehouse))


@pytest.mark.parametrize("ahead_secs", [-300.0, 300.0], ids=["behind", "ahead"])
def test_clocks_that_disagree_cost_work_but_fences_decide(
    config: WarehouseConfig, tmp_path: Path, ahead_secs: float
) -> None:
    right, wrong = Clock(), Clock()
    wrong.advance(ahead_secs)
    with Warehouse.open(config, right) as ours, Warehouse.open(config, wrong) as theirs:
        register_table(ours, "log", str(write_log(tmp_path / "log", hours=1)))
        submit_model(ours, model(inputs=1))
        behind, ahead = (theirs, ours) if ahead_secs < 0 else (ours, theirs)
        (early,) = lease_tasks(behind, "early", limit=9)
        # For whoever's clock is ahead, the other one's lease is over as soon as it is given.
        (late,) = lease_tasks(ahead, "late", limit=9)
        assert (late.task_id, late.fence) == (early.task_id, early.fence + 1)
        assert lease_tasks(behind, "early", limit=9) == (), "to the clock behind, this lease lasts longer"
        assert heartbeat(behind, [early]) == ()
        assert commit_memos(behind, [(early, pretended("memos/early"))])[0] is False
        assert fail_tasks(behind, [(early, Failure("raised", "no"))])[0] is None
        assert release_tasks(behind, [early]) == 0
        assert commit_memos(ahead, [(late, WRITTEN)])[0] is True
        assert ready_files(ours) == ["memos/x"]


@pytest.mark.medium
def test_committing_twice_is_committing_once(config: WarehouseConfig, tmp_path: Path) -> None:
    clock = Clock()
    with Warehouse.open(config, clock) as warehouse:
        register_table(warehouse, "log", str(write_log(tmp_path / "log", hours=2)))
        submit_model(warehouse, model(inputs=1))
        tasks = lease_tasks(warehouse, "w", limit=9)
        done = [(task, compute(warehouse, task)) for task in tasks]
        assert commit_memos(warehouse, done) == (True, True)
        with warehouse.catalog.read() as connection:
            before = connection.execute(select(schema.memos).order_by(schema.memos.c.memo_key)).all()
        clock.advance(100)
        assert commit_memos(warehouse, done) == (True, True)
        with warehouse.catalog.read() as connection:
            assert connection.execute(select(schema.memos).order_by(schema.memos.c.memo_key)).all() == before
        task, written = done[0]
        assert commit_memos(warehouse, [(task, pretended("memos/else"))])[0] is False
        assert commit_memos(warehouse, [(replace(task, lease="f" * 32), written)])[0] is False


def test_ids_are_not_given_twice(config: WarehouseConfig, tmp_path: Path) -> None:
    with Warehouse.open(config) as warehouse:
        register_table(warehouse, "log", str(write_log(tmp_path / "log", hours=2)))
        submit_model(warehouse, model("one", inputs=1))
        before = {task.task_id for task in lease_tasks(warehouse, "w", limit=9)}

        def forget(connection: Connection) -> None:
            values = {"state": MemoState.EVICTED, "task": None, "evicted_at": 0.0, "evicted_why": "forgotten"}
            connection.execute(update(schema.memos).values(**values))
            connection.execute(delete(schema.tasks))

        warehouse.catalog.run(forget)
        submit_model(warehouse, model("two", inputs=2))
        after = {task.task_id for task in lease_tasks(warehouse, "w", limit=9)}
        assert after
        assert min(after) > max(before)


def test_errors_with_characters_that_no_database_keeps(config: WarehouseConfig, tmp_path: Path) -> None:
    with Warehouse.open(replace(config, max_attempts=1)) as warehouse:
        register_table(warehouse, "log", str(write_log(tmp_path / "log", hours=1)))
        submit_model(warehouse, model(inputs=1))
        (task,) = lease_tasks(warehouse, "w", limit=9)
        fail_tasks(warehouse, [(task, Failure("raised", "bad value 'a\0b\udc80'"))])
        with warehouse.catalog.read() as connection:
            assert connection.execute(select(schema.memos.c.cause)).scalar() == r"bad value 'a\0b\udc80'"
