"""Joined columns on a real Flink with two task managers, one of which is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.flink.cluster import TASK_MANAGERS, FlinkCluster
from tests.flink.install import JOB_SERVER
from tests.support.gated_worker import open_gate, waiting
from tests.support.processes import PATIENCE_SECS, end, start, wait_until
from tests.support.remote_runs import boot_script, process_flags
from tests.warehouse.joins.scenes import write_tables
from tests.warehouse.joins.test_refresh import CLICKS, check_counts, model
from warehouse import Warehouse, WarehouseConfig, register_table, submit_model
from warehouse.joins.preview import previewed_columns
from warehouse.tables.manifests import current_fragments, get_table

pytestmark = pytest.mark.flink

COUNT = CLICKS.count(window="50m")


def submitted(folder: Path, hours: int) -> Path:
    folders, home = write_tables(folder, hours), folder / "home"
    with Warehouse.open(WarehouseConfig(str(home), read_threads=1)) as warehouse:
        register_table(warehouse, "log", str(folders.log), time_column="at")
        register_table(warehouse, "clicks", str(folders.clicks), time_column="time")
        submit_model(warehouse, model(COUNT.log1p()))
    return home


def check_values(home: Path) -> None:
    """The columns are those that this process computes."""
    with Warehouse.open(WarehouseConfig(str(home), read_threads=1)) as warehouse:
        check_counts(warehouse, COUNT, 3_000)
        with warehouse.catalog.read() as connection:
            table, fragments = get_table(connection, "log"), current_fragments(connection, "log")
        found = previewed_columns(warehouse, table, {COUNT.node.name: COUNT.node.definition}, fragments)
        assert len(found[COUNT.node.name]) == len(fragments)
        assert [file.path for file in warehouse.storage.list("jobs")] == []


def work_on(flink: FlinkCluster, home: Path, boot: Path, answer: Path) -> list[str]:
    return [sys.executable, "-m", "headrace", "--record", str(answer), "work", "--until-idle", "--home", str(home), "--runner", "FlinkRunner", "--",
            "--flink_master", flink.address, f"--flink_job_server_jar={JOB_SERVER}", "--job_server_jvm_properties=-Xmx192m", "--parallelism=2",
            *process_flags(boot)]  # fmt: skip


def test_a_task_manager_killed_midway_changes_no_joined_column(tmp_path: Path, flink: FlinkCluster) -> None:
    home, gate, answer = submitted(tmp_path, 8), tmp_path / "gate", tmp_path / "answer.json"
    gate.mkdir()
    boot = boot_script(tmp_path / "boot", "tests.support.gated_worker", str(gate))
    work = start(work_on(flink, home, boot, answer), flink.folder / "headrace-work.log", {"PYTHONPATH": str(ROOT)})
    try:
        alive = {"headrace work": work, "job manager": flink.job_manager}
        wait_until(lambda: waiting(gate) >= TASK_MANAGERS, "every worker stands at the gate", alive)
        lost = flink.task_managers[0]
        os.kill(lost.pid, signal.SIGKILL)
        lost.wait()
        wait_until(lambda: flink.task_managers_known() == TASK_MANAGERS - 1, "Flink misses the task manager", alive)
        open_gate(gate)
        assert work.wait(timeout=PATIENCE_SECS) == 0, flink.logs()
    finally:
        end(work)
    done = json.loads(answer.read_text())
    assert (done["joined_fragments"], done["failed_joins"], done["failures"]) == (8, 0, 0)
    check_values(home)
