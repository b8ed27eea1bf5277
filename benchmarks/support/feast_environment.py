"""An environment with Feast: ``python -m benchmarks.support.feast_environment FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.support.own_environment import made_environment

FEAST = "feast==0.67.0"

#: Where the benchmark looks for it.
FOLDER = Path(__file__).resolve().parents[2] / ".feast"


def install(folder: Path) -> str:
    """Make the environment, if it is not there. Returns why it cannot be had, or ""."""
    return made_environment(folder, [[FEAST]], "import feast, dask")


if __name__ == "__main__":
    if why := install(Path(sys.argv[1])):
        print(f"Feast is left out: {why}")
