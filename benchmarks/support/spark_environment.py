"""An environment with Spark and its Python API: ``python -m benchmarks.support.spark_environment FOLDER``."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from benchmarks.support.own_environment import made_environment

SPARK = "pyspark==4.3.0"

#: Where the benchmark looks for it. The package brings Spark itself; Java 17 or later is the machine's.
FOLDER = Path(__file__).resolve().parents[2] / ".pyspark"


def install(folder: Path) -> str:
    """Make the environment, if it is not there. Returns why it cannot be had, or ""."""
    if shutil.which("java") is None:
        return "java is not on this machine"
    return made_environment(folder, [[SPARK]], "import pyspark.sql")


if __name__ == "__main__":
    if why := install(Path(sys.argv[1])):
        print(f"Spark is left out: {why}")
