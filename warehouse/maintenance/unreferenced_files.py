"""Kinds of collected files outside ``memos``: which are old, and which are referenced.

Their writers hold no lease: an old file is deleted if it is unreferenced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Text, cast, select

from transforms.errors import DataError
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks
from warehouse.files.memo_file import lease_of
from warehouse.files.own_files import HomeFiles
from warehouse.maintenance.current_batches import current_batches
from warehouse.scheduling.task_states import TaskState
from warehouse.storage.layout import ANALYSIS, MEMOS
from warehouse.storage.storage import Storage
from warehouse.storage.stored_file import ListedFile

CollectedKind = Literal[
    "job results",
    "artifacts",
    "overlays",
    "lake files",
    "analysis files",
    "batch files",
    "rows by key",
    "unfinished writes",
]


@dataclass(frozen=True, slots=True)
class CollectedFiles:
    """One kind of files.

    Attributes:
        kind: The kind.
        old: Returns the files of a home that were last written, or as batches and rows by key last used, before a time in epoch nanoseconds.
        referenced: Returns the paths, of some, that are referenced; inside a transaction.
    """

    kind: CollectedKind
    old: Callable[[HomeFiles, int], Sequence[ListedFile]]
    referenced: Callable[[Connection, Storage, Sequence[str]], set[str]]


def list_relative(storage: Storage, folder: str) -> Iterator[ListedFile]:
    """The files under a folder of the home, by paths relative to the home."""
    home = f"{storage.root}/"
    for file in storage.list(folder):
        yield ListedFile(file.path.removeprefix(home), file.size_bytes, file.mtime_ns)


def _old(kind: CollectedKind) -> Callable[[HomeFiles, int], Sequence[ListedFile]]:
    def old(home: HomeFiles, before_ns: int) -> Sequence[ListedFile]:
        return [file for file in home.own[kind] if file.mtime_ns <= before_ns]

    return old


def _referenced_results(connection: Connection, storage: Storage, paths: Sequence[str]) -> set[str]:
    """The results whose memo file has the lease name of a leased task."""
    of = schema.tasks.c
    leased = set(connection.execute(select(of.lease).where(of.state == TaskState.LEASED).distinct()).scalars())
    return {path for path in paths if lease_of(_output_of(storage, path)) in leased}


def _output_of(storage: Storage, path: str) -> str:
    """The memo file in a result; empty for an error, or if the result cannot be read."""
    document = _json(storage, path)
    result = document.get("result", {})
    return str(result.get("output", "")) if isinstance(result, dict) else ""


def _json(storage: Storage, path: str) -> dict[str, Any]:
    try:
        document = json.loads(storage.read_bytes(path))
    except (ValueError, DataError):
        return {}  # torn, or deleted by its reader
    return document if isinstance(document, dict) else {}


_DIGEST = re.compile(r'"artifact":\s*"([0-9a-f]{64})"')


def _referenced_artifacts(connection: Connection, _storage: Storage, paths: Sequence[str]) -> set[str]:
    """The artifacts of analyses, of pinned models and of components."""
    named = set(connection.execute(select(schema.analyses.c.artifact).distinct()).scalars())
    named |= set(connection.execute(select(schema.model_analyses.c.artifact).distinct()).scalars())
    document = cast(schema.components.c.document, Text)
    for text in connection.execute(select(document).where(document.like('%"artifact"%'))).scalars():
        named.update(_DIGEST.findall(text))
    return {path for path in paths if path.rpartition("/")[2].partition(".")[0] in named}


def _referenced_overlays(connection: Connection, _storage: Storage, paths: Sequence[str]) -> set[str]:
    """The overlay files of all table versions, since a job may read an old one."""
    of = schema.overlays.c
    found: set[str] = set()
    for chunk in chunks(paths):
        found.update(connection.execute(select(of.path).where(of.path.in_(chunk))).scalars())
    return found


def _old_analysis_files(home: HomeFiles, before_ns: int) -> Sequence[ListedFile]:
    """Files of jobs whose last write is old: the first files of a long job stay."""
    files = home.own["analysis files"]
    newest: dict[str, int] = {}
    for file in files:
        newest[_job_of(file.path)] = max(newest.get(_job_of(file.path), 0), file.mtime_ns)
    return [file for file in files if newest[_job_of(file.path)] <= before_ns]


def _job_of(path: str) -> str:
    return path.split("/")[2]


def _referenced_contributions(_connection: Connection, storage: Storage, paths: Sequence[str]) -> set[str]:
    """The files in the documents of contributions; a file's folder is named after its contribution."""
    contributions = {path.split("/")[-2] for path in paths}
    named: set[str] = set()
    for file in list_relative(storage, ANALYSIS):
        name = file.path.rpartition("/")[2]
        if name.endswith(".json") and name.removesuffix(".json") in contributions:
            named.update(_json(storage, file.path).get("files", {}))
    return named.intersection(paths)


def _referenced_lake_files(connection: Connection, storage: Storage, paths: Sequence[str]) -> set[str]:
    """The rows and origins of tables that follow a lake."""
    found: set[str] = set()
    of, parts = schema.files.c, schema.lake_parts.c
    for folder in {"/".join(path.split("/")[:2]) for path in paths}:
        table = folder.partition("/")[2]
        found.update(connection.execute(select(parts.origins).where(parts.table_name == table)).scalars())
        # By their names in the home: a home that was moved has other absolute paths, and its files are still needed.
        stored = connection.execute(select(of.path).where(of.table_name == table)).scalars()
        found.update(f"{folder}/{path.rpartition(f'/{folder}/')[2]}" for path in stored)
    return found.intersection(paths)


def _old_unfinished(home: HomeFiles, before_ns: int) -> Sequence[ListedFile]:
    """Unfinished writes, without those of memos, which are collected by their leases."""
    files = home.own["unfinished writes"]
    return [file for file in files if file.mtime_ns <= before_ns and not file.path.startswith(f"{MEMOS}/")]


def _nothing(_connection: Connection, _storage: Storage, _paths: Sequence[str]) -> set[str]:
    return set()


#: Every kind of collected files outside ``memos``.
COLLECTED_FILES: tuple[CollectedFiles, ...] = (
    CollectedFiles("job results", _old("job results"), _referenced_results),
    CollectedFiles("artifacts", _old("artifacts"), _referenced_artifacts),
    CollectedFiles("overlays", _old("overlays"), _referenced_overlays),
    CollectedFiles("lake files", _old("lake files"), _referenced_lake_files),
    CollectedFiles("analysis files", _old_analysis_files, _referenced_contributions),
    CollectedFiles("batch files", _old("batch files"), current_batches),
    CollectedFiles("rows by key", _old("rows by key"), _nothing),  # without one a repair reads the table
    CollectedFiles("unfinished writes", _old_unfinished, _nothing),
)
