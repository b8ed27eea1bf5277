"""Memoizing on a real Spark, in one process and on a cluster with a killed executor."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from pipelines.memoize.pipeline import NAMESPACE, build
from pipelines.runners.job_server import DECLARED, fetch_server_options
from pipelines.runners.remote import require_runnable
from pipelines.runners.runner import RunnerOptions, counters, run_pipeline
from tests.conftest import ROOT
from tests.pipelines.scenes import memo_files, memos, open_home, write_log
from tests.spark.cluster import DRIVER, ENVIRONMENT, WORKERS, job_server, running
from tests.spark.install import JOB_SERVER
from tests.support.gated_worker import FRAGMENTS_BEFORE_THE_GATE, open_gate, seen
from tests.support.processes import PATIENCE_SECS, end, groups, start, wait_until
from tests.support.remote_runs import boot_script, leased, process_flags, results, submitted_and_expected

pytestmark = pytest.mark.spark

NEWER_THAN_THE_SERVER = {"prefer_group_by_key_to_handle_huge_values"}


def test_a_running_job_server_counts_what_was_computed(tmp_path: Path) -> None:
    works = leased(tmp_path / "home", write_log(tmp_path / "log", hours=6))
    with job_server("local[4]", tmp_path) as endpoint:
        boot = boot_script(tmp_path / "boot", "pipelines.runners.process_worker")
        flags = ("--job_endpoint", endpoint, *process_flags(boot))
        options = RunnerOptions("SparkRunner", flags=flags)
        require_runnable(options, str(tmp_path / "home"))
        result = run_pipeline(lambda pipeline: build(pipeline, works, str(tmp_path / "home"), "job"), options)
        counted = counters(result, NAMESPACE)
        assert set(DECLARED["SparkRunner"]) - fetch_server_options(endpoint) == NEWER_THAN_THE_SERVER
    assert (counted["fragments"], counted["rows"], counted["memos"], counted["components_failed"]) == (6, 300, 24, 0)


def test_an_executor_killed_midway_changes_no_byte(tmp_path: Path) -> None:
    direct, home, gate = tmp_path / "direct", tmp_path / "home", tmp_path / "gate"
    queued = submitted_and_expected(tmp_path / "log", home, direct)
    gate.mkdir()
    boot = boot_script(tmp_path / "boot", "tests.support.gated_worker", str(gate))
    settings = [f"--job_server_jvm_properties={setting}" for setting in DRIVER]
    with running(tmp_path) as cluster:
        command = [sys.executable, "-m", "headrace", "--record", str(tmp_path / "answer.json"), "work", "--until-idle",
                   "--home", str(home), "--runner", "SparkRunner", "--", f"--spark_master_url={cluster.address}",
                   f"--spark_job_server_jar={JOB_SERVER}", *settings, *process_flags(boot)]  # fmt: skip
        work = start(command, tmp_path / "headrace-work.log", {**ENVIRONMENT, "PYTHONPATH": str(ROOT)})
        try:
            before = WORKERS * FRAGMENTS_BEFORE_THE_GATE
            wait_until(lambda: len(results(home)) == before, "every worker stands at the gate", {"headrace": work})
            expected = memo_files(direct)
            assert before < len(expected)
            executors = {starter for _, starter in seen(gate)}
            assert len(executors) == WORKERS

            lost = min(executors)
            os.kill(lost, signal.SIGKILL)
            orphans = {worker for worker, starter in seen(gate) if starter == lost}
            wait_until(lambda: not orphans & set(groups()), "the lost executor's worker ends by itself", {})
            open_gate(gate)
            assert work.wait(timeout=PATIENCE_SECS) == 0, cluster.logs()
            wait_until(lambda: not {worker for worker, _ in seen(gate)} & set(groups()), "all workers ended", {})
        finally:
            end(work)

    answer = json.loads((tmp_path / "answer.json").read_text())
    assert (answer["memos"], answer["failures"]) == (queued, 0)
    assert memo_files(home) == expected
    with open_home(home) as warehouse:
        assert {row["state"] for row in memos(warehouse).values()} == {"READY"}
