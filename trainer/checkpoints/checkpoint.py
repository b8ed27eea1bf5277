"""Atomic checkpoints: a directory with a JSON document (``state.json``) and named numpy arrays.

A checkpoint is written to ``.tmp-…``, every file synced, then ``manifest.json`` (:mod:`trainer.checkpoints.manifest`) with
the size and digest of every file and of itself, then renamed to ``checkpoints/epoch-NNNNNN`` and the parent synced. After
a crash at any instruction the newest checkpoint that verifies is the one before or the one after. Equal content gives
equal bytes in every file. Nothing is pickled. Files are untrusted: only verified bytes are used.

A job with several hosts writes parts (:mod:`trainer.checkpoints.parts`) and publishes commits that name them
(:mod:`trainer.checkpoints.publish`). Tables on parameter servers are in shards that the servers write before the checkpoint names them
(:mod:`trainer.checkpoints.shards.write_shard`). All kinds are read here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from trainer.checkpoints.array_files import NewFiles, write_arrays, write_bytes
from trainer.checkpoints.host_part import PARTS
from trainer.checkpoints.local_run import LocalRun
from trainer.checkpoints.manifest import (
    FORMAT,
    MANIFEST,
    SHARDED_FORMAT,
    STATE,
    Manifest,
    canonical_json,
    purpose_digest,
)
from trainer.checkpoints.not_written import translated_write_errors
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.parted_arrays import PartedArrays
from trainer.checkpoints.read import Checkpoint, read_account, read_commit
from trainer.checkpoints.retention import Retention, apply_retention
from trainer.checkpoints.run_files import CHECKPOINTS, PLANS, RunFiles, commit_name, epochs_of, newest_first
from trainer.checkpoints.shard_name import NO_SHARDS, WrittenShards
from trainer.checkpoints.stored_commit import Share
from trainer.errors import TornCheckpoint
from transforms.arrays import Array
from transforms.errors import listed

T = TypeVar("T")


def checkpoints_dir(run_dir: Path) -> Path:
    """The folder of a run's checkpoints."""
    return run_dir / CHECKPOINTS


def write_checkpoint(
    run_dir: Path,
    epochs_done: int,
    document: Mapping[str, Any],
    arrays: Mapping[str, Array],
    parted: Sequence[PartedArrays] = (),
    *,
    keep: int,
    shards: WrittenShards = NO_SHARDS,
    others: Mapping[str, bytes] | None = None,
) -> Path:
    """Write one checkpoint durably, then delete all but the newest ``keep``. Returns its directory.

    ``parted``: further arrays, which come in parts. ``shards``: those of the tables that servers have written. ``others``: further files by name, which the manifest does not have. Raises :class:`CheckpointNotWritten` (disk full, permission); earlier checkpoints are unchanged then.
    """
    files = LocalRun(checkpoints_dir(run_dir))
    name = commit_name(epochs_done)
    place, form = files.root / name, SHARDED_FORMAT if shards else FORMAT

    def write(folder: NewFiles) -> None:
        state = write_bytes(folder, STATE, purpose_digest("state", form=form), canonical_json(document))
        written = write_arrays(folder, 0, arrays, parted, form)
        for other, data in (others or {}).items():
            folder.write(other, lambda file, data=data: file.write(data))  # type: ignore[misc]
        manifest = Manifest(epochs_done, state, written, form, shards)
        write_bytes(folder, MANIFEST, hashlib.sha256(), manifest.to_bytes())

    with translated_write_errors(str(place)):
        files.write_folder(name, write)
    for torn in newest_first(files):  # torn checkpoints of later epochs, which the run passed again
        if epochs_of(torn) > epochs_done:
            files.remove(torn)
    apply_retention(run_dir, Retention(newest=keep), now_secs=0.0)
    return place


def epochs_committed(run_dir: str | Path) -> int:
    """The epochs of the newest checkpoint by its name, or 0, for watching a run."""
    newest = newest_first(open_run(run_dir))[:1]
    return epochs_of(newest[0]) if newest else 0


def read_newest(run_dir: str | Path, *, on_skip: Callable[[str], None]) -> Checkpoint | None:
    """The newest intact checkpoint of a run: see :func:`newest_intact`."""
    return newest_intact(run_dir, lambda checkpoint: checkpoint, on_skip=on_skip)


def newest_intact(
    run_dir: str | Path,
    take: Callable[[Checkpoint], T],
    *,
    on_skip: Callable[[str], None],
    weights: bool = True,
    verifies_all: bool = True,
    with_shards: bool = True,
) -> T | None:
    """The result of ``take`` for the newest checkpoint that is not torn; None if the run has none.

    ``take`` may raise :class:`TornCheckpoint` too. ``on_skip`` is called with the file and the reason for each torn checkpoint.
    Without ``weights`` every byte is verified all the same, unless ``verifies_all`` is false, and
    :func:`trainer.checkpoints.read.read_account` says what is read. Without ``with_shards`` servers read and verify their shards.
    Raises :class:`TornCheckpoint` if all checkpoints are torn: training from the beginning would discard their training.
    """
    files = open_run(run_dir)
    read = (
        partial(read_commit, with_shards=with_shards) if weights else partial(read_account, verifies_all=verifies_all)
    )
    return _newest(files, lambda name: take(read(files, name)), on_skip)


def _newest(files: RunFiles, take: Callable[[str], T], on_skip: Callable[[str], None]) -> T | None:
    reasons = []
    commits = newest_first(files)
    for name in commits:
        try:
            return take(name)
        except TornCheckpoint as error:
            reasons.append(f"{name}: {error.what} ({error.where})")
            on_skip(reasons[-1])
    strangers = [name for name in files.names() if name not in commits and name not in (PARTS, PLANS)]
    reasons += [f"{name}: not the folder of a checkpoint" for name in strangers]
    if reasons:
        raise TornCheckpoint(
            "a run must have an intact checkpoint",
            where=files.place(""),
            value=listed(reasons),
            next_step="restore the directory from a backup, or train from the beginning in another run directory",
        )
    return None


def read_checkpoint(path: Path) -> Checkpoint:
    """Read one checkpoint of a local folder and verify every byte: see :func:`trainer.checkpoints.read.read_commit`."""
    return read_commit(LocalRun(path.parent), path.name)


def read_epoch(
    run_dir: str | Path, epochs_done: int, share: Share | None = None, *, with_shards: bool = True
) -> Checkpoint:
    """Read the checkpoint of a run after so many epochs and verify every byte: see :func:`trainer.checkpoints.read.read_commit`."""
    return read_commit(open_run(run_dir), commit_name(epochs_done), share, with_shards=with_shards)
