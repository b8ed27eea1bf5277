"""Verify that the stored files match the catalog, beside workers and readers; changes nothing without ``repair``.

Memos are compared with their checksums, the catalog with itself, artifacts with their digests, and a random
sample of memos is computed again from raw data. Concurrent changes by a worker, an eviction or ``gc`` are no findings:
before a finding about bytes is reported, the catalog is read again for the memo.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from sqlalchemy import select

from transforms.errors import InputError
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks
from warehouse.errors import ArtifactDamaged, MemoDamaged
from warehouse.files.artifacts import artifact_path, read_artifact
from warehouse.files.memo_file import read_memo_file
from warehouse.maintenance.findings import REPAIR, BadFile, BadFragment, BadLease, BadMemo, BadTask, Finding, Problem
from warehouse.maintenance.progress import Progress, quiet
from warehouse.maintenance.recompute import recompute_joined, recompute_sample
from warehouse.maintenance.unreferenced_files import list_relative
from warehouse.maintenance.verify_catalog import (
    CatalogFile,
    CatalogMemo,
    Contents,
    check_file,
    list_files,
    load_files,
    rebuild_file,
    repair_fragment,
)
from warehouse.maintenance.verify_overlays import check_overlay, load_overlays
from warehouse.maintenance.verify_tasks import check_leases, check_tasks, repair_lease, repair_task
from warehouse.memos.memos import mark_damaged
from warehouse.scheduling.task_states import MemoState
from warehouse.storage.layout import MEMOS
from warehouse.storage.storage import Storage
from warehouse.warehouse import Warehouse

#: Files whose rows are checked in one transaction.
_AT_ONCE = 500


@dataclass(frozen=True)
class Verified:
    """The result of a verification.

    Attributes:
        files: Memo files that were compared with the catalog.
        read_files: Memo files that were read.
        memos: Memos in those.
        read_bytes: Bytes of those.
        overlays: Overlay files that were read.
        artifacts: Artifacts that were read.
        recomputed: Memos that were computed again.
        findings: The faults.
    """

    files: int
    read_files: int
    memos: int
    read_bytes: int
    overlays: int
    artifacts: int
    recomputed: int
    findings: tuple[Finding, ...]

    @property
    def wrong(self) -> int:
        """The number of findings that were not repaired."""
        return sum(not finding.repaired for finding in self.findings)


def verify_warehouse(
    warehouse: Warehouse,
    *,
    sample: float = 1.0,
    recompute: int = 0,
    seed: int = 0,
    repair: bool = False,
    progress: Progress = quiet,
) -> Verified:
    """Verify the catalog, memo files, overlay files and artifacts.

    Args:
        warehouse: The warehouse.
        sample: The share of the memo files and overlay files that are read.
        recompute: The number of memos that are computed again from raw data.
        seed: The seed of the samples, which otherwise depend on the catalog only.
        repair: Whether wrong memos are marked as damaged (and queued if a live model reads them), and coverage and
            counts are rebuilt.
        progress: Called after each file.

    Raises :class:`InputError` for a ``sample`` out of range.
    """
    if not 0 <= sample <= 1:
        raise InputError("sample must be a share in [0, 1]", where="sample", value=sample, allowed="0 to 1")
    random = Random(seed)
    with warehouse.catalog.read() as connection:
        ids, live = list_files(connection)
        problems = check_tasks(connection)
        problems += check_leases(connection, warehouse.clock(), warehouse.config.lease_secs)
    chosen = set(ids if sample == 1 else random.sample(live, round(sample * len(live))))
    # One listing instead of a request per file; a file that is not in it may have been written since.
    listed = set() if sample == 1 else {file.path for file in list_relative(warehouse.storage, MEMOS)}
    read_files = memos = read_bytes = 0
    for position, file in enumerate(_files(warehouse, ids, problems)):
        if file.id in chosen and file.memos:
            problems += check_bytes(warehouse, file)
            read_files, memos = read_files + 1, memos + len(file.memos)
            read_bytes += sum(memo.size_bytes or 0 for memo in file.memos)
        elif file.memos and file.path not in listed and not warehouse.storage.exists(file.path):
            problems += _still_ready(warehouse, file, [_missing(file, memo) for memo in file.memos])
        progress(position + 1, len(ids), file.path)
    overlays, bad_overlays = _check_overlays(warehouse, sample, random)
    artifacts, bad_artifacts = _check_artifacts(warehouse)
    recomputed, wrong = recompute_sample(warehouse, recompute, random, progress) if recompute else (0, [])
    joined, wrong_joins = recompute_joined(warehouse, recompute, random, progress) if recompute else (0, [])
    recomputed += joined
    problems += [*bad_overlays, *bad_artifacts, *_new(problems, [*wrong, *wrong_joins])]
    problems.sort(key=lambda problem: problem.finding.where)  # the catalog's order is that of the workers' commits
    findings = tuple(_repaired(warehouse, problem) if repair else problem.finding for problem in problems)
    return Verified(len(ids), read_files, memos, read_bytes, overlays, artifacts, recomputed, findings)


def _files(warehouse: Warehouse, ids: Sequence[int], problems: list[Problem]) -> Iterator[CatalogFile]:
    """Every file, after its rows in the catalog were checked."""
    for chunk in chunks(ids, _AT_ONCE):
        with warehouse.catalog.read() as connection:
            files = load_files(connection, chunk)
            contents = Contents(connection)
            for file in files:
                problems += check_file(contents, file)
        yield from files


def check_bytes(warehouse: Warehouse, file: CatalogFile) -> list[Problem]:
    """Problems of the ready memos of a file whose bytes are missing or damaged."""
    try:
        _read(warehouse.storage, file, file.memos)
        return []
    except MemoDamaged:
        if not warehouse.storage.exists(file.path):
            return _still_ready(warehouse, file, [_missing(file, memo) for memo in file.memos])
    found = []
    for memo in file.memos:
        try:
            _read(warehouse.storage, file, [memo])
        except MemoDamaged as error:
            is_digest = error.allowed and len(error.allowed) == 64  # not shown
            what = error.what if error.value is None or is_digest else f"{error.what}: {error.value}"
            finding = Finding("damaged memo", file.path, what, REPAIR, memo.fingerprint)
            found.append(Problem(finding, BadMemo(memo.key, file.path, error.what)))
    return _still_ready(warehouse, file, found)


def _read(storage: Storage, file: CatalogFile, memos: Sequence[CatalogMemo]) -> None:
    names = [memo.fingerprint for memo in memos]
    read = read_memo_file(storage, file.path, names, file.checksum, rows=file.rows)
    for fingerprint, array in read.items():
        if len(array) != file.rows:
            raise MemoDamaged("a memo must have the rows of its file", where=f"{file.path}, column {fingerprint}",
                              value=len(array), allowed=str(file.rows))  # fmt: skip


def _missing(file: CatalogFile, memo: CatalogMemo) -> Problem:
    what = "the file is not there"
    return Problem(
        Finding("missing file", file.path, what, REPAIR, memo.fingerprint), BadMemo(memo.key, file.path, what)
    )


def _still_ready(warehouse: Warehouse, file: CatalogFile, problems: Sequence[Problem]) -> list[Problem]:
    """The problems without those of memos that were evicted or moved meanwhile."""
    of = schema.memos.c
    with warehouse.catalog.read() as connection:
        query = select(of.memo_key).where(of.file == file.id, of.state == MemoState.READY)
        ready = set(connection.execute(query).scalars())
    return [one for one in problems if isinstance(one.repair, BadMemo) and one.repair.key in ready]


def _check_overlays(warehouse: Warehouse, sample: float, random: Random) -> tuple[int, list[Problem]]:
    with warehouse.catalog.read() as connection:
        files, problems = load_overlays(connection)
    chosen = files if sample == 1 else random.sample(files, round(sample * len(files)))
    for file in chosen:
        problems += check_overlay(warehouse.storage, file)
    return len(chosen), problems


def _check_artifacts(warehouse: Warehouse) -> tuple[int, list[Problem]]:
    with warehouse.catalog.read() as connection:
        found = set(connection.execute(select(schema.analyses.c.artifact).distinct()).scalars())
        named = sorted(found | set(connection.execute(select(schema.model_analyses.c.artifact).distinct()).scalars()))
    problems = []
    for digest in named:
        try:
            read_artifact(warehouse.storage, digest)
        except ArtifactDamaged as error:
            finding = Finding("artifact", artifact_path(digest), error.what, error.next_step)
            problems.append(Problem(finding))
    return len(named), problems


def _new(known: Sequence[Problem], found: Sequence[Problem]) -> list[Problem]:
    """The problems without those of memos with earlier problems."""
    bad = {one.repair.key for one in known if isinstance(one.repair, BadMemo)}
    return [one for one in found if not (isinstance(one.repair, BadMemo) and one.repair.key in bad)]


def _repaired(warehouse: Warehouse, problem: Problem) -> Finding:
    repair = problem.repair
    if isinstance(repair, BadMemo):
        mark_damaged(warehouse, repair.key, repair.path, repair.why)  # False: another process did, or it moved
    elif isinstance(repair, BadFragment):
        repair_fragment(warehouse, repair.key)
    elif isinstance(repair, BadFile):
        rebuild_file(warehouse, repair.file)
    elif isinstance(repair, BadLease):
        repair_lease(warehouse, repair.task)
    elif isinstance(repair, BadTask):
        repair_task(warehouse, repair.task)
    else:
        return problem.finding
    return replace(problem.finding, repaired=True)
