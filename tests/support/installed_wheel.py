"""Headrace's wheel in an environment of its own, with the other packages of this one."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from transforms.installation import PACKAGES

_FILES = ("setup.py", "pyproject.toml", "README.md", "LICENSE")
_SDIST = "import sys, setuptools.build_meta as build; print(build.build_sdist(sys.argv[1]))"


@dataclass(frozen=True)
class InstalledWheel:
    """An environment into which the wheel is installed: none of its processes finds the checkout.

    Attributes:
        folder: the environment.
        wheel: the file that is installed in it.
    """

    folder: Path
    wheel: Path

    @property
    def packages(self) -> Path:
        """The folder into which the wheel is unpacked."""
        (found,) = self.folder.glob("lib/python3*/site-packages")
        return found

    def run(
        self, *words: str, cwd: Path, home: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run Python with these words in a folder; its status is not checked."""
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        own = {"HEADRACE_HOME": str(home or cwd / "home"), "TF_CPP_MIN_LOG_LEVEL": "3"}
        return subprocess.run([str(self.folder / "bin" / "python"), *words], cwd=cwd, capture_output=True, text=True,
                              env={**inherited, **own, **(environment or {})}, check=False)  # fmt: skip

    def headrace(self, *arguments: str, cwd: Path) -> dict[str, Any]:
        """The result of a command as JSON, by ``python -m headrace``, which also searches ``cwd`` for modules."""
        record = cwd / "result.json"
        record.unlink(missing_ok=True)
        done = self.run("-m", "headrace", "--record", str(record), *arguments, cwd=cwd)
        assert done.returncode == 0, f"{arguments}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
        found: dict[str, Any] = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
        return found


def built(folder: Path) -> Path:
    """The wheel of this checkout, by way of its source package, as a user without a checkout builds it."""
    sources, packed = folder / "sources", folder / "packed"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, sources / package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in _FILES:
        shutil.copyfile(ROOT / name, sources / name)
    packed.mkdir()
    _checked([sys.executable, "-c", _SDIST, str(packed)], cwd=sources)
    (archive,) = packed.glob("*.tar.gz")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-build-isolation",
    ]
    _checked([*pip, "--wheel-dir", str(packed), str(archive)], cwd=folder)
    (wheel,) = packed.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> InstalledWheel:
    """Install a wheel into a new environment in ``folder``; it sees the packages of this environment, not its finders."""
    venv.create(folder, with_pip=False)
    found = InstalledWheel(folder, wheel)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(folder / "bin" / "python"),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    ]
    _checked([*pip, "--disable-pip-version-check", str(wheel)], cwd=folder)
    lines = "".join(f"{path}\n" for path in site.getsitepackages())
    (found.packages / "other_packages.pth").write_text(lines, encoding="utf-8")
    return found


def _checked(command: list[str], cwd: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
