"""The log files of an import, identified by name and content."""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from pipelines.errors import NoLogFiles
from transforms.errors import DataError
from warehouse.storage.storage import Storage
from warehouse.tables.lake_folders import refuse_lakes

_STORAGE = Storage("/")


@dataclass(frozen=True, slots=True, order=True)
class LogSource:
    """One log file: its name, the SHA-256 of its stored bytes, and its path."""

    name: str
    sha256: str
    path: str

    def to_json(self) -> str:
        """The source as an element of the pipeline."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> LogSource:
        """The inverse of :meth:`to_json`."""
        return cls(**json.loads(text))


def expand_files(patterns: Sequence[str]) -> tuple[str, ...]:
    """The files that paths, folders and glob patterns match, sorted, each once.

    Raises :class:`NoLogFiles` for the first pattern without a match, and :class:`~transforms.errors.InputError` for the files
    of a lake.
    """
    found: set[str] = set()
    for pattern in patterns:
        matches = _matches(pattern)
        if not matches:
            raise NoLogFiles("a path or pattern must match a log file", value=pattern, allowed="a file, a folder of files, or a glob pattern",
                             next_step="check the path; quote a pattern so that the shell leaves it alone")  # fmt: skip
        found.update(matches)
    if not found:
        raise NoLogFiles("at least one log file must be given", allowed="files, folders or glob patterns",
                         next_step="name the log files")  # fmt: skip
    refuse_lakes(_STORAGE, sorted(found))
    return tuple(sorted(found))


def _matches(pattern: str) -> list[str]:
    if os.path.isfile(pattern):
        return [pattern]
    pattern = os.path.join(glob.escape(pattern), "*") if os.path.isdir(pattern) else pattern
    return [path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)]


def identify(paths: Iterable[str]) -> tuple[LogSource, ...]:
    """The sources at ``paths`` in import order: by name, then content."""
    return tuple(sorted(LogSource(os.path.basename(path), file_sha256(path), os.path.abspath(path)) for path in paths))


def file_sha256(path: str) -> str:
    """SHA-256 of a file's bytes, as 64 hexadecimal digits."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise NoLogFiles("a log file must be readable", where=path, value=error.strerror,
                         next_step="check the path and its permissions") from error  # fmt: skip


def new_sources(sources: Iterable[LogSource], imports: Iterable[Mapping[str, object]]) -> tuple[LogSource, ...]:
    """The sources that no earlier import holds.

    Raises :class:`DataError` if an imported file has changed: its first rows would be imported twice.
    """
    held = [
        LogSource(**source) for entry in imports for source in cast("list[dict[str, str]]", entry.get("sources", []))
    ]
    known = {(source.name, source.sha256) for source in held}
    held_at = {source.path: source.sha256 for source in held}
    fresh = tuple(source for source in sources if (source.name, source.sha256) not in known)
    for source in fresh:
        if held_at.get(source.path, source.sha256) != source.sha256:
            raise DataError("an imported log file must not change", where=source.path,
                            value=source.sha256[:16], allowed=held_at[source.path][:16],
                            next_step="put the new rows into a new file, or import into an empty folder")  # fmt: skip
    return fresh
