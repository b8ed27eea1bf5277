from __future__ import annotations

import socket
import struct
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPException
from pathlib import Path
from random import Random

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipelines.worker.metrics import WorkerCollector, serve_metrics
from pipelines.worker.report import WorkerReport
from pipelines.worker.state_machine import Instruction, Stop
from pipelines.worker.worker import WorkerConfig, run_worker
from tests.pipelines.scenes import fill, model, open_home, write_log
from tests.support.examples import scaled
from tests.support.mutations import mutated
from tests.support.processes import PATIENCE_SECS, wait_until
from transforms.errors import InputError
from warehouse.scheduling.capacity import CapacitySettings
from warehouse.warehouse import Warehouse

Figures = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with open_home(tmp_path / "home") as opened:
        yield opened


def is_read(port: int) -> bool:
    """Whether there is a place for a request, and it is answered."""
    with suppress(HTTPException, OSError):
        return ("headrace_wanted_workers", ()) in read(port)
    return False


def read(port: int) -> Figures:
    """Every figure by its name and labels, as Prometheus would see it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECS) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def collector(warehouse: Warehouse, report: WorkerReport, cache_secs: float = 0.0) -> WorkerCollector:
    return WorkerCollector(warehouse, "w", report, CapacitySettings(threads=1), cache_secs=cache_secs)


@pytest.mark.medium
def test_a_worker_and_the_queue_are_seen_from_outside(tmp_path: Path, warehouse: Warehouse) -> None:
    queued = fill(warehouse, write_log(tmp_path / "log"), model(), model("other", "shopping", buckets=200))
    report, me = WorkerReport(), (("worker", "w"),)
    with serve_metrics(collector(warehouse, report), 0) as port:
        before = read(port)
        assert before["headrace_queue_tasks", (("client", "search"), ("state", "queued"))] == 12
        assert before["headrace_queue_tasks", (("client", "shopping"), ("state", "queued"))] == 12
        assert before["headrace_queue_oldest_seconds", (("client", "search"),)] >= 0
        assert before["headrace_wanted_workers", ()] == 1
        assert before["headrace_client_wanted_workers", (("client", "search"),)] == 1
        assert before["headrace_tasks_committed_total", me] == 0
        run_worker(warehouse, WorkerConfig("w", runner_workers=1), until_idle=True, report=report)
        after = read(port)
    assert after["headrace_tasks_committed_total", me] == queued == report.memos
    assert after["headrace_rows_total", me] == report.rows > 0
    assert after["headrace_raw_bytes_read_total", me] == report.raw_bytes_read > 0
    assert 0 < after["headrace_job_seconds_total", me] <= report.secs
    assert after["headrace_wanted_workers", ()] == 0
    assert after["headrace_queue_unreadable_total", me] == 0


def test_it_can_be_read_while_a_worker_works(tmp_path: Path, warehouse: Warehouse) -> None:
    fill(warehouse, write_log(tmp_path / "log"))
    report, steps, stop = WorkerReport(), list[Instruction](), threading.Event()
    config = WorkerConfig("w", runner_workers=1, poll_secs=0.01)
    with serve_metrics(collector(warehouse, report), 0) as port:
        arguments = {"until_idle": False, "stop": stop, "on_step": steps.append, "report": report}
        worker = threading.Thread(target=run_worker, args=(warehouse, config), kwargs=arguments)
        worker.start()
        while read(port)["headrace_tasks_committed_total", (("worker", "w"),)] < 12:
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
    with serve_metrics(collector(warehouse, report), 0) as port:
        found = read(port)
        assert found["headrace_queue_unreadable_total", (("worker", "w"),)] == 1
        assert found["headrace_tasks_committed_total", (("worker", "w"),)] == 7
        assert not [name for name, _ in found if name.startswith("headrace_queue_tasks")]
        warehouse.catalog.close()
        for ending in ("", "-wal", "-shm"):
            (tmp_path / "home" / f"catalog.db{ending}").unlink(missing_ok=True)
        (tmp_path / "away.db").rename(tmp_path / "home" / "catalog.db")
        assert ("headrace_wanted_workers", ()) in read(port), "it is read again once it can be"


def test_the_queue_is_read_once_in_a_while(tmp_path: Path, warehouse: Warehouse) -> None:
    now = [100.0]
    found = WorkerCollector(warehouse, "w", WorkerReport(), CapacitySettings(), cache_secs=5, monotonic=lambda: now[0])

    def clients() -> int:
        return sum(len(family.samples) for family in found.collect() if family.name == "headrace_queue_oldest_seconds")

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

    found = WorkerCollector(warehouse, "w", WorkerReport(), CapacitySettings(), cache_secs=5, monotonic=monotonic)

    def clients() -> int:
        return sum(len(family.samples) for family in found.collect() if family.name == "headrace_queue_oldest_seconds")

    assert clients() == 0
    fill(warehouse, write_log(tmp_path / "log"))
    assert [clients() for _ in range(21)] == [0] * 19 + [1, 1]


def test_a_taken_port_is_refused(warehouse: Warehouse) -> None:
    with (
        serve_metrics(collector(warehouse, WorkerReport()), 0) as port,
        pytest.raises(InputError, match="port"),
        serve_metrics(collector(warehouse, WorkerReport()), port),
    ):
        pass


_REQUEST = b"GET /metrics?name[]=headrace_rows_total HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text;q=0.5,text/plain\r\nAccept-Encoding: gzip\r\n\r\n"


@pytest.mark.slow
def test_what_other_processes_send_ends_without_a_trace(
    warehouse: Warehouse, capfd: pytest.CaptureFixture[str]
) -> None:
    """Damaged requests, connections that are cut off in the middle of an answer, and more silent ones than are read at once."""
    tokens = (b"\xff" * 8, b"\r\n", b"\0", b"%" * 9, b"&" * 2000, b"HTTP/9.9", b"\xed\xa0\x80", b"9" * 400)
    with serve_metrics(collector(warehouse, WorkerReport()), 0) as port:
        for seed in range(scaled(1000)):
            draw = Random(seed)
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), PATIENCE_SECS) as stream:
                stream.settimeout(2.0)
                stream.sendall(mutated(_REQUEST, draw, tokens))
                if draw.random() < 0.3:
                    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset
                    continue
                stream.shutdown(socket.SHUT_WR)
                while stream.recv(1 << 16):
                    continue
        before = threading.active_count()
        with ExitStack() as silent:
            for _ in range(60):
                silent.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_SECS)).sendall(b"GET /")
            assert threading.active_count() <= before + 17
        wait_until(lambda: is_read(port), "the figures are read again", {})
    assert "Traceback" not in capfd.readouterr().err
