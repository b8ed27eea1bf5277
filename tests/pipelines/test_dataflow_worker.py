"""What a Dataflow worker does with what was staged: install it where nothing is, and run it.

The steps are those of the image's boot program: download every staged file, install the requirements, from the staged
files where they are there, then the extra packages; then run the staged pipeline. Beam's own image is stood in for by an
empty virtual environment with Beam in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from pipelines.worker import run_worker
from tests.pipelines.dataflow_scenes import Cloud
from tests.pipelines.scenes import REPOSITORY, fill, memo_values, open_home

#: Runs a staged pipeline in the process that it is given to; says where its packages came from.
SDK_WORKER = """
import json, sys
from pathlib import Path
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

pipeline = beam_runner_api_pb2.Pipeline.FromString(Path(sys.argv[1]).read_bytes())
for environment in pipeline.components.environments.values():
    environment.urn, environment.payload = python_urns.EMBEDDED_PYTHON, b""
    del environment.dependencies[:]
FnApiRunner().run_via_runner_api(pipeline, PipelineOptions()).wait_until_finish()
rooms = ("transforms", "warehouse", "pipelines")
print(json.dumps({name: module.__file__ for name, module in sys.modules.items() if name.split(".")[0] in rooms}))
"""


def boot(cloud: Cloud, job: dict[str, Any], folder: Path) -> Path:
    """Download what a job staged into ``folder``, as the boot program does; the pipeline's file."""
    folder.mkdir()
    for package in job["environment"]["workerPools"][0]["packages"]:
        content = cloud.read(package["location"].replace("storage.googleapis.com/", "gs://"))
        (folder / package["name"]).write_bytes(content)
    pipeline = folder / "pipeline.pb"
    pipeline.write_bytes(cloud.pipeline(job).SerializeToString())
    return pipeline


def clean(**more: str) -> dict[str, str]:
    """An environment that leads to nothing of this checkout's."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "HEADRACE_HOME", "HEADRACE_CATALOG_URL")
    return {**{name: value for name, value in os.environ.items() if name not in hidden}, **more}


def run_staged(python: str, pipeline: Path, **environment: str) -> dict[str, str]:
    """Run a staged pipeline; where each module of Headrace's was loaded from."""
    answer = subprocess.run([python, "-c", SDK_WORKER, str(pipeline)], cwd=pipeline.parent, env=clean(**environment),
                            capture_output=True, text=True, check=False)  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    return dict(json.loads(answer.stdout.splitlines()[-1]))


@pytest.mark.slow
def test_a_job_that_the_service_runs_is_committed_by_the_worker_that_waits(cloud: Cloud, tmp_path: Path) -> None:
    """Everything but Google: submitted, computed from the staged package alone, awaited, committed."""
    with open_home(tmp_path / "local") as local, cloud.open() as warehouse:
        tasks = cloud.fill(warehouse)
        fill(local, tmp_path / "log")
        loaded: list[dict[str, str]] = []

        def run_it(job: dict[str, Any]) -> None:
            try:
                pipeline = boot(cloud, job, tmp_path / job["id"])
                (wheel,) = pipeline.parent.glob("headrace-*.whl")
                subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), "package"],
                               cwd=pipeline.parent, check=True)  # fmt: skip
                loaded.append(run_staged(sys.executable, pipeline, PYTHONPATH=str(pipeline.parent / "package")))
                cloud.service.jobs[job["id"]]["currentState"] = "JOB_STATE_DONE"
            except BaseException as error:
                cloud.service.fail(cloud.service.jobs[job["id"]], repr(error))
                raise

        cloud.service.on_job = run_it
        report = run_worker(warehouse, cloud.worker(cloud.here), until_idle=True)
        assert (report.memos, report.failures, report.fenced, report.jobs) == (tasks, 0, 0, 1)
        assert run_worker(local, cloud.worker().__class__("local"), until_idle=True).memos == tasks
        assert memo_values(warehouse) == memo_values(local)
        assert warehouse.storage.list("jobs") == ()
    (modules,) = loaded
    assert modules
    assert not [place for place in modules.values() if place.startswith(str(REPOSITORY))]


@pytest.mark.slow
def test_the_staged_package_runs_a_fragment_in_an_empty_environment(cloud: Cloud, tmp_path: Path) -> None:
    """Nothing of this environment is there: Beam is installed as its image has it, the rest from what was staged."""
    with open_home(tmp_path / "local") as local, cloud.open() as warehouse:
        cloud.fill(warehouse, hours=1)
        fill(local, tmp_path / "log")
        run_worker(local, cloud.worker().__class__("local"), until_idle=True)
        expected = {path.name: path.read_bytes() for path in (tmp_path / "local" / "memos").rglob("*.memo")}
    assert expected
    assert version("apache-beam")
