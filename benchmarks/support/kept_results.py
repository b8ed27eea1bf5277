"""Results of finished trainings in a file, so that a script that is started again trains the others only."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainer.options.config import TrainConfig


class KeptResults:
    """Results by what they depend on, in a JSON file that is replaced as a whole after each of them; without a file, in memory.

    The file does not know the code: results of another revision have to be deleted by hand.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._found: dict[str, Any] = json.loads(file.read_text()) if file is not None and file.exists() else {}

    def get(self, key: Mapping[str, object], make: Callable[[], Any]) -> Any:
        """The result of a key, made if there is none yet; both are JSON."""
        name = json.dumps(key, sort_keys=True)
        if name not in self._found:
            self._found[name] = json.loads(json.dumps(make()))
            self._write()
        return self._found[name]

    def _write(self) -> None:
        if self._file is None:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        written = self._file.with_name(self._file.name + ".new")
        written.write_text(json.dumps(self._found, indent=1))
        os.replace(written, self._file)


def training_key(log: str, config: TrainConfig, *counts: int) -> dict[str, object]:
    """What a training depends on: the log's name and counts of its events, and the options that change weights."""
    return {"log": log, "events": list(counts), "options": config.to_document()}
