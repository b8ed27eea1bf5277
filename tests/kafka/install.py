"""Installs a Kafka broker in ``.kafka/``: ``python -m tests.kafka.install``.

The version is pinned here. Maven fetches the released parts, unchanged and checked by its checksums, and lays them into ``.kafka/lib``:
what a Kafka distribution has there. 3.9 is the newest line whose broker runs on Java 11.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.support.java_parts import ROOT, JavaParts, build

KAFKA = "3.9.1"

RECIPE = Path(__file__).resolve().parent / "pom.xml"
FOLDER = ROOT / ".kafka"
LIB = FOLDER / "lib"


def _bring(temporary: Path) -> None:
    build(RECIPE, temporary, kafka_version=KAFKA)
    shutil.move(temporary / LIB.name, LIB)


PARTS = JavaParts(
    title=f"Kafka {KAFKA}",
    folder=FOLDER,
    recipe=RECIPE,
    versions={"kafka": KAFKA},
    bring=_bring,
)


if __name__ == "__main__":
    sys.exit(PARTS.install())
