"""Raw files that a real worker cannot read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from sqlalchemy import func, select

from pipelines.worker.report import WorkerReport
from pipelines.worker.state_machine import Instruction, Run
from pipelines.worker.unreadable import ReadFailures
from pipelines.worker.worker import WorkerConfig, run_worker
from tests.pipelines.scenes import fill, memos, write_log
from tests.warehouse.scenes import FREE_READS
from transforms.errors import StorageError
from warehouse.catalog import schema
from warehouse.config import WarehouseConfig
from warehouse.queue.lease import lease_tasks
from warehouse.tables.register import register_table
from warehouse.warehouse import Warehouse

CONFIG = WorkerConfig("tester", runner_workers=1, poll_secs=0.01)
COMPONENTS = 4


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    config = WarehouseConfig(str(tmp_path / "home"), max_attempts=1, max_untried=2, untried_backoff_secs=0.0,
                             rates=FREE_READS)  # fmt: skip
    with Warehouse.open(config) as opened:
        yield opened


@pytest.fixture
def log(tmp_path: Path, warehouse: Warehouse) -> Path:
    """Three hours, a file of each, and a model over them: COMPONENTS tasks a file."""
    root = write_log(tmp_path / "log")
    assert fill(warehouse, root) == 3 * COMPONENTS
    return root


def file(log: Path, hour: int) -> Path:
    return log / "date=2026-01-01" / f"hour={hour:02d}" / "part.parquet"


def spoil(path: Path) -> None:
    """Make the system refuse to open the file."""
    path.unlink()
    path.symlink_to(path)


def work(warehouse: Warehouse, config: WorkerConfig = CONFIG) -> WorkerReport:
    return run_worker(warehouse, config, until_idle=True)


def states(warehouse: Warehouse) -> dict[object, int]:
    found: dict[object, int] = {}
    for row in memos(warehouse).values():
        found[row["state"]] = found.get(row["state"], 0) + 1
    return found


def failed_as(warehouse: Warehouse) -> dict[str, int]:
    """How many failures of each kind are kept."""
    of = schema.failures.c
    with warehouse.catalog.read() as connection:
        return {
            row.kind: row.count
            for row in connection.execute(select(of.kind, func.count().label("count")).group_by(of.kind))
        }


@pytest.mark.parametrize("fault", ["refused", "missing"])
def test_one_unreadable_file_fails_its_own_components_and_no_worker(
    warehouse: Warehouse, log: Path, fault: str
) -> None:
    path = file(log, 1)
    if fault == "refused":
        spoil(path)
    else:
        path.unlink()
    report = work(warehouse)
    assert states(warehouse) == {"READY": 2 * COMPONENTS, "FAILED": COMPONENTS}
    assert failed_as(warehouse) == {"unreadable": COMPONENTS}
    assert report.failures == warehouse.config.max_untried * COMPONENTS, "machines' faults have attempts of their own"
    assert all(str(path) in error for error in report.errors)


@pytest.mark.parametrize("batch", [100, COMPONENTS])
def test_a_worker_on_a_machine_that_cannot_read_releases_its_tasks(tmp_path: Path, batch: int) -> None:
    """Whether it leases all at once, or a file at a time."""
    with Warehouse.open(WarehouseConfig(str(tmp_path / "home"), lease_secs=600.0, rates=FREE_READS)) as warehouse:
        log = write_log(tmp_path / "log")
        fill(warehouse, log)
        ends_and_gives_back(warehouse, log, batch)


def ends_and_gives_back(warehouse: Warehouse, log: Path, batch: int) -> None:
    for hour in range(3):
        spoil(file(log, hour))
    with pytest.raises(StorageError) as caught:
        work(warehouse, WorkerConfig("blind", runner_workers=1, batch_tasks=batch))
    assert caught.value.where.startswith(str(log))
    assert "raw files cannot be read" in caught.value.what
    assert "mount" in caught.value.next_step
    assert states(warehouse) == {"PENDING": 3 * COMPONENTS}
    assert failed_as(warehouse) == {"unreadable": COMPONENTS}, "no more than one file's"
    assert {task.attempt for task in lease_tasks(warehouse, "next", limit=100)} == {1}
    later = Warehouse(warehouse.config, warehouse.catalog, warehouse.storage, lambda: time.time() + 60)
    assert [task.attempt for task in lease_tasks(later, "later", limit=100)] == [2] * COMPONENTS


@pytest.mark.medium
def test_two_bad_files_do_not_end_worker_after_worker(warehouse: Warehouse, log: Path) -> None:
    """Nothing else is left to read: each worker can only think that it is its machine. What others failed at tells otherwise."""
    work_first = WorkerConfig("first", runner_workers=1, batch_tasks=COMPONENTS)
    for hour in (0, 1):
        spoil(file(log, hour))
    ended = 0
    while states(warehouse).get("FAILED", 0) < 2 * COMPONENTS:
        try:
            work(warehouse, work_first)
        except StorageError:
            ended += 1
        assert ended <= 2
    assert states(warehouse) == {"READY": COMPONENTS, "FAILED": 2 * COMPONENTS}


def test_what_a_table_has_replaced_says_nothing_of_the_machine(warehouse: Warehouse, log: Path) -> None:
    """The files of a lease are gone because others took their place: no error, and no long wait."""
    rewritten: list[int] = []

    def rewrite(instruction: Instruction) -> None:
        if isinstance(instruction, Run) and not rewritten:
            for hour in range(3):
                table = pq.read_table(file(log, hour), partitioning=None)
                file(log, hour).unlink()
                pq.write_table(table.slice(1), file(log, hour).with_name("again.parquet"))
                rewritten.append(hour)
            register_table(warehouse, "log", str(log))

    report = run_worker(warehouse, CONFIG, until_idle=True, on_step=rewrite)
    assert report.failures == 3 * COMPONENTS
    assert failed_as(warehouse) == {"data": 3 * COMPONENTS}
    assert states(warehouse)["READY"] == 3 * COMPONENTS


def test_one_unreadable_file_is_not_a_host_fault() -> None:
    once = ReadFailures().add(["a"])
    assert not once.is_host_fault
    assert not once.add(["a"]).is_host_fault
    assert once.add(["b"]).is_host_fault


def test_a_worker_until_idle_does_not_wait_for_minutes(tmp_path: Path) -> None:
    patient = WarehouseConfig(str(tmp_path / "home"), untried_backoff_secs=3600.0, rates=FREE_READS)
    with Warehouse.open(patient) as warehouse:
        root = write_log(tmp_path / "log")
        fill(warehouse, root)
        spoil(file(root, 1))
        report = work(warehouse)
        assert (report.memos, report.failures, report.postponed) == (2 * COMPONENTS, COMPONENTS, COMPONENTS)
        again = work(warehouse)
        assert (again.tasks, again.postponed) == (0, COMPONENTS)
