"""Publish a commit: one manifest that names the parts of all hosts, in one atomic step.

A crash at any instruction leaves the commit before or the new one. Publishing a commit again has no effect; another content under
its number, or below a newer commit, is refused: that is a controller without the lease.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trainer.checkpoints.commit_manifest import (
    CommitFacts,
    CommitManifest,
    check_parts,
    check_planned_parts,
    commit_document,
)
from trainer.checkpoints.host_part import PartName
from trainer.checkpoints.manifest import MANIFEST, CheckpointFile, array_file
from trainer.checkpoints.not_written import translated_write_errors
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.part_manifest import PartManifest, part_shards
from trainer.checkpoints.read import read_base, read_part_manifest, read_shards, verify_commit
from trainer.checkpoints.run_files import RunFiles, commit_name, epochs_of, is_commit_name
from trainer.checkpoints.shard_manifest import check_server_shards
from trainer.errors import CheckpointNotWritten, CommitConflict, OtherFormat, PublicationInDoubt, TornCheckpoint
from trainer.planning.plan import PartitionPlan
from trainer.scheduling.orders import Commit
from transforms.errors import StorageError


def publish(
    run_dir: str | Path,
    commit: Commit,
    hosts: Sequence[str],
    parts: Mapping[str, str],
    find_facts: Callable[[str], CommitFacts],
    *,
    release: str = "",
    partition: PartitionPlan | None = None,
) -> str:
    """Publish a commit whose parts are written, and return its place.

    Args:
        hosts: the hosts by rank.
        parts: of each host, the name of its part (:func:`trainer.checkpoints.parts.write_part`).
        find_facts: what the commits of a plan have in common, by the name of the plan.
        release: the release that trained it.
        partition: the plan by which the hosts train; None: rows are spread over them.

    Raises :class:`TornCheckpoint` for parts that are not one state of this attempt at one moment, :class:`CheckpointNotWritten` if a
    part is damaged or the storage refuses, and :class:`CommitConflict` for another commit of this number or a newer one: the commit
    is certainly not published then. After :class:`PublicationInDoubt` it may be; publish it again.
    """
    files = open_run(run_dir)
    name = commit_name(commit.epochs)
    found = [_read_part(files, PartName.parse(parts[host], f"part of host {host}")) for host in hosts]
    named = tuple(part for part, _ in found)
    if partition is None:
        check_parts(commit, hosts, found)
    else:
        check_planned_parts(commit, hosts, partition, found)
    if _is_published(files, name, named):
        return files.place(name)
    _check_shards(files, found, commit)
    written = [one.part for _, one in found]
    document = commit_document(commit, hosts, written, find_facts(written[0].plan), release)
    data = CommitManifest(commit.epochs, document, named, partition).to_bytes()
    if not _create(files, name, data, named) and not _is_published(files, name, named):
        raise _conflict(files, name)  # another controller was faster
    return files.place(name)


def _create(files: RunFiles, name: str, data: bytes, parts: tuple[PartName, ...]) -> bool:
    """Create the commit unless there is one. Raises :class:`CheckpointNotWritten` only if it certainly was not created."""
    try:
        return files.create(name, MANIFEST, data)
    except (OSError, StorageError) as error:
        try:
            is_there = _names(files, name, parts)
        except StorageError:
            is_there = True
        if is_there:
            raise _in_doubt(files, name, error) from error
        with translated_write_errors(files.place(name), "a commit"):
            raise


def _read_part(files: RunFiles, name: PartName) -> tuple[PartName, PartManifest]:
    """The manifest of a part, and whether its files are there. The bytes of arrays are verified when they are read."""
    try:
        manifest = read_part_manifest(files, name)
        _check_sizes(files, name.folder, [array.file for array in manifest.arrays])
    except TornCheckpoint as error:
        raise _damaged(error) from error
    return name, manifest


def _check_shards(files: RunFiles, parts: Sequence[tuple[PartName, PartManifest]], commit: Commit) -> None:
    """Check that the shards of all servers are there, if servers have the tables, as :func:`_read_part` does."""
    try:
        written = part_shards(parts, f"commit {commit.epochs}")
        shards = read_shards(files, written.names)
        if shards:
            check_server_shards(parts[0][1].part.step, shards, f"commit {commit.epochs}")
        bases = [base for _, manifest in shards if (base := read_base(files, manifest.shard)) is not None]
        if tuple(name for name, _ in bases) != written.bases:
            raise TornCheckpoint("a commit must name the bases of its shards", where=f"commit {commit.epochs}", value=len(written.bases))  # fmt: skip
        for name, manifest in (*shards, *bases):
            _check_sizes(files, name.folder, [file for _, file in manifest.arrays])
    except TornCheckpoint as error:
        raise _damaged(error) from error


def _check_sizes(files: RunFiles, folder: str, arrays: Sequence[CheckpointFile]) -> None:
    sizes = files.sizes(folder)
    for k, file in enumerate(arrays):
        if sizes.get(array_file(k)) != file.size_bytes:
            raise TornCheckpoint("a file must have the size that the manifest records, got another size",
                                 where=files.place(f"{folder}/{array_file(k)}"),
                                 value=sizes.get(array_file(k)), allowed=str(file.size_bytes))  # fmt: skip


def _damaged(error: TornCheckpoint) -> CheckpointNotWritten:
    return CheckpointNotWritten(f"a commit was not published, a part is damaged: {error.what}", where=error.where,
                                value=error.value, allowed=error.allowed,
                                next_step="the epoch is trained again from the commit before it")  # fmt: skip


def _is_published(files: RunFiles, name: str, parts: tuple[PartName, ...]) -> bool:
    """Whether a commit of these parts is published. What is torn under its number or above is removed, which the run passed again.

    Raises :class:`CommitConflict` for another intact commit there.
    """
    later = [one for one in files.names() if is_commit_name(one) and epochs_of(one) >= epochs_of(name)]
    if name in later and _names(files, name, parts):
        try:
            files.settle(name)
        except OSError as error:
            raise _in_doubt(files, name, error) from error
        return True
    for one in later:
        try:
            verify_commit(files, one)
        except TornCheckpoint:
            with translated_write_errors(files.place(one), "a commit"):
                files.remove(one)
        else:
            raise _conflict(files, one)
    return False


def _names(files: RunFiles, name: str, parts: tuple[PartName, ...]) -> bool:
    """Whether a commit names these parts, whose digests cover all that hosts have written."""
    where = files.place(f"{name}/{MANIFEST}")
    try:
        return CommitManifest.from_bytes(files.read(f"{name}/{MANIFEST}"), where).parts == parts
    except (TornCheckpoint, OtherFormat):
        return False


def _in_doubt(files: RunFiles, name: str, error: Exception) -> PublicationInDoubt:
    return PublicationInDoubt(
        "a commit may be published or not", where=files.place(name), value=str(error), next_step="publish it again"
    )


def _conflict(files: RunFiles, name: str) -> CommitConflict:
    return CommitConflict("a commit must be new, got one of another controller in its place", where=files.place(name),
                          next_step="stop one of the two controllers: both train this run")  # fmt: skip
