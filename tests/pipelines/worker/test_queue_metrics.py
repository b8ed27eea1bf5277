from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.metrics.address import MetricsAddress
from headrace.metrics.endpoint import Endpoint
from pipelines.worker.queue_metrics import OLDEST, QueueMetrics
from pipelines.worker.report import WorkerReport
from pipelines.worker.state_machine import Instruction, Stop
from pipelines.worker.worker import WorkerConfig, run_worker
from pipelines.worker.worker_metrics import worker_families
from tests.pipelines.scenes import fill, model, open_home, write_log
from tests.support.scraped import scrape
from transforms.metrics.registry import Registry
from warehouse.scheduling.capacity import CapacitySettings
from warehouse.warehouse import Warehouse


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with open_home(tmp_path / "home") as opened:
        yield opened


@contextmanager
def served(queue: QueueMetrics, report: WorkerReport) -> Iterator[str]:
    """The address at which the metrics of a worker are served."""
    registry = Registry()
    registry.add("worker", lambda: worker_families(report))
    registry.add("queue", queue.families)
    with Endpoint(MetricsAddress("127.0.0.1", 0)) as endpoint:
        endpoint.serve(registry)
        yield str(endpoint.address)


def queue_of(warehouse: Warehouse) -> QueueMetrics:
    return QueueMetrics(warehouse, CapacitySettings(threads=1), cache_secs=0.0)


@pytest.mark.medium
def test_a_worker_and_the_queue_are_seen_from_outside(tmp_path: Path, warehouse: Warehouse) -> None:
    queued = fill(warehouse, write_log(tmp_path / "log"), model(), model("other", "shopping", buckets=200))
    report = WorkerReport()
    with served(queue_of(warehouse), report) as address:
        before = scrape(address)
        assert before["headrace_queue_tasks", (("client", "search"), ("state", "queued"))] == 12
        assert before["headrace_queue_tasks", (("client", "shopping"), ("state", "queued"))] == 12
        assert before["headrace_queue_oldest_seconds", (("client", "search"),)] >= 0
        assert before["headrace_queue_wanted_workers", ()] == 1
        assert before["headrace_queue_client_wanted_workers", (("client", "search"),)] == 1
        assert before["headrace_worker_committed_memos_total", ()] == 0
        run_worker(warehouse, WorkerConfig("w", runner_workers=1), until_idle=True, report=report)
        after = scrape(address)
    assert after["headrace_worker_committed_memos_total", ()] == queued == report.memos
    assert after["headrace_worker_rows_total", ()] == report.rows > 0
    assert after["headrace_worker_raw_read_bytes_total", ()] == report.raw_bytes_read > 0
    assert 0 < after["headrace_worker_job_seconds_sum", ()] <= report.secs
    assert after["headrace_worker_job_seconds_count", ()] == report.jobs
    assert after["headrace_worker_commit_seconds_count", ()] >= 1
    assert after["headrace_worker_lease_seconds_count", ()] >= 2, "the last lease found nothing"
    assert after["headrace_worker_leased_tasks_total", ()] == report.tasks
    assert after["headrace_queue_wanted_workers", ()] == 0
    assert after["headrace_queue_unreadable_total", ()] == 0


def test_it_can_be_read_while_a_worker_works(tmp_path: Path, warehouse: Warehouse) -> None:
    fill(warehouse, write_log(tmp_path / "log"))
    report, steps, stop = WorkerReport(), list[Instruction](), threading.Event()
    config = WorkerConfig("w", runner_workers=1, poll_secs=0.01)
    with served(queue_of(warehouse), report) as address:
        arguments = {"until_idle": False, "stop": stop, "on_step": steps.append, "report": report}
        worker = threading.Thread(target=run_worker, args=(warehouse, config), kwargs=arguments)
        worker.start()
        while scrape(address)["headrace_worker_committed_memos_total", ()] < 12:
            assert worker.is_alive()
        stop.set()
        worker.join()
    assert steps[-1] == Stop("stop requested")


def test_a_queue_that_cannot_be_read_stops_nothing(tmp_path: Path, warehouse: Warehouse) -> None:
    fill(warehouse, write_log(tmp_path / "log"))
    warehouse.catalog.close()
    (tmp_path / "home" / "catalog.db").rename(tmp_path / "away.db")
    (tmp_path / "home" / "catalog.db").write_bytes(b"no database, and longer than a header of one is" * 100)
    report = WorkerReport(memos=7)
    with served(queue_of(warehouse), report) as address:
        found = scrape(address)
        assert found["headrace_queue_unreadable_total", ()] == 1
        assert found["headrace_worker_committed_memos_total", ()] == 7
        assert not [name for name, _ in found if name.startswith("headrace_queue_tasks")]
        warehouse.catalog.close()
        for ending in ("", "-wal", "-shm"):
            (tmp_path / "home" / f"catalog.db{ending}").unlink(missing_ok=True)
        (tmp_path / "away.db").rename(tmp_path / "home" / "catalog.db")
        assert ("headrace_queue_wanted_workers", ()) in scrape(address), "it is read again once it can be"


def test_the_queue_is_read_once_in_a_while(tmp_path: Path, warehouse: Warehouse) -> None:
    now = [100.0]
    found = QueueMetrics(warehouse, CapacitySettings(), cache_secs=5, monotonic=lambda: now[0])

    def clients() -> int:
        return sum(len(one.samples) for one in found.families() if one.metric is OLDEST)

    assert clients() == 0
    fill(warehouse, write_log(tmp_path / "log"))
    now[0] += 4
    assert clients() == 0
    now[0] += 1
    assert clients() == 1


def test_a_long_queue_is_read_less_often(tmp_path: Path, warehouse: Warehouse) -> None:
    now = [100.0]

    def monotonic() -> float:
        now[0] += 1  # so long a reading takes: it is asked before and afterwards
        return now[0]

    found = QueueMetrics(warehouse, CapacitySettings(), cache_secs=5, monotonic=monotonic)

    def clients() -> int:
        return sum(len(one.samples) for one in found.families() if one.metric is OLDEST)

    assert clients() == 0
    fill(warehouse, write_log(tmp_path / "log"))
    assert [clients() for _ in range(21)] == [0] * 19 + [1, 1]
