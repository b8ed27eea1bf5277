"""A Dataflow job without Google: submitted, run from its staged files only, awaited and committed.

The steps of a worker are those of the image's boot program: download every staged file, install the requirements, then
the extra packages; then run the staged pipeline. Beam's image is stood in for by an empty virtual environment with Beam
in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from pipelines.staging.own_wheel import PACKAGES
from pipelines.worker.worker import WorkerConfig, run_worker
from tests.pipelines.runners.dataflow_scenes import Cloud
from tests.pipelines.scenes import REPOSITORY, fill, memo_values, open_home

#: Runs a staged pipeline in the process that it is given to; says where each loaded module lies, and how many processes
#: computed the fragments.
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
loaded = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
children = sys.modules["pipelines.isolation.processes"].child_processes().started
print(json.dumps([children, {name: place for name, place in loaded.items() if place}]))
"""


class EmptyMachine:
    """A virtual environment of its own, in which nothing of this environment can be seen."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "HEADRACE_HOME", "HEADRACE_CATALOG_URL")
        self.environment = {name: value for name, value in os.environ.items() if name not in hidden}

    def run(self, *arguments: str) -> str:
        """Run its Python."""
        answer = subprocess.run([str(self.folder / "bin" / "python"), *arguments], cwd=self.folder,
                                env=self.environment, capture_output=True, text=True, check=False)  # fmt: skip
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def install(self, *arguments: str) -> None:
        """Install into it."""
        pip = [sys.executable, "-m", "pip", "--python", str(self.folder / "bin" / "python"), "--quiet",
               "--disable-pip-version-check", "install", "--no-compile", *arguments]  # fmt: skip
        answer = subprocess.run(pip, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stderr


def boot(cloud: Cloud, job: dict[str, Any], folder: Path) -> Path:
    """Download what a job staged into ``folder``, as the boot program does; the pipeline's file."""
    folder.mkdir()
    for package in job["environment"]["workerPools"][0]["packages"]:
        content = cloud.read(package["location"].replace("storage.googleapis.com/", "gs://"))
        (folder / package["name"]).write_bytes(content)
    pipeline = folder / "pipeline.pb"
    pipeline.write_bytes(cloud.pipeline(job).SerializeToString())
    return pipeline


def install_staged(machine: EmptyMachine, staged: Path) -> None:
    """What the boot program installs, in its order and with its options; but no index is ever asked."""
    pins = ("--no-index", "--find-links", str(staged), "--requirement", str(staged / "requirements.txt"))
    machine.install("--no-deps", *pins)
    machine.install(*pins)
    for name in (staged / "extra_packages.txt").read_text().split():
        machine.install("--upgrade", "--force-reinstall", "--no-deps", "--no-index", str(staged / name))
        machine.install("--no-index", str(staged / name))


def files(root: Path) -> dict[str, bytes]:
    """Every memo file by its path up to the fragment; what follows differs from lease to lease."""
    return {str(path.parent / path.name.partition("-")[0]): path.read_bytes()
            for path in root.rglob("*") if path.is_file()}  # fmt: skip


@pytest.mark.slow
def test_the_staged_package_computes_in_an_empty_environment_what_is_computed_here(
    cloud: Cloud, tmp_path: Path
) -> None:
    machine = EmptyMachine(tmp_path / "machine")
    image = ThreadPoolExecutor(1).submit(
        machine.install, f"apache-beam=={version('apache-beam')}", "--constraint", str(REPOSITORY / "requirements.txt")
    )
    modules: dict[str, str] = {}
    children: list[int] = []

    def run_job(taken: dict[str, Any]) -> None:
        job = cloud.service.jobs[taken["id"]]
        try:
            pipeline = boot(cloud, taken, tmp_path / "staged")
            image.result()
            install_staged(machine, pipeline.parent)
            started, loaded = json.loads(machine.run("-c", SDK_WORKER, str(pipeline)).splitlines()[-1])
            children.append(started)
            modules.update(loaded)
            job["currentState"] = "JOB_STATE_DONE"
        except BaseException as error:
            cloud.service.fail(job, repr(error))
            raise

    cloud.service.on_job = run_job
    with open_home(tmp_path / "local") as local, cloud.open() as warehouse:
        tasks = cloud.fill(warehouse, hours=2)
        fill(local, tmp_path / "log")
        assert run_worker(local, WorkerConfig("local"), until_idle=True).memos == tasks
        report = run_worker(warehouse, cloud.worker(cloud.here, "--no_use_public_ips"), until_idle=True)
        assert (report.memos, report.failures, report.fenced, report.jobs) == (tasks, 0, 0, 1)
        assert memo_values(warehouse) == memo_values(local)
        assert warehouse.storage.list("jobs") == ()
        here = tmp_path / "downloaded" / "memos"
        for file in warehouse.storage.list("memos"):
            place = tmp_path / "downloaded" / file.path.removeprefix(f"gs://{cloud.bucket}/home/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(warehouse.storage.read_bytes(file.path))
    ours, theirs = files(tmp_path / "local" / "memos"), files(here)
    assert len(ours) == 2
    assert {path.removeprefix(str(tmp_path / "local")): content for path, content in ours.items()} == {
        path.removeprefix(str(tmp_path / "downloaded")): content for path, content in theirs.items()
    }
    own = {name: place for name, place in modules.items() if name.partition(".")[0] in PACKAGES}
    assert "pipelines.memoize.pipeline" in own
    assert children[0] >= 1, "fragments are computed in child processes there too"
    assert all(place.startswith(str(machine.folder)) for place in own.values())
    assert not [place for place in modules.values() if place.startswith(str(REPOSITORY))]
    program = machine.folder / "bin" / "headrace-beam-worker"
    assert "--provision_endpoint" in machine.run(str(program), "--help")
