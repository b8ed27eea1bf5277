"""Memoizing on a real Flink with two task managers, one of which is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from pipelines.memoize.job_results import JobResults
from pipelines.memoize.pipeline import NAMESPACE, build
from pipelines.runners.job_server import DECLARED, fetch_server_options
from pipelines.runners.remote import require_runnable
from pipelines.runners.runner import RunnerOptions, counters, run_pipeline
from tests.conftest import ROOT
from tests.flink.cluster import TASK_MANAGERS, FlinkCluster
from tests.flink.install import JOB_SERVER
from tests.pipelines.scenes import memo_files, memos, open_home, write_log
from tests.support.gated_worker import FRAGMENTS_BEFORE_THE_GATE, open_gate, seen
from tests.support.processes import PATIENCE_SECS, end, group_of, start, wait_until
from tests.support.remote_runs import boot_script, leased, process_flags, results, submitted_and_expected
from warehouse.storage.storage import Storage

pytestmark = pytest.mark.flink


def test_a_running_job_server_counts_what_was_computed(tmp_path: Path, flink: FlinkCluster) -> None:
    works = leased(tmp_path / "home", write_log(tmp_path / "log", hours=6))
    with flink.job_server() as endpoint:
        boot = boot_script(tmp_path / "boot", "pipelines.runners.process_worker")
        flags = (
            "--job_endpoint",
            endpoint,
            "--parallelism=2",
            *process_flags(boot),
            "--object_reuse",
            "--max_bundle_size=2",
        )
        options = RunnerOptions("PortableRunner", flags=flags)
        require_runnable(options, str(tmp_path / "home"))
        result = run_pipeline(lambda pipeline: build(pipeline, works, str(tmp_path / "home"), "job"), options)
        counted = counters(result, NAMESPACE)
        assert set(DECLARED["FlinkRunner"]) <= fetch_server_options(endpoint)
    assert (counted["fragments"], counted["rows"], counted["memos"], counted["components_failed"]) == (6, 300, 24, 0)
    found = JobResults(Storage(str(tmp_path / "home")), "job", 6).new()
    assert counted["raw_bytes_read"] == sum(result.raw_bytes_read for result in found)


def test_a_task_manager_killed_midway_changes_no_byte(tmp_path: Path, flink: FlinkCluster) -> None:
    direct, home, gate = tmp_path / "direct", tmp_path / "home", tmp_path / "gate"
    queued = submitted_and_expected(tmp_path / "log", home, direct)

    gate.mkdir()
    boot = boot_script(tmp_path / "boot", "tests.support.gated_worker", str(gate))
    command = [sys.executable, "-m", "headrace", "--record", str(tmp_path / "answer.json"), "work", "--until-idle",
               "--home", str(home), "--runner", "FlinkRunner", "--", "--flink_master", flink.address,
               f"--flink_job_server_jar={JOB_SERVER}", "--job_server_jvm_properties=-Xmx192m", "--parallelism=2", *process_flags(boot)]  # fmt: skip
    work = start(command, flink.folder / "headrace-work.log", {"PYTHONPATH": str(ROOT)})
    try:
        alive = {"headrace work": work, "job manager": flink.job_manager}
        before = TASK_MANAGERS * FRAGMENTS_BEFORE_THE_GATE
        wait_until(lambda: len(results(home)) == before, "every worker stands at the gate", alive)
        parents = {starter for _, starter in seen(gate)}
        assert parents == {manager.pid for manager in flink.task_managers}
        expected = memo_files(direct)
        assert before < len(expected)

        lost = flink.task_managers[0]
        os.kill(lost.pid, signal.SIGKILL)
        lost.wait()
        wait_until(lambda: flink.task_managers_known() == TASK_MANAGERS - 1, "Flink misses the task manager", alive)
        open_gate(gate)
        assert work.wait(timeout=PATIENCE_SECS) == 0, flink.logs()
        wait_until(lambda: not group_of(lost), "the lost task manager's worker ends by itself", {})
        wait_until(lambda: group_of(flink.task_managers[1]) == {flink.task_managers[1].pid}, "all workers ended", {})
    finally:
        end(work)

    answer = json.loads((tmp_path / "answer.json").read_text())
    assert (answer["memos"], answer["failures"]) == (queued, 0)
    assert len(seen(gate)) > TASK_MANAGERS, "no worker was started again"
    assert memo_files(home) == expected
    with open_home(home) as warehouse:
        assert {row["state"] for row in memos(warehouse).values()} == {"READY"}
