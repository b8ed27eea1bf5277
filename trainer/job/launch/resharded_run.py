"""Write a run's commit in another partition, as a new run that training continues.

The new run appears by one rename, whole, and no file of the other run is changed: a killed process leaves a hidden folder beside the new
run's place, which the next call with the same place removes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from trainer.checkpoints.checkpoint import checkpoints_dir
from trainer.checkpoints.local_run import delete
from trainer.checkpoints.not_written import translated_write_errors
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.read import open_commit
from trainer.checkpoints.reshard import Resharded, check_plan, reshard_commit
from trainer.checkpoints.run_files import RunFiles, commit_name
from trainer.checkpoints.stored_commit import StoredCommit
from trainer.checkpoints.stored_plans import find_plan
from trainer.errors import CheckpointNotWritten
from trainer.job.control.job_files import JobFiles
from trainer.planning.plan import PartitionPlan
from trainer.run.history.history_file import HISTORY, MOST_BYTES, history_place
from trainer.run.preparation.job_plan import JobPlan
from trainer.run.progress.lock import run_lock
from trainer.run.progress.run_statistics import STATISTICS
from transforms.errors import InputError, NotFound
from warehouse.storage.durable_files import sync_path
from warehouse.storage.locations import is_gcs

#: The file by which one process at a time has a run.
_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class ReshardedRun:
    """A run that was written.

    Attributes:
        name: of its commit.
        parts_before: the parts of the commit that was read; 1 for a checkpoint of one folder.
        resharded: what was written.
    """

    name: str
    parts_before: int
    resharded: Resharded


def reshard_run(
    run_dir: str,
    epochs: int,
    plan: PartitionPlan,
    output: Path,
    *,
    is_of_towers: bool = False,
    on_bytes: Callable[[int, int], None] = lambda done, total: None,
) -> ReshardedRun:
    """Write the commit of a run after so many epochs to the new run ``output``, with a part for each core of ``plan``.

    Args:
        run_dir: a local folder or a location in a bucket; training must not run in a local folder.
        is_of_towers: whether ``plan`` is that of towers, which may have hashed tables.
        on_bytes: called with the bytes that are written, and those of the commit.

    Raises :class:`~transforms.errors.Busy` for a run in use, :class:`InputError` for an output that exists,
    :class:`~trainer.errors.TornCheckpoint`, :class:`~trainer.errors.ConfigError` for a plan of other tables, and
    :class:`CheckpointNotWritten` without enough disk space. There is no new run then.
    """
    _check_output(run_dir, output)
    with ExitStack() as stack:
        if not is_gcs(run_dir):
            stack.enter_context(run_lock(Path(run_dir)))
        files = open_run(run_dir)
        commit = open_commit(files, commit_name(epochs))
        check_plan(files, commit, plan, is_of_towers=is_of_towers)
        total = sum(file.file.size_bytes for file in commit.files)
        temporary = output.with_name(f".{output.name}.resharded")
        stack.enter_context(run_lock(temporary))
        with translated_write_errors(str(output), "the new run"):
            _clear(temporary)
            done = _write(
                run_dir,
                files,
                commit,
                plan,
                temporary,
                output,
                is_of_towers=is_of_towers,
                on_bytes=lambda done: on_bytes(done, total),
            )
    return ReshardedRun(commit_name(epochs), max(len(commit.names), len(commit.shards), 1), done)


def _write(
    run_dir: str,
    files: RunFiles,
    commit: StoredCommit,
    plan: PartitionPlan,
    temporary: Path,
    output: Path,
    *,
    is_of_towers: bool,
    on_bytes: Callable[[int], None],
) -> Resharded:
    """Write the new run under a hidden name, then rename it. An error leaves nothing."""
    try:
        _check_space(temporary, sum(file.file.size_bytes for file in commit.files))
        done = reshard_commit(
            files, commit, plan, checkpoints_dir(temporary), is_of_towers=is_of_towers, on_bytes=on_bytes
        )
        _copy_plan(run_dir, files, commit, JobFiles(temporary))
        _copy_statistics(files, temporary)
        _copy_history(files, commit.epochs_done, temporary)
        _sync_folders(temporary)
        _check_output(run_dir, output)
        os.rename(temporary, output)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_path(output.parent)
    return done


def _check_output(run_dir: str, output: Path) -> None:
    if output.exists() or output.is_symlink():
        raise InputError("the output must be a new folder", where=str(output), value="exists",
                         next_step="name another folder, or remove this one")  # fmt: skip
    if not is_gcs(run_dir) and output.resolve().is_relative_to(Path(run_dir).resolve()):
        raise InputError("the output must be outside of the run", where=str(output), allowed=f"not below {run_dir}",
                         next_step="name another folder")  # fmt: skip


def _clear(temporary: Path) -> None:
    """Delete what a killed process has left."""
    for path in temporary.iterdir():
        if path.name != _LOCK:
            delete(path)


def _check_space(folder: Path, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise CheckpointNotWritten("the disk of the output must have space for the commit", where=str(folder),
                                   value=f"{free_bytes:,} bytes free", allowed=f"at least {needed_bytes:,} bytes",
                                   next_step="free disk space, or name an output on another disk")  # fmt: skip


def _copy_plan(run_dir: str, files: RunFiles, commit: StoredCommit, to: JobFiles) -> None:
    """Copy the plan of a job's commit, with which the job goes on in the middle of its data, if the run has it."""
    if commit.job is None:
        return
    name = commit.job.plan
    documents: tuple[bytes, ...] = ()
    if not is_gcs(run_dir):
        documents = _documents_of(JobFiles(Path(run_dir)), name)
    elif (found := find_plan(files, name)) is not None:
        documents = found.plan, found.solution
    for document in documents:
        to.put_document(document)


def _documents_of(job: JobFiles, name: str) -> tuple[bytes, ...]:
    if not job.documents.is_dir():
        return ()
    try:
        plan = job.read_document(name)
        return plan, job.read_document(JobPlan.from_bytes(plan, f"plan {name[:12]}").solution)
    except NotFound:
        return ()  # what is left is planned again, from the counts of the commit


def _copy_statistics(files: RunFiles, run: Path) -> None:
    """Copy the statistics of features, which are beside the commits of a run."""
    if STATISTICS in files.sizes(""):
        open_run(run).put(STATISTICS, files.read(STATISTICS))


def _copy_history(files: RunFiles, epochs: int, run: Path) -> None:
    """Copy the metric history up to the commit."""
    place, new = history_place(files, epochs), open_run(run)
    if HISTORY in files.sizes(place.rpartition("/")[0]):
        new.put(history_place(new, epochs), files.read_small(place, MOST_BYTES))


def _sync_folders(root: Path) -> None:
    for folder, _, _ in os.walk(root, topdown=False):
        sync_path(folder)
