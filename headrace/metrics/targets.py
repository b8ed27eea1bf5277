"""Files of targets, from which Prometheus learns the addresses of processes: its ``file_sd_configs``."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from headrace.metrics.process import Process
from transforms.errors import StorageError

#: Prometheus finds files of a folder by the end of their names alone: ``folder/*.json``.
_UNSAFE = re.compile(r"[^A-Za-z0-9._]+", re.ASCII)
_MOST_NAME, _DIGEST_BYTES = 80, 4


def target_file(folder: Path, process: Process) -> Path:
    """The file of a process in a folder with those of all processes of a machine; a process that is started again has the same one."""
    run = hashlib.blake2b(process.run.encode(), digest_size=_DIGEST_BYTES).hexdigest() if process.run else ""
    name = _UNSAFE.sub("-", process.name)[:_MOST_NAME]
    return folder / f"{'-'.join(filter(None, (process.role.replace('_', '-'), name, run)))}.json"


def targets_text(address: str, labels: Mapping[str, str]) -> str:
    """The content of a file with one target; labels without a value are left out."""
    return json.dumps([{"targets": [address], "labels": {key: one for key, one in labels.items() if one}}]) + "\n"


@contextmanager
def listed_target(file: Path, address: str, labels: Mapping[str, str]) -> Iterator[None]:
    """Have the file name an address while the block runs; a killed process leaves it, and its target is down.

    Raises :class:`StorageError` for a file that cannot be written.
    """
    new = file.with_name(f"{file.name}.new")  # Prometheus reads names that end with .json
    text = targets_text(address, labels)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(text, encoding="utf-8")
        new.replace(file)
    except OSError as error:
        raise StorageError(
            "the file of a metrics target cannot be written", where=str(file), value=str(error)
        ) from error
    try:
        yield
    finally:
        if file.exists() and file.read_text(encoding="utf-8") == text:  # else another process has its place
            file.unlink(missing_ok=True)
