from __future__ import annotations

import ast
import os
import runpy
import sys
from pathlib import Path

import pytest

from headrace import checkout
from tests.conftest import ROOT
from transforms import child_process, installation
from transforms.child_process import child_environment, module_command
from transforms.installation import PACKAGES, PARTS, checkout_name, own_module

#: Where modules are imported by names that are not constants of other packages, and why these are not own_module's.
IMPORTS_BY_NAME = {
    "headrace/checkout.py": "is below own_module",
    "headrace/cli/lazy_group.py": "modules of headrace, whose names are the same in a wheel",
    "headrace/reference/annotations.py": "names from the sources that are read, which the build rewrites",
    "transforms/functions/bundle.py": "modules that the source of a user's function names",
    "transforms/functions/outside.py": "translated by its callers, or the user's",
    "transforms/lazy_exports.py": "names from import statements, which the build rewrites",
}


def test_the_packages_of_a_checkout_have_their_own_names() -> None:
    assert (installation.ROOT, installation.IS_WHEEL) == (ROOT, False)
    assert set(PACKAGES) == {*PARTS, "headrace"}
    assert own_module("trainer.options.config") == "trainer.options.config"
    assert (
        checkout_name("headrace.trainer.options.config")
        == checkout_name("trainer.options.config")
        == "trainer.options.config"
    )
    assert checkout_name("headrace.cli.main") == "headrace.cli.main"
    assert checkout_name("trainer_of_mine.config") == "trainer_of_mine.config"


def test_a_wheel_has_them_below_headrace(tmp_path: Path) -> None:
    """The module itself, as a wheel has it."""
    folder = tmp_path / "headrace" / "transforms"
    folder.mkdir(parents=True)
    file = folder / "installation.py"
    file.write_bytes((ROOT / "transforms" / "installation.py").read_bytes())
    names = runpy.run_path(str(file), run_name="headrace.transforms.installation")
    assert (names["ROOT"], names["IS_WHEEL"], names["PACKAGES"]) == (tmp_path, True, ("headrace",))
    for name in ("trainer.options.config", "transforms"):
        assert names["own_module"](name) == f"headrace.{name}"
        assert names["checkout_name"](f"headrace.{name}") == name
    assert names["own_module"]("numpy.linalg") == "numpy.linalg"
    assert names["is_foreign_namesake"]("trainer.options.config")
    assert not names["is_foreign_namesake"]("headrace.trainer.options.config")


def test_all_agree_on_the_parts() -> None:
    build = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")
    assert PARTS == checkout._PARTS == build["PARTS"]


def test_a_child_runs_modules_by_the_names_of_a_wheel() -> None:
    assert module_command("headrace", "train") == [sys.executable, "-m", "headrace", "train"]
    assert module_command("trainer.solving.cp_sat", python="p") == ["p", "-m", "headrace.trainer.solving.cp_sat"]
    assert module_command("tests.wheel") == [sys.executable, "-m", "tests.wheel"]


def test_a_child_searches_what_its_parent_was_given_and_not_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    found = child_environment({"HEADRACE_HOME": "/home"})
    assert (found["HEADRACE_HOME"], found["PYTHONSAFEPATH"]) == ("/home", "1")
    assert found["PYTHONPATH"].split(os.pathsep) == ["/mine", str(ROOT)]
    assert "PYTHONSAFEPATH" not in os.environ
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), "/mine")))
    assert child_environment()["PYTHONPATH"] == os.pathsep.join((str(ROOT), "/mine"))


def test_an_installed_package_is_not_put_on_the_path_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(child_process.site, "getsitepackages", lambda: [str(tmp_path)])
    monkeypatch.setattr(child_process, "ROOT", tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    child_process._is_found_by_interpreter.cache_clear()
    assert "PYTHONPATH" not in child_environment()
    child_process._is_found_by_interpreter.cache_clear()


def _calls(tree: ast.Module, name: str) -> list[ast.Call]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if name == getattr(call.func, "id", getattr(call.func, "attr", ""))]


@pytest.mark.medium
@pytest.mark.parametrize("top", PACKAGES)
def test_modules_are_imported_by_names_that_a_wheel_has(top: str) -> None:
    """A constant of another package's name, or a translated one: the name of a checkout's module is none in a wheel."""
    for file in sorted((ROOT / top).rglob("*.py")):
        place = str(file.relative_to(ROOT))
        for call in _calls(ast.parse(file.read_bytes()), "import_module"):
            text = ast.unparse(call.args[0])
            is_other = isinstance(call.args[0], ast.Constant) and text.strip("'").partition(".")[0] not in PARTS
            assert is_other or "own_module(" in text or "__name__" in text or place in IMPORTS_BY_NAME, (place, text)


@pytest.mark.parametrize("top", PACKAGES)
def test_processes_with_own_code_start_by_module_command(top: str) -> None:
    allowed = {
        "pipelines/isolation/server_process.py",  # its program is a text, which names modules as a wheel does
        "pipelines/staging/own_wheel.py",  # setuptools
        "pipelines/staging/requirements.py",  # pip
        "trainer/tpu_check/environment.py",  # venv
        "transforms/child_process.py",
        "transforms/functions/clean_process.py",  # an environment with nothing of this one
    }
    for file in sorted((ROOT / top).rglob("*.py")):
        if "sys.executable" in file.read_text(encoding="utf-8"):
            assert str(file.relative_to(ROOT)) in allowed
