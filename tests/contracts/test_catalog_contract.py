"""The contract of a catalog under several processes, on each database."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import func, select

from tests.support.processes import PATIENCE_SECS
from tests.warehouse.scenes import model, start, write_log
from warehouse import Warehouse, WarehouseConfig, register_table, submit_model
from warehouse.catalog import schema
from warehouse.scheduling.task_states import MEMO_OF_TASK, MemoState, TaskState

_SUBMIT = """
import sys, time
from tests.warehouse.scenes import model
from warehouse import Warehouse, WarehouseConfig, submit_model
home, url, name, client, inputs = sys.argv[1:]
with Warehouse.open(WarehouseConfig(home, url)) as warehouse:
    made = model(name, client, inputs=int(inputs))
    print("ready", flush=True)
    sys.stdin.readline()
    found = submit_model(warehouse, made)
    print(found.version, found.queued, found.shared, found.hits)
"""


@pytest.mark.slow
def test_models_submitted_at_once_queue_no_memo_twice(config: WarehouseConfig, tmp_path: Path) -> None:
    sizes = (3, 4, 5, 5, 1, 5, 2, 4)
    with Warehouse.open(config) as warehouse:
        register_table(warehouse, "log", str(write_log(tmp_path / "log", hours=8, rows=3)))
        processes = [
            start(_SUBMIT, config.home, config.url, f"model_{i}", f"client_{i % 2}", inputs)
            for i, inputs in enumerate(sizes)
        ]
        found = [line.split() for line in run_together(processes)]
        assert {version for version, *_ in found} == {"1"}
        assert sum(int(queued) for _, queued, _, _ in found) == 5 * 8
        assert sum(int(shared) for _, _, shared, _ in found) == (sum(sizes) - 5) * 8
        with warehouse.catalog.read() as connection:
            assert connection.execute(select(func.count()).select_from(schema.memos)).scalar() == 5 * 8
            tasks = connection.execute(select(schema.tasks.c.fragment)).scalars().all()
            assert len(set(tasks)) == 8
            assert len(tasks) <= 5 * 8, "one for each submission that queued something"
            assert connection.execute(select(func.count()).select_from(schema.waits)).scalar() == sum(sizes)


@pytest.mark.slow
def test_the_same_model_submitted_at_once_is_one_version(config: WarehouseConfig, tmp_path: Path) -> None:
    with Warehouse.open(config) as warehouse:
        register_table(warehouse, "log", str(write_log(tmp_path / "log", hours=2, rows=3)))
        processes = [start(_SUBMIT, config.home, config.url, "same", "client", 3) for _ in range(3)]
        found = sorted(line.split() for line in run_together(processes))
        assert found == [["1", "0", "6", "0"], ["1", "0", "6", "0"], ["1", "6", "0", "0"]]


_WORK = """
import sys
from tests.warehouse.scenes import work
from warehouse import Warehouse, WarehouseConfig
home, url, name = sys.argv[1:]
with Warehouse.open(WarehouseConfig(home, url, lease_secs=3600.0)) as warehouse:
    print("ready", flush=True)
    sys.stdin.readline()
    print(work(warehouse, name, most=10**6))
"""


@pytest.mark.slow
def test_workers_at_once_compute_everything_exactly_once(config: WarehouseConfig, tmp_path: Path) -> None:
    with Warehouse.open(config) as warehouse:
        register_table(warehouse, "log", str(write_log(tmp_path / "log", hours=12, rows=5)))
        submit_model(warehouse, model(inputs=5))
        done = run_together([start(_WORK, config.home, config.url, f"w{i}") for i in range(3)])
        assert sum(int(line) for line in done) == 60
        assert len(ready_files(warehouse)) == 60
        with warehouse.catalog.read() as connection:
            assert set(connection.execute(select(schema.memos.c.state)).scalars()) == {MEMO_OF_TASK[TaskState.DONE]}
            assert connection.execute(select(schema.tasks)).all() == []


def ready_files(warehouse: Warehouse) -> list[str]:
    """The file of every memo that is ready, whether reading it is the cheapest or not."""
    files, memos = schema.memo_files.c, schema.memos.c
    query = select(files.path).join(schema.memos, memos.file == files.id).where(memos.state == MemoState.READY)
    with warehouse.catalog.read() as connection:
        return list(connection.execute(query.order_by(memos.memo_key)).scalars())


def run_together(processes: Sequence[subprocess.Popen[str]]) -> list[str]:
    """Wait until all are ready, let them go at once, and return what each printed last."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    lines = []
    for process in processes:
        out, err = process.communicate(timeout=PATIENCE_SECS)
        assert process.returncode == 0, err
        lines.append(out.strip())
    return lines
