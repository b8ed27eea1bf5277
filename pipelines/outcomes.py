"""What a Beam worker found out, as small JSON documents on shared storage, errors included.

An error that a user caused is a result, not a crash: raised inside a worker it would be retried, wrapped and printed
with Beam's own stack. So it travels as a document and is raised again, whole, where the job was started.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from pipelines.publication import write_atomic
from transforms.errors import DataError, HeadraceError

Document = Mapping[str, object]


def write_outcome(folder: Path, name: str, document: Document) -> None:
    """Keep one worker's result under a name that a retry of the same work uses again."""
    write_atomic(folder / f"{name}.json", json.dumps(document, sort_keys=True).encode("utf-8"))


def read_outcomes(folder: Path, prefix: str) -> list[Document]:
    """The results whose names start with ``prefix``, by name."""
    return [json.loads(path.read_bytes()) for path in sorted(folder.glob(f"{prefix}*.json"))]


def count_outcomes(folder: Path, prefix: str) -> int:
    """How many results there are so far."""
    return sum(1 for _ in folder.glob(f"{prefix}*.json"))


def error_document(error: HeadraceError) -> Document:
    """An error's class and fields."""
    fields = {"what": error.what, "where": error.where, "allowed": error.allowed, "next_step": error.next_step}
    return {"kind": type(error).__name__, "value": None if error.value is None else str(error.value), **fields}


def error_from_document(document: Document) -> HeadraceError:
    """The error again, of the same class (DataError where that class is not loaded here)."""
    kinds = {kind.__name__: kind for kind in _subclasses(HeadraceError)}
    kind = kinds.get(str(document["kind"]), DataError)
    texts = {key: str(document[key]) for key in ("where", "allowed", "next_step")}
    return kind(str(document["what"]), value=document["value"], **texts)


def _subclasses(kind: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _subclasses(child)
