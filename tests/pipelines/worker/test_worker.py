from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

import transforms.expressions.expression as hr
from pipelines.memoize.pipeline import MemoizeFragments
from pipelines.worker.progress import WorkProgress
from pipelines.worker.report import ERRORS_KEPT, WorkerReport
from pipelines.worker.state_machine import Instruction, Lease, Run, Sleep, Stop, WorkerState, decide
from pipelines.worker.worker import WorkerConfig, run_worker
from tests.pipelines.scenes import (
    REPOSITORY,
    fill,
    memo_files,
    memo_values,
    memos,
    model,
    open_home,
    start_worker,
    write_log,
)
from tests.support.processes import PATIENCE_SECS, wait_until
from transforms.errors import InputError, StorageError
from transforms.expressions.model import Model
from transforms.functions import op
from transforms.graphs.graph import operator_versions
from warehouse import Failure
from warehouse.catalog import schema
from warehouse.maintenance.gc import collect_garbage
from warehouse.queue.depths import queue_depths
from warehouse.queue.lease import lease_tasks
from warehouse.warehouse import Warehouse

CONFIG = WorkerConfig("tester", runner_workers=1, poll_secs=0.05)


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with open_home(tmp_path / "home") as opened:
        yield opened


def work(warehouse: Warehouse, config: WorkerConfig = CONFIG) -> WorkerReport:
    return run_worker(warehouse, config, until_idle=True)


def states(warehouse: Warehouse) -> set[object]:
    return {row["state"] for row in memos(warehouse).values()}


def test_every_state_has_one_instruction() -> None:
    for leased, empty, unfinished, until_idle, stop in product(
        (0, 2), (False, True), (0, 3), (False, True), (False, True)
    ):
        instruction = decide(WorkerState(leased, empty, unfinished, until_idle, stop))
        if leased:
            assert instruction == Run()
        elif stop:
            assert instruction == Stop("stop requested")
        elif not empty:
            assert instruction == Lease()
        elif until_idle and not unfinished:
            assert instruction == Stop("no task is left")
        else:
            assert instruction == Sleep()


def test_a_worker_empties_the_queue_in_one_job(tmp_path: Path, warehouse: Warehouse) -> None:
    queued = fill(warehouse, write_log(tmp_path / "log"), model(), model("other", "shopping", buckets=200))
    steps: list[Instruction] = []
    seen: list[WorkProgress] = []
    report = run_worker(warehouse, CONFIG, until_idle=True, on_step=steps.append, progress=seen.append)
    assert queued == 21
    assert steps == [Lease(), Run(), Lease(), Stop("no task is left")]
    assert (report.tasks, report.memos, report.failures, report.fenced) == (21, 21, 0, 0)
    assert (report.fragments, report.jobs, report.rows) == (3, 1, 21 * 50)
    raw = pq.read_table(tmp_path / "log" / "date=2026-01-01" / "hour=00", columns=["query", "title", "price"])
    assert report.raw_bytes_read == pytest.approx(3 * raw.nbytes, rel=0.1)  # each fragment once, for both models
    assert states(warehouse) == {"READY"}
    assert len(memo_values(warehouse)) == 21
    assert seen[0] == WorkProgress(tasks_total=21)
    assert seen[-1] == WorkProgress(21, 21, 3, 150, report.raw_bytes_read, 0.0)
    assert not (tmp_path / "home" / "jobs").exists(), "in this process, results are handed over in memory"


def test_what_operators_took_is_in_the_catalog(tmp_path: Path, warehouse: Warehouse) -> None:
    fill(warehouse, write_log(tmp_path / "log"))
    report = work(warehouse)
    with warehouse.catalog.read() as connection:
        operators = connection.execute(sa.select(schema.operator_costs)).all()
        components = connection.execute(sa.select(schema.component_costs)).all()
    used = {name for item in model().inputs.values() for name in operator_versions(item.component)}
    assert {row.operator for row in operators} == used
    assert all(row.rows > 0 and row.secs > 0 for row in operators)
    assert sum(row.rows for row in components) == pytest.approx(report.rows, rel=1e-3)  # it fades, but slowly
    assert sum(row.stored_rows for row in operators) == pytest.approx(report.rows, rel=1e-3)


@pytest.mark.medium
def test_small_leases_give_the_same_values(tmp_path: Path, warehouse: Warehouse) -> None:
    fill(warehouse, write_log(tmp_path / "log", hours=2))
    report = work(warehouse, WorkerConfig("tester", batch_tasks=3, runner_workers=1))
    assert (report.memos, report.jobs) == (8, 3)
    with open_home(tmp_path / "other") as other:
        fill(other, tmp_path / "log")
        work(other)
        assert memo_values(other) == memo_values(warehouse)


