"""Files for commands, of values that a method was given."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def paths_of(files: str | Path | Sequence[str | Path]) -> list[str]:
    """The names of one file or several."""
    return [str(one) for one in ([files] if isinstance(files, str | Path) else files)]


@contextmanager
def file_of(document: Mapping[str, Any] | str | Path) -> Iterator[str | None]:
    """The name of a JSON file with a document, while the block runs; a name is itself, and an empty one is None."""
    if isinstance(document, str | Path):
        yield str(document) if document else None
        return
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        file = Path(folder) / "given.json"
        file.write_text(json.dumps(document), encoding="utf-8")
        yield str(file)
