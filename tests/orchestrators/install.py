"""Installs Airflow and Dagster, each in an environment of its own in ``.orchestrators/``: ``python -m tests.orchestrators.install``.

All packages are pinned, in ``airflow.txt`` and ``dagster.txt`` beside this file. Neither environment has Headrace: the examples run its command.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".orchestrators"
#: A module of each, imported once when it is installed.
NAMES = {"airflow": "airflow.sdk", "dagster": "dagster"}


def pins(name: str) -> Path:
    """The file with the packages of an environment."""
    return Path(__file__).with_name(f"{name}.txt")


def programs(name: str) -> Path:
    """The folder of the programs of an environment."""
    return FOLDER / name / "bin"


def is_ready(name: str) -> bool:
    """Whether an environment is there with the pinned packages."""
    ready = FOLDER / name / "ready.txt"
    return ready.is_file() and ready.read_bytes() == pins(name).read_bytes()


def install(name: str) -> None:
    """Make an environment, unless it is there. Raises :class:`subprocess.CalledProcessError`."""
    if is_ready(name):
        return
    venv.create(FOLDER / name, with_pip=True, clear=True)
    python = programs(name) / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--requirement", pins(name)], check=True)
    subprocess.run([python, "-c", f"import {NAMES[name]}"], check=True, capture_output=True)
    (FOLDER / name / "ready.txt").write_bytes(pins(name).read_bytes())


if __name__ == "__main__":
    for each in NAMES:
        try:
            install(each)
        except subprocess.CalledProcessError as error:
            sys.exit(f"{each} is not installed: {error}")