def test_an_empty_queue_is_no_job(warehouse: Warehouse) -> None:
    report = work(warehouse)
    assert (report.tasks, report.jobs) == (0, 0)


def test_a_worker_that_is_asked_to_stops(tmp_path: Path, warehouse: Warehouse) -> None:
    stop = threading.Event()
    fill(warehouse, write_log(tmp_path / "log", hours=1))

    def after_first_sleep(instruction: Instruction) -> None:
        if isinstance(instruction, Sleep):
            stop.set()

    report = run_worker(warehouse, CONFIG, until_idle=False, stop=stop, on_step=after_first_sleep)
    assert report.memos == 4


@pytest.mark.medium
def test_a_changed_raw_file_fails_its_tasks_and_no_other(tmp_path: Path, warehouse: Warehouse) -> None:
    root = write_log(tmp_path / "log")
    fill(warehouse, root)
    path = root / "date=2026-01-01" / "hour=01" / "part.parquet"
    raw = pq.read_table(path)
    pq.write_table(raw.set_column(2, "price", pa.array([1.0] * 50, pa.float32())), path)
    report = work(warehouse)
    assert report.memos == 11
    assert report.failures == warehouse.config.max_attempts
    assert "changed since it was registered" in report.errors[0]
    failed = [row for row in memos(warehouse).values() if row["state"] == "FAILED"]
    assert len(failed) == 1
    assert queue_depths(warehouse)[0].failed == 1


def test_a_report_keeps_the_first_different_errors_and_counts_all() -> None:
    report = WorkerReport()
    for number in range(3 * ERRORS_KEPT):
        report.count_failure(Failure("raised", f"ValueError: number {number // 2}"))
    assert report.failures == 3 * ERRORS_KEPT
    assert report.errors == [f"ValueError: number {number}" for number in range(ERRORS_KEPT)]


@pytest.mark.slow
def test_what_crashes_is_quarantined_with_its_sample_and_the_others_commit(tmp_path: Path) -> None:
    @op(result="string")
    def quits(text):
        if any("red" in (each or "") for each in text.to_pylist()):
            raise SystemExit(3)
        return text

    with open_home(tmp_path / "home", max_attempts=1) as warehouse:
        mixed = model()
        mixed.input("bad", quits(hr.text("query")))
        fill(warehouse, write_log(tmp_path / "log", rows=30), mixed)
        before = memo_files(tmp_path / "home")
        report = work(warehouse)
        rows = memos(warehouse).values()
        failed = [row for row in rows if row["state"] == "FAILED"]
        assert (report.memos, report.failures) == (12 + 3 - len(failed), len(failed))
        assert 1 <= len(failed) <= 3
        assert not before
        for error in report.errors:
            assert error.startswith(
                "operator python_function: its process ended with status 3 in python_function(query, "
            )
            assert '"query": "' in error
            assert "red" in error.partition("; event ")[2]


def test_a_full_disk_stops_the_worker_and_costs_no_attempt(tmp_path: Path, warehouse: Warehouse) -> None:
    fill(warehouse, write_log(tmp_path / "log"))
    (tmp_path / "home" / "memos").write_text("a file where the folder should be")
    with pytest.raises(StorageError):
        work(warehouse)
    assert states(warehouse) == {"PENDING"}
    assert queue_depths(warehouse)[0].queued == 12
    (tmp_path / "home" / "memos").unlink()
    assert {task.attempt for task in lease_tasks(warehouse, "next", limit=100)} == {1}


def test_a_lost_lease_is_not_committed_over(tmp_path: Path) -> None:
    now = [1_760_000_000.0]
    with open_home(tmp_path / "home") as opened:
        warehouse = Warehouse(opened.config, opened.catalog, opened.storage, lambda: now[0])
        fill(warehouse, write_log(tmp_path / "log", hours=1))

        def lose_the_lease(instruction: Instruction) -> None:
            if isinstance(instruction, Run):
                now[0] += 1000
                assert len(lease_tasks(warehouse, "thief", limit=100)) == 4
                now[0] += 1000

        steps: list[Instruction] = []

        def on_step(instruction: Instruction) -> None:
            if not any(isinstance(step, Run) for step in steps):
                lose_the_lease(instruction)
            steps.append(instruction)

        report = run_worker(warehouse, CONFIG, until_idle=True, on_step=on_step)
        # The first job is fenced off; then the thief's lease has run out too, and the second job commits.
        assert (report.fenced, report.memos, report.jobs) == (4, 4, 2)
        assert states(warehouse) == {"READY"}


