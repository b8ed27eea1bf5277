"""Environments of other systems, which benchmarks compare with: each has packages that do not go with those of this project."""

from __future__ import annotations

import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path


def made_environment(folder: Path, steps: Sequence[Sequence[str]], probe: str) -> str:
    """Make an environment, if it is not there. Returns why it cannot be had, or "".

    Args:
        folder: its folder.
        steps: what pip is asked to install, one call after the other.
        probe: Python code that runs where all packages load.
    """
    python = folder / "bin" / "python"
    if python.exists() and subprocess.run([python, "-c", probe], capture_output=True, check=False).returncode == 0:
        return ""
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for wanted in steps:
        done = subprocess.run([*pip, *wanted], capture_output=True, text=True, check=False)
        if done.returncode:
            return done.stderr.strip().splitlines()[-1]
    tried = subprocess.run([python, "-c", probe], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else tried.stderr.strip().splitlines()[-1]
