"""An environment with TensorFlow Recommenders Addons: ``python -m benchmarks.support.tfra_environment``.

Its newest release needs an older TensorFlow than Headrace, so it has an environment of its own, ``.tfra/``.
"""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

PINNED = ("tensorflow==2.16.2", "tensorflow-recommenders-addons==0.8.1", "numpy==1.26.4")
#: Where the benchmarks look for it.
FOLDER = Path(__file__).resolve().parents[2] / ".tfra"
PYTHON = FOLDER / "bin" / "python"
_READY = FOLDER / "ready.txt"
_PROBE = "from tensorflow_recommenders_addons import dynamic_embedding"


def is_ready() -> bool:
    """Whether the environment is there with the pinned packages, which were imported once."""
    return _READY.is_file() and _READY.read_text(encoding="utf-8") == "\n".join(PINNED)


def install() -> str:
    """Make the environment, if it is not there. Returns why it cannot be had, or ""."""
    if is_ready():
        return ""
    venv.create(FOLDER, with_pip=True, clear=True)
    for command in (["-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PINNED], ["-c", _PROBE]):
        done = subprocess.run([str(PYTHON), *command], capture_output=True, text=True, check=False)
        if done.returncode:
            return done.stderr.strip().splitlines()[-1]
    _READY.write_text("\n".join(PINNED), encoding="utf-8")
    return ""


if __name__ == "__main__":
    if why := install():
        print(f"TensorFlow Recommenders Addons is left out: {why}")