@op(result="string")
def slowly(text):
    select.select([], [], [], 0.25)  # whatever the machine; functions may not ask for the time
    return text


def slow_model() -> Model:
    slow = Model("slow", client="search", label="clicked", table="log")
    slow.input("query", slowly(hr.text("query")))
    return slow


@pytest.mark.slow
def test_an_unattended_job_ends(tmp_path: Path, warehouse: Warehouse) -> None:
    """Nobody keeps its leases: what it would compute from then on, others compute too."""
    fill(warehouse, write_log(tmp_path / "log", hours=40, rows=5), slow_model())

    def breaks(done: WorkProgress) -> None:
        if done.fragments:
            raise ZeroDivisionError("the attendant's end")

    with pytest.raises(ZeroDivisionError):
        run_worker(warehouse, CONFIG, until_idle=True, progress=breaks)
    (depth,) = queue_depths(warehouse)
    assert (depth.leased, depth.queued + _ready(warehouse)) == (0, 40)
    assert len(memo_files(tmp_path / "home")) < 40


STOPPED = """
import sys
from pathlib import Path
from headrace.terminal.stopping import ended_by_signals
from pipelines.worker.worker import WorkerConfig, run_worker
from tests.pipelines.scenes import open_home
home, threads = sys.argv[1:]
with open_home(Path(home)) as warehouse, ended_by_signals():
    run_worker(warehouse, WorkerConfig("told", runner_workers=int(threads)), until_idle=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_a_stopped_worker_releases_tasks_that_it_has_not_started(
    tmp_path: Path, warehouse: Warehouse, threads: int
) -> None:
    # Fifteen seconds of work at the least, of which the signal leaves most: it is sent when the first memo is ready.
    fill(warehouse, write_log(tmp_path / "log", hours=120, rows=5), slow_model())
    command = [sys.executable, "-c", STOPPED, str(tmp_path / "home"), str(threads)]
    worker = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, stderr=subprocess.PIPE)
    try:
        while worker.poll() is None and not _ready(warehouse):
            time.sleep(0.01)
        worker.send_signal(signal.SIGTERM)
        _, said = worker.communicate(timeout=PATIENCE_SECS)
    finally:
        worker.kill()
    assert worker.returncode == 143, said
    (depth,) = queue_depths(warehouse)
    assert (depth.leased, depth.queued + _ready(warehouse)) == (0, 120)
    assert len(memo_files(tmp_path / "home")) < 120


def test_a_worker_stopped_before_its_job_releases_all_tasks(tmp_path: Path, warehouse: Warehouse) -> None:
    fill(warehouse, write_log(tmp_path / "log", hours=1))

    def told(instruction: Instruction) -> None:
        if isinstance(instruction, Run):
            raise SystemExit(143)

    with pytest.raises(SystemExit):
        run_worker(warehouse, CONFIG, until_idle=True, on_step=told)
    (depth,) = queue_depths(warehouse)
    assert (depth.leased, depth.queued) == (0, 4)


def _earliest_end(warehouse: Warehouse) -> float:
    """When the first of the leases that are held runs out."""
    of = schema.tasks.c
    with warehouse.catalog.read() as connection:
        return float(
            connection.execute(sa.select(sa.func.min(of.lease_until)).where(of.state == "LEASED")).scalar_one()
        )


@pytest.mark.medium
def test_leases_are_kept_alive_while_a_job_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time goes on by most of a lease whenever all leases were renewed, and the job ends once that happened five times."""
    lease_secs, now, proved, stolen = 0.9, [1_760_000_000.0], threading.Event(), []
    compute = MemoizeFragments.work

    def after_the_proof(step: MemoizeFragments, element: str) -> Any:
        assert proved.wait(PATIENCE_SECS), "the leases were not renewed"
        return compute(step, element)

    monkeypatch.setattr(MemoizeFragments, "work", after_the_proof)
    with open_home(tmp_path / "home", lease_secs) as opened:
        warehouse = Warehouse(opened.config, opened.catalog, opened.storage, lambda: now[0])
        tasks = fill(warehouse, write_log(tmp_path / "log", hours=1))

        def thief() -> None:
            for _ in range(5):
                wait_until(lambda: _earliest_end(warehouse) > now[0] + 0.8 * lease_secs, "the leases are renewed", {})
                now[0] += 0.8 * lease_secs
                stolen.append(len(lease_tasks(warehouse, "thief", limit=1)))
            proved.set()

        thread = threading.Thread(target=thief)

        def on_step(instruction: Instruction) -> None:
            if isinstance(instruction, Run):
                thread.start()

        report = run_worker(warehouse, CONFIG, until_idle=True, on_step=on_step)
        thread.join()
        assert stolen == [0] * 5
        assert (report.memos, report.fenced, report.jobs) == (tasks, 0, 1)


