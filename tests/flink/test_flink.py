"""Memoizing on a real Flink: two task managers, workers as processes of their own, one task manager killed midway."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.model_file import load_models
from headrace.sample_log import SampleLogConfig, write_sample_log
from pipelines.beam_runner import RunnerOptions, counters, run_pipeline
from pipelines.formats import globo
from pipelines.formats.options import FormatOptions
from pipelines.fragment_work import FragmentWork
from pipelines.job_server_options import DECLARED, described
from pipelines.memoize import NAMESPACE, JobResults, build
from pipelines.remote_runners import require_runnable
from pipelines.worker import WorkerConfig, group_by_fragment, run_worker
from tests.conftest import ROOT
from tests.flink.cluster import TASK_MANAGERS, FlinkCluster, end, group_of, start, wait_until
from tests.flink.gated_worker import FRAGMENTS_BEFORE_THE_GATE, OPEN
from tests.flink.install import JOB_SERVER
from tests.pipelines.scenes import memo_files, memos, model, open_home, write_log
from transforms.model import Model
from warehouse.queue import lease_tasks
from warehouse.register import register_table
from warehouse.storage import Storage
from warehouse.submit import submit_model

pytestmark = pytest.mark.flink

HOURS = 24


def prepared_log(folder: Path) -> tuple[str, Sequence[Model]]:
    """Globo's clicks where they lie beside the checkout, else the sample log; the table's name and its models."""
    clicks = ROOT.parent / "shared" / "data" / "globo"
    if clicks.is_dir():
        globo.prepare(str(clicks), str(folder), FormatOptions(limit=HOURS))
        return "globo", tuple(load_models(str(ROOT / "examples" / "globo.py")))
    write_sample_log(folder, SampleLogConfig(hours=HOURS, mean_rows_per_hour=3_000), late=False)
    return "search", tuple(load_models(str(ROOT / "examples" / "search_ads.py")))


def submit(home: Path, folder: Path, table: str, models: Sequence[Model]) -> int:
    with open_home(home) as warehouse:
        register_table(warehouse, table, str(folder))
        return sum(submit_model(warehouse, made, table=table).queued for made in models)


def boot_script(path: Path, *command: str) -> Path:
    """A program that a runner can start as a worker."""
    words = shlex.join([sys.executable, "-m", *command])
    path.write_text(f'#!/bin/sh\ncd {shlex.quote(str(ROOT))} && exec {words} "$@"\n')
    path.chmod(0o755)
    return path


def process_flags(boot: Path) -> list[str]:
    return ["--parallelism=2", "--environment_type=PROCESS", f"--environment_options=process_command={boot}"]


def leased(home: Path, log: Path) -> list[FragmentWork]:
    with open_home(home) as warehouse:
        register_table(warehouse, "log", str(log))
        submit_model(warehouse, model())
        return [work for work, _ in group_by_fragment(lease_tasks(warehouse, "tester", limit=1000)).values()]


def test_a_running_job_server_counts_what_was_computed(tmp_path: Path, flink: FlinkCluster) -> None:
    works = leased(tmp_path / "home", write_log(tmp_path / "log", hours=6))
    with flink.job_server() as endpoint:
        boot = boot_script(tmp_path / "boot", "pipelines.beam_worker")
        flags = ("--job_endpoint", endpoint, *process_flags(boot), "--object_reuse", "--max_bundle_size=2")
        options = RunnerOptions("PortableRunner", flags=flags)
        require_runnable(options, str(tmp_path / "home"))
        result = run_pipeline(lambda pipeline: build(pipeline, works, str(tmp_path / "home"), "job"), options)
        counted = counters(result, NAMESPACE)
        assert set(DECLARED["FlinkRunner"]) <= described(endpoint)
    assert (counted["fragments"], counted["rows"], counted["memos"], counted["components_failed"]) == (6, 300, 24, 0)
    found = JobResults(Storage(str(tmp_path / "home")), "job", 6).new()
    assert counted["raw_bytes_read"] == sum(result.raw_bytes_read for result in found)


def results(home: Path) -> list[str]:
    return [file.path for file in Storage(str(home)).list("jobs")]


def test_a_task_manager_killed_midway_changes_no_byte(tmp_path: Path, flink: FlinkCluster) -> None:
    table, models = prepared_log(tmp_path / "log")
    direct, home, gate = tmp_path / "direct", tmp_path / "home", tmp_path / "gate"
    queued = [submit(place, tmp_path / "log", table, models) for place in (direct, home)]
    with open_home(direct) as warehouse:
        report = run_worker(warehouse, WorkerConfig("direct"), until_idle=True)
    assert [report.memos, report.memos] == queued

    gate.mkdir()
    boot = boot_script(tmp_path / "boot", "tests.flink.gated_worker", str(gate))
    command = [sys.executable, "-m", "headrace", "--record", str(tmp_path / "answer.json"), "work", "--until-idle",
               "--home", str(home), "--runner", "FlinkRunner", "--", "--flink_master", flink.address,
               f"--flink_job_server_jar={JOB_SERVER}", "--job_server_jvm_properties=-Xmx192m", *process_flags(boot)]  # fmt: skip
    work = start(command, flink.folder / "headrace-work.log", {"PYTHONPATH": str(ROOT)})
    try:
        alive = {"headrace work": work, "job manager": flink.job_manager}
        before = TASK_MANAGERS * FRAGMENTS_BEFORE_THE_GATE
        wait_until(lambda: len(results(home)) == before, "every worker stands at the gate", alive)
        parents = {int(path.name.partition("-")[2]) for path in gate.iterdir()}
        assert parents == {manager.pid for manager in flink.task_managers}
        expected = memo_files(direct)
        assert before < len(expected)

        lost = flink.task_managers[0]
        os.kill(lost.pid, signal.SIGKILL)
        lost.wait()
        wait_until(lambda: flink.task_managers_known() == TASK_MANAGERS - 1, "Flink misses the task manager", alive)
        (gate / OPEN).touch()
        assert work.wait(timeout=240) == 0, flink.logs()
        wait_until(lambda: not group_of(lost), "the lost task manager's worker ends by itself", {})
        wait_until(lambda: group_of(flink.task_managers[1]) == {flink.task_managers[1].pid}, "all workers ended", {})
    finally:
        end(work)

    answer = json.loads((tmp_path / "answer.json").read_text())
    assert (answer["memos"], answer["failures"]) == (queued[1], 0)
    assert len(list(gate.iterdir())) - 1 > TASK_MANAGERS, "no worker was started again"
    assert memo_files(home) == expected
    with open_home(home) as warehouse:
        assert {row["state"] for row in memos(warehouse).values()} == {"READY"}
