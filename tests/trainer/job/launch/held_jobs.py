"""Runs whose jobs are held, without hosts and readers."""

from __future__ import annotations

from pathlib import Path

from tests.trainer.job.control.controller_process import JOB, job_settings
from tests.trainer.job.control.serving import DATA, serving
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.job_spec import FORMAT, JobSpec
from trainer.scheduling.holds import describe_error

REASON = "ValueError: the plan is wrong"


def make_run(run_dir: Path) -> JobFiles:
    """A run with a job."""
    files = JobFiles(run_dir)
    files.make()
    files.make_token()
    JobSpec(FORMAT, JOB, job_settings(), DATA, "home").write(files)
    return files


def hold(run_dir: Path) -> JobFiles:
    """A run whose controller ended after a permanent error."""
    files = make_run(run_dir)
    with serving(run_dir) as found:
        found.client.plan_failed(describe_error(ValueError("the plan is wrong")))
    return files