def test_results_that_nobody_waits_for_are_removed_after_a_week(tmp_path: Path, warehouse: Warehouse) -> None:
    old, young = "0" * 32, "1" * 32
    for name, age_days in ((old, 8), (young, 1)):
        warehouse.storage.write_atomic(f"jobs/{name}-000000.json", b"{}")
        then = time.time() - age_days * 86_400
        os.utime(tmp_path / "home" / "jobs" / f"{name}-000000.json", (then, then))
    work(warehouse)
    assert [path.name for path in (tmp_path / "home" / "jobs").iterdir()] == [f"{young}-000000.json"]


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(InputError, match="name"):
        WorkerConfig("")
    with pytest.raises(InputError, match="at least one task"):
        WorkerConfig("w", batch_tasks=0)


HOURS, ROWS = 48, 3000


def undisturbed(tmp_path: Path, root: Path) -> tuple[dict[str, pa.Array], dict[str, bytes]]:
    with open_home(tmp_path / "undisturbed") as warehouse:
        fill(warehouse, root)
        work(warehouse)
        return memo_values(warehouse), memo_files(tmp_path / "undisturbed")


def _ready(warehouse: Warehouse) -> int:
    return sum(row["state"] == "READY" for row in memos(warehouse).values())


def _has_begun(warehouse: Warehouse, ready_before: int, *, by_commit: bool) -> bool:
    """Whether the worker has committed something, or else has leased something."""
    if by_commit:
        return _ready(warehouse) > ready_before
    return any(depth.leased for depth in queue_depths(warehouse))


@pytest.mark.slow
def test_workers_killed_in_the_middle_lose_nothing(tmp_path: Path) -> None:
    root = write_log(tmp_path / "log", HOURS, ROWS)
    values, files = undisturbed(tmp_path, root)
    home = tmp_path / "home"
    moments = random.Random(11)
    with open_home(home, lease_secs=1.0, max_attempts=50) as warehouse:
        queued = fill(warehouse, root)
        ready = [0]
        for number in range(3):
            worker = start_worker(home, f"victim-{number}", lease_secs=1.0, fragments=10)
            while worker.poll() is None and not _has_begun(warehouse, ready[-1], by_commit=number < 2):
                time.sleep(0.01)
            time.sleep(moments.uniform(0.0, 0.2))
            worker.send_signal(signal.SIGKILL)
            worker.communicate()
            ready.append(_ready(warehouse))
        assert any(0 < count < queued for count in ready), "no worker was killed in the middle"
        last = start_worker(home, "last", lease_secs=1.0)
        printed, errors = last.communicate(timeout=PATIENCE_SECS)
        assert last.returncode == 0, errors[-2000:]
        committed, fenced, _ = map(int, printed.split())
        assert (committed, fenced) == (queued - ready[-1], 0)
        assert states(warehouse) == {"READY"}
        assert memo_values(warehouse) == values
        (depth,) = queue_depths(warehouse)
        assert (depth.queued, depth.leased, depth.failed) == (0, 0, 0)
        # A write that a kill cut short leaves a hidden file that nobody reads; gc removes it.
        collect_garbage(warehouse, dry_run=False, leftover_secs=0)
        assert memo_files(home) == files


@pytest.mark.slow
def test_two_workers_share_the_queue(tmp_path: Path) -> None:
    root = write_log(tmp_path / "log", 24, 300)
    values, _ = undisturbed(tmp_path, root)
    home = tmp_path / "home"
    with open_home(home) as warehouse:
        queued = fill(warehouse, root)
        workers = [start_worker(home, f"worker-{number}", batch=16, wait=True) for number in range(2)]
        for worker in workers:  # both have started before one of them takes a task
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        counts = []
        for worker in workers:
            printed, errors = worker.communicate(timeout=PATIENCE_SECS)
            assert worker.returncode == 0, errors[-2000:]
            counts.append([int(number) for number in printed.split()])
        assert all(committed > 0 for committed, _, _ in counts)
        assert sum(committed for committed, _, _ in counts) == queued
        assert sum(leased for _, _, leased in counts) == queued
        assert memo_values(warehouse) == values
        assert [depth.leased for depth in queue_depths(warehouse)] == [0]
