"""What the processes of a worker on one machine import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT


def printed(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


JOB = """
import sys
from pipelines.runners.beam_packages import keep_beam_light
keep_beam_light()
import apache_beam as beam
from pipelines.runners.runner import RunnerOptions, run_pipeline
run_pipeline(lambda pipeline: pipeline | beam.Create([1, 2]) | beam.Map(print), RunnerOptions(), one_step=True)
services = ("google.auth", "google.cloud.storage", "google.cloud.bigquery", "pandas")
print(*(name for name in services if name in sys.modules))
"""


@pytest.mark.medium
def test_beam_runs_without_the_clients_of_services():
    assert printed(JOB) == ["1", "2"]


@pytest.mark.medium
@pytest.mark.parametrize("package", ["google.auth", "google.cloud.storage", "pandas"])
def test_other_modules_find_them(package):
    pytest.importorskip(package)
    program = "from pipelines.runners.beam_packages import keep_beam_light\nkeep_beam_light()\nimport apache_beam\n"
    assert printed(f"{program}import importlib; print(importlib.import_module({package!r}).__name__)") == [package]


IDLE = """
import sys
from headrace.cli.main import run
assert run(["work", "--until-idle", "--home", sys.argv[1], "--json"]) == 0
heavy = ("apache_beam", "numba", "pandas", "scipy", "packaging.requirements", "alembic.command")
print("loaded:", *(name for name in heavy if name in sys.modules))
"""


@pytest.mark.slow
def test_a_worker_without_a_task_loads_no_beam(tmp_path):
    subprocess.run([sys.executable, "-m", "headrace", "init", "--home", str(tmp_path)], cwd=ROOT, check=True)
    done = subprocess.run(
        [sys.executable, "-c", IDLE, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "loaded:"


@pytest.mark.medium
def test_a_server_of_children_loads_no_compiler():
    program = (
        "import sys\nfrom pipelines.isolation.server import import_child\nimport_child()\n"
        "heavy = ('apache_beam', 'sqlalchemy', 'scipy.linalg', 'numba.np.linalg', 'tensorflow')\n"
        "print(*(name for name in heavy if name in sys.modules))"
    )
    assert printed(program) == []
