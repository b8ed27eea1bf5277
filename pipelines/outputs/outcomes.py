"""Results of a job's workers: one JSON document per piece of work, in a folder of shared storage."""

from __future__ import annotations

import json
from pathlib import Path

from pipelines.outputs.publication import write_undurable
from pipelines.runners.error_documents import Document, read_object


def write_outcome(folder: Path, name: str, document: Document) -> None:
    """Write one worker's result under a name that a retry of the same work uses again."""
    write_undurable(folder / f"{name}.json", json.dumps(document, sort_keys=True).encode("utf-8"))


def read_outcomes(folder: Path, prefix: str) -> list[Document]:
    """The results whose names start with ``prefix``, by name."""
    return [read_object(path.read_bytes(), str(path)) for path in sorted(folder.glob(f"{prefix}*.json"))]


def count_outcomes(folder: Path, prefix: str) -> int:
    """How many results there are so far."""
    return sum(1 for _ in folder.glob(f"{prefix}*.json"))
