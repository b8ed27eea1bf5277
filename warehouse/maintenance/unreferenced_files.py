"""Files outside ``memos`` that processes may leave behind, kind by kind: which are old enough, and which are named.

Their writers hold no lease: a file counts as left over once it is old, and is deleted if then nothing names it.
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
from warehouse.scheduling.task_states import TaskState
from warehouse.storage.layout import ANALYSIS, MEMOS
from warehouse.storage.storage import Storage
from warehouse.storage.stored_file import ListedFile

LeftoverKind = Literal["job results", "artifacts", "overlays", "analysis files", "unfinished writes"]


@dataclass(frozen=True, slots=True)
class Leftovers:
    """One kind of files.

    Attributes:
        kind: What they are.
        old: Those of the files of a home that were last written before a moment, in nanoseconds since the epoch.
        named: Those of some paths that something names, inside a transaction.
    """

    kind: LeftoverKind
    old: Callable[[HomeFiles, int], Sequence[ListedFile]]
    named: Callable[[Connection, Storage, Sequence[str]], set[str]]


def list_relative(storage: Storage, folder: str, *, temporaries: bool = False) -> Iterator[ListedFile]:
    """The files under a folder of the home, by paths relative to the home."""
    home = f"{storage.root}/"
    for file in storage.list(folder, temporaries=temporaries):
        yield ListedFile(file.path.removeprefix(home), file.size_bytes, file.mtime_ns)


def _old(kind: LeftoverKind) -> Callable[[HomeFiles, int], Sequence[ListedFile]]:
    def old(home: HomeFiles, before_ns: int) -> Sequence[ListedFile]:
        return [file for file in home.own[kind] if file.mtime_ns <= before_ns]

    return old


def _named_results(connection: Connection, storage: Storage, paths: Sequence[str]) -> set[str]:
    """The results whose memo file was written under a lease that tasks still carry."""
    of = schema.tasks.c
    leased = set(connection.execute(select(of.lease).where(of.state == TaskState.LEASED).distinct()).scalars())
    return {path for path in paths if lease_of(_output_of(storage, path)) in leased}


def _output_of(storage: Storage, path: str) -> str:
    """The memo file that a result tells of; empty if it tells of an error, or cannot be read."""
    document = _json(storage, path)
    result = document.get("result", {})
    return str(result.get("output", "")) if isinstance(result, dict) else ""


def _json(storage: Storage, path: str) -> dict[str, Any]:
    try:
        document = json.loads(storage.read_bytes(path))
    except (ValueError, DataError):
        return {}  # torn, or taken away by its reader: it names nothing
    return document if isinstance(document, dict) else {}


_DIGEST = re.compile(r'"artifact":\s*"([0-9a-f]{64})"')


def _named_artifacts(connection: Connection, _storage: Storage, paths: Sequence[str]) -> set[str]:
    """The artifacts that an analysis found, that a model is pinned to, or that a component reads."""
    named = set(connection.execute(select(schema.analyses.c.artifact).distinct()).scalars())
    named |= set(connection.execute(select(schema.model_analyses.c.artifact).distinct()).scalars())
    document = cast(schema.components.c.document, Text)
    for text in connection.execute(select(document).where(document.like('%"artifact"%'))).scalars():
        named.update(_DIGEST.findall(text))
    return {path for path in paths if path.rpartition("/")[2].partition(".")[0] in named}


def _named_overlays(connection: Connection, _storage: Storage, paths: Sequence[str]) -> set[str]:
    """The files that a change of a table brought: those of every version, since a job may read an old one."""
    of = schema.overlays.c
    found: set[str] = set()
    for chunk in chunks(paths):
        found.update(connection.execute(select(of.path).where(of.path.in_(chunk))).scalars())
    return found


def _old_analysis_files(home: HomeFiles, before_ns: int) -> Sequence[ListedFile]:
    """Files of jobs that wrote nothing since: a job of many hours keeps what it wrote first."""
    files = home.own["analysis files"]
    newest: dict[str, int] = {}
    for file in files:
        newest[_job_of(file.path)] = max(newest.get(_job_of(file.path), 0), file.mtime_ns)
    return [file for file in files if newest[_job_of(file.path)] <= before_ns]


def _job_of(path: str) -> str:
    return path.split("/")[2]


def _named_contributions(_connection: Connection, storage: Storage, paths: Sequence[str]) -> set[str]:
    """The files that the document of a contribution lists; ``<contribution>`` is the folder that a file lies in."""
    contributions = {path.split("/")[-2] for path in paths}
    named: set[str] = set()
    for file in list_relative(storage, ANALYSIS):
        name = file.path.rpartition("/")[2]
        if name.endswith(".json") and name.removesuffix(".json") in contributions:
            named.update(_json(storage, file.path).get("files", {}))
    return named.intersection(paths)


def _old_unfinished(home: HomeFiles, before_ns: int) -> Sequence[ListedFile]:
    """Unfinished writes; those of memos are judged with the memos, by their leases."""
    files = home.own["unfinished writes"]
    return [file for file in files if file.mtime_ns <= before_ns and not file.path.startswith(f"{MEMOS}/")]


def _nothing(_connection: Connection, _storage: Storage, _paths: Sequence[str]) -> set[str]:
    return set()


#: Every kind of file outside ``memos`` that is collected.
LEFTOVERS: tuple[Leftovers, ...] = (
    Leftovers("job results", _old("job results"), _named_results),
    Leftovers("artifacts", _old("artifacts"), _named_artifacts),
    Leftovers("overlays", _old("overlays"), _named_overlays),
    Leftovers("analysis files", _old_analysis_files, _named_contributions),
    Leftovers("unfinished writes", _old_unfinished, _nothing),
)
