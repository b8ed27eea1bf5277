"""An environment with Feast: ``python -m benchmarks.support.feast_environment FOLDER``."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

FEAST = "feast==0.67.0"
_PROBE = "import feast, dask"

#: Where the benchmark looks for it.
FOLDER = Path(__file__).resolve().parents[2] / ".feast"


def install(folder: Path) -> str:
    """Make the environment, if it is not there. Returns why it cannot be had, or ""."""
    python = folder / "bin" / "python"
    if python.exists() and subprocess.run([python, "-c", _PROBE], capture_output=True, check=False).returncode == 0:
        return ""
    venv.create(folder, with_pip=True, clear=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", FEAST]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    probe = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, check=False)
    return "" if probe.returncode == 0 else probe.stderr.strip().splitlines()[-1]


if __name__ == "__main__":
    if why := install(Path(sys.argv[1])):
        print(f"Feast is left out: {why}")
