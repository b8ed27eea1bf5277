"""Headrace from a checkout, in the folder of a project that has packages of the same names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from transforms.child_process import child_environment, module_command
from transforms.installation import PARTS


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose packages end a process that imports one of them."""
    for name in PARTS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('a package of the project was imported')\n")
    return tmp_path


def run(project: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    whole = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(words, cwd=project, env=whole, capture_output=True, text=True, check=False)


def test_the_command_runs_beside_packages_of_the_same_names(project: Path) -> None:
    done = run(project, sys.executable, "-m", "headrace", "--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "headrace"), done.stderr
    done = run(project, sys.executable, "-m", "headrace", "status")
    assert "a package of the project" not in done.stderr, done.stderr


def test_a_module_has_one_identity_under_both_names(project: Path) -> None:
    program = (
        "import headrace.trainer.tables, headrace, sys\n"
        "from headrace.trainer.options.config import TrainConfig\n"
        "from headrace.transforms import types\n"
        "import trainer.options.config, transforms.types\n"
        "assert TrainConfig is trainer.options.config.TrainConfig and types is transforms.types\n"
        "assert headrace.trainer is trainer and trainer.options.config.__spec__.name == 'trainer.options.config'\n"
        "print(trainer.__file__)"
    )
    done = run(project, sys.executable, "-c", program)
    assert done.stdout.strip() == str(ROOT / "trainer" / "__init__.py"), done.stderr


def test_an_unknown_module_below_headrace_is_not_found(project: Path) -> None:
    done = run(project, sys.executable, "-c", "import headrace.trainer.no_such_module")
    assert "ModuleNotFoundError: No module named 'headrace.trainer.no_such_module'" in done.stderr


def test_a_child_finds_its_module_also_where_the_path_names_the_project_first(project: Path) -> None:
    environment = {**child_environment(), "PYTHONPATH": os.pathsep.join((str(project), str(ROOT)))}
    command = module_command("trainer.solving.cp_sat")
    done = subprocess.run(command, cwd=project, env=environment, input="", capture_output=True, text=True, check=False)
    assert "JSONDecodeError" in done.stderr, done.stderr  # it runs, and has read its empty input


def test_a_package_that_was_imported_before_is_refused(project: Path) -> None:
    (project / "trainer" / "__init__.py").write_text("")
    done = run(project, sys.executable, "-c", "import trainer, headrace")
    assert done.returncode == 1
    assert f"the module trainer must be Headrace's in a checkout of Headrace, got {project}/trainer" in done.stderr
