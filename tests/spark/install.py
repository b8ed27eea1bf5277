"""Installs Spark and Beam's Spark job server in ``.spark/``: ``python -m tests.spark.install``.

Every version is pinned here. Maven fetches the released parts of both, unchanged and checked by its checksums, and lays
them into ``.spark/jars/``: what a Spark distribution has there, and Beam's runner. ``job-server.jar`` beside it holds no
class, only the path to them and the name of the program, so ``java -jar`` starts Beam's job server.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.support.java_parts import BEAM, ROOT, JavaParts, build

SPARK = "3.5.6"
SCALA = "2.12"

RECIPE = Path(__file__).resolve().parent / "pom.xml"
FOLDER = ROOT / ".spark"
JARS = FOLDER / "jars"
JOB_SERVER = FOLDER / "job-server.jar"


def _bring(temporary: Path) -> None:
    build(RECIPE, temporary, beam_version=BEAM, spark_version=SPARK, scala_version=SCALA)
    for made in (JARS, JOB_SERVER):
        shutil.move(temporary / made.name, made)


PARTS = JavaParts(
    title=f"Spark {SPARK} and Beam's job server",
    folder=FOLDER,
    recipe=RECIPE,
    versions={"beam": BEAM, "spark": SPARK, "scala": SCALA},
    bring=_bring,
)


if __name__ == "__main__":
    sys.exit(PARTS.install())
