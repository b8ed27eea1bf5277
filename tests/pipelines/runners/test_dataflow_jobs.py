"""Jobs that Dataflow's real client submits, waits for and cancels at a local service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from headrace.cli.main import run
from pipelines.errors import JobFailed, JobRefused
from pipelines.runners.error_documents import error_document
from pipelines.worker.worker import run_worker
from tests.pipelines.runners.dataflow_scenes import Cloud
from tests.pipelines.scenes import REPOSITORY
from tests.support.processes import PATIENCE_SECS
from transforms.errors import StorageError
from warehouse import Storage, Warehouse
from warehouse.queue.depths import queue_depths

COMMAND = "import sys; from headrace.cli.main import main; main(sys.argv[1:])"


def queued(warehouse: Warehouse) -> list[tuple[int, int]]:
    return [(depth.queued, depth.leased) for depth in queue_depths(warehouse)]


def headrace(cloud: Cloud, *arguments: str) -> subprocess.Popen[str]:
    """The command, in a process of its own."""
    environment = {**os.environ, **cloud.environment, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen([sys.executable, "-c", COMMAND, *arguments], env=environment, cwd=cloud.folder,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("told", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_worker_cancels_its_job_and_releases_its_tasks(
    cloud: Cloud, told: signal.Signals, status: int
) -> None:
    with cloud.open() as warehouse:
        tasks = cloud.fill(warehouse)
        arguments = ("work", "--runner", "DataflowRunner", "--name", "Night Shift", "--", *cloud.flags(cloud.here))
        worker = headrace(cloud, *arguments)
        try:
            assert cloud.service.watched.wait(PATIENCE_SECS), "no job was submitted"
            assert queued(warehouse) == [(0, tasks)]
            worker.send_signal(told)
            _, said = worker.communicate(timeout=PATIENCE_SECS)
        finally:
            worker.kill()
        assert worker.returncode == status, said
        (job,) = cloud.service.jobs.values()
        assert job["currentState"] == "JOB_STATE_CANCELLED"
        assert job["name"].startswith("headrace-night-shift-")
        assert queued(warehouse) == [(tasks, 0)]


@pytest.mark.slow
def test_a_failed_job_is_one_error_and_its_tasks_are_released(cloud: Cloud) -> None:
    text = "Traceback (most recent call last): no space on the worker's disk"
    cloud.service.on_job = lambda job: cloud.service.fail(job, text)
    with cloud.open() as warehouse:
        tasks = cloud.fill(warehouse)
        with pytest.raises(JobFailed, match="the Dataflow job failed") as caught:
            run_worker(warehouse, cloud.worker(cloud.here), until_idle=True)
        assert queued(warehouse) == [(tasks, 0)]
    assert caught.value.where == "job job-1"
    assert text in str(caught.value.value)


@pytest.mark.slow
def test_an_unattended_job_is_cancelled(cloud: Cloud) -> None:
    """A machine that cannot write ends the attendant, and with it the heartbeats; the service would go on for hours."""

    def cannot_write(job: dict[str, Any]) -> None:
        error = error_document(StorageError("the disk is full", where="memos"))
        path = f"jobs/{job['labels']['headrace_job']}-000000.json"
        Storage(cloud.home).write_atomic(path, json.dumps({"error": error}).encode())

    cloud.service.on_job = cannot_write
    with cloud.open() as warehouse:
        tasks = cloud.fill(warehouse)
        with pytest.raises(StorageError, match="the disk is full"):
            run_worker(warehouse, cloud.worker(cloud.here), until_idle=True)
        assert queued(warehouse) == [(tasks, 0)]
    (job,) = cloud.service.jobs.values()
    assert job["currentState"] == "JOB_STATE_CANCELLED"


@pytest.mark.slow
def test_a_project_that_may_not_run_jobs_is_one_error(cloud: Cloud) -> None:
    cloud.service.refusal = (403, "Dataflow API has not been used in project my-project before or it is disabled")
    with cloud.open() as warehouse:
        tasks = cloud.fill(warehouse)
        with pytest.raises(JobRefused, match="Dataflow rejected the job") as caught:
            run_worker(warehouse, cloud.worker(cloud.here), until_idle=True)
        assert queued(warehouse) == [(tasks, 0)]
    assert "API has not been used" in str(caught.value.value)
    assert "docs/dataflow.md" in caught.value.next_step


@pytest.mark.slow
def test_the_command_writes_a_template_and_says_that_nothing_ran(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    with cloud.open() as warehouse:
        tasks = cloud.fill(warehouse)
        place = f"gs://{cloud.bucket}/job.json"
        flags = cloud.flags(f"--template_location={place}", "--machine_type=n2-standard-8")
        assert run(["work", "--until-idle", "--runner", "DataflowRunner", "--", *flags]) == 0
        said = capsys.readouterr().out
        assert said.startswith(f"wrote the next job to {place}: 12 memos of 3 fragments\n")
        assert "nothing was run" in said
        assert "do not launch the template itself" in said
        assert queued(warehouse) == [(tasks, 0)]
    (pool,) = cloud.template()["environment"]["workerPools"]
    assert pool["machineType"] == "n2-standard-8"


@pytest.mark.medium
def test_the_command_refuses_in_one_message(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["work", "--until-idle", "--runner", "DataflowRunner"]
    with cloud.open():
        pass
    assert run([*command, "--", "--project=my-project"]) == 2
    assert capsys.readouterr().err.endswith(
        "error: required options of Dataflow are missing\n"
        "  where:   the options after --\n"
        "  value:   '--region, --temp_location'\n"
        "  allowed: --region=europe-west4 --temp_location=gs://BUCKET/tmp\n"
        "  next:    headrace work --runner DataflowRunner -- --project=... ; see docs/dataflow.md\n"
    )
    (cloud.folder / "home").mkdir(exist_ok=True)
    assert run([*command, "--home", str(cloud.folder / "home"), "--", *cloud.flags()]) == 2
    assert "cannot reach a folder of this machine" in capsys.readouterr().err
    assert run([*command, "--", "--project=my-project", "--num_workers=many"]) == 2
    assert "invalid int value" in capsys.readouterr().err
    assert run([*command, "surplus"]) == 2
    assert "a Beam pipeline option must start with --" in capsys.readouterr().err
