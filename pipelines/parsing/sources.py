"""The log files of an import, identified by name and content."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pipelines.errors import NoLogFiles
from transforms.errors import DataError
from warehouse.storage.storage import Storage
from warehouse.tables.hive_levels import FolderLevels, is_side_file, parse_levels
from warehouse.tables.lake_folders import refuse_lakes

_STORAGE = Storage("/")
#: The levels of a file's folders that are columns, by name; None for a null.
Levels = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, order=True)
class LogSource:
    """One log file: its name, the SHA-256 of its stored bytes, its path, and the levels of its folders that are columns."""

    name: str
    sha256: str
    path: str
    levels: Levels = ()

    @property
    def identity(self) -> tuple[str, str, Levels]:
        """What distinguishes the rows of two files."""
        return self.name, self.sha256, self.levels

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> LogSource:
        """The inverse of :func:`dataclasses.asdict`, after JSON."""
        levels = tuple((name, value) for name, value in document.get("levels", ()))
        return cls(document["name"], document["sha256"], document["path"], levels)


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that a pattern matches, and the levels of its folders."""

    path: str
    folders: FolderLevels


def find_files(patterns: Sequence[str]) -> tuple[FoundFile, ...]:
    """The files that paths, folders and glob patterns match, sorted, each once; side files of writers are left out.

    A folder matches its files, and those below its levels (``date=2026-03-01/country=DE``). Levels are those below the folder, or
    below the part of a pattern before its first wildcard; of a single file those of its path as it is given. Raises
    :class:`NoLogFiles` for the first pattern without a match, and :class:`~transforms.errors.InputError` for the files of a lake.
    """
    found: dict[str, str] = {}
    for pattern in patterns:
        matches = _matches(pattern)
        if not matches:
            raise NoLogFiles("a path or pattern must match a log file", value=pattern, allowed="a file, a folder of files, or a glob "
                             "pattern; names that begin with _ or . are side files of writers",
                             next_step="check the path; quote a pattern so that the shell leaves it alone")  # fmt: skip
        for path, relative in matches.items():
            if len(relative) > len(found.get(path, "")):
                found[path] = relative
    if not found:
        raise NoLogFiles("at least one log file must be given", allowed="files, folders or glob patterns",
                         next_step="name the log files")  # fmt: skip
    refuse_lakes(_STORAGE, sorted(found))
    return tuple(FoundFile(path, parse_levels(os.path.dirname(found[path]), path)) for path in sorted(found))


def expand_files(patterns: Sequence[str]) -> tuple[str, ...]:
    """The paths of :func:`find_files`."""
    return tuple(file.path for file in find_files(patterns))


def level_names(files: Iterable[FoundFile]) -> tuple[str, ...]:
    """The levels that are columns, by name, in order of the folders."""
    return tuple(dict.fromkeys(name for file in files for name in file.folders.columns))


def time_level_names(files: Iterable[FoundFile]) -> tuple[str, ...]:
    """The levels that state a time, by name, in order of the folders."""
    return tuple(dict.fromkeys(level.name for file in files for level in file.folders.time))


def _matches(pattern: str) -> dict[str, str]:
    """The path of every file that a pattern matches, and its part whose levels count."""
    if os.path.isfile(pattern):
        return {} if is_side_file(os.path.basename(pattern)) else {pattern: pattern}
    if os.path.isdir(pattern):
        below = list(_files_below(pattern))
        root = pattern
    else:
        below = [path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)]
        root = _fixed_part(pattern)
    relative = {path: path.removeprefix(root).lstrip(os.sep) for path in below}
    return {path: short for path, short in relative.items() if not is_side_file(short)}


def _files_below(folder: str) -> Iterator[str]:
    """The files in a folder and below its levels."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_file():
            yield entry.path
        elif entry.is_dir() and "=" in entry.name:
            yield from _files_below(entry.path)


def _fixed_part(pattern: str) -> str:
    """The folder of a pattern before its first wildcard."""
    parts = pattern.split(os.sep)
    first = next((at for at, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    return os.sep.join(parts[:first])


def identify(files: Iterable[FoundFile | str]) -> tuple[LogSource, ...]:
    """The sources of these files in import order: by name, then content."""
    return tuple(sorted(_source(file) for file in files))


def _source(file: FoundFile | str) -> LogSource:
    path, levels = (file, ()) if isinstance(file, str) else (file.path, tuple(file.folders.columns.items()))
    return LogSource(os.path.basename(path), file_sha256(path), os.path.abspath(path), levels)


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
        LogSource.from_document(source)
        for entry in imports
        for source in cast("list[dict[str, Any]]", entry.get("sources", []))
    ]
    known = {source.identity for source in held}
    held_at = {source.path: source.sha256 for source in held}
    # Releases that left levels out recorded no levels of a file: it is known by its place.
    fresh = tuple(
        source for source in sources if source.identity not in known and held_at.get(source.path) != source.sha256
    )
    for source in fresh:
        if held_at.get(source.path, source.sha256) != source.sha256:
            raise DataError("an imported log file must not change", where=source.path,
                            value=source.sha256[:16], allowed=held_at[source.path][:16],
                            next_step="put the new rows into a new file, or import into an empty folder")  # fmt: skip
    return fresh
