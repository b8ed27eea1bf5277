"""Commits that a process reads are not removed meanwhile: it holds a lock for each in the folder of the run.

The system releases a lock when its process ends, so a killed reader keeps no commit.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.checkpoints.run_files import commit_name, epochs_of, is_commit_name

#: The folder of the locks, in the run directory, or in the job folder of a run in a bucket.
HELD = ".held-commits"


@contextmanager
def hold_commit(folder: Path, epochs_done: int) -> Iterator[None]:
    """Keep a commit from removal while the block runs; any number of processes may hold it.

    The block looks first whether the commit is still there. A folder that this process may not write holds nothing.
    """
    descriptor = _lock(folder / HELD / commit_name(epochs_done))
    try:
        yield
    finally:
        if descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that is being started may have the descriptor for a moment
            os.close(descriptor)


def held_commits(folder: Path) -> frozenset[int]:
    """The epochs of the commits that processes hold. Locks that killed processes have left are removed."""
    held = folder / HELD
    if not held.is_dir():
        return frozenset()
    names = [path.name for path in held.iterdir() if is_commit_name(path.name)]
    return frozenset(epochs_of(name) for name in names if not _remove_free(held / name))


def _lock(path: Path) -> int | None:
    """A shared lock of the file, which is created if absent; None if it cannot be."""
    while True:
        try:
            path.parent.mkdir(exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError:
            return None
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)  # it was removed in between


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        named, own = os.stat(path), os.fstat(descriptor)
    except OSError:
        return False
    return (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)


def _remove_free(path: Path) -> bool:
    """Remove the file of a lock that no process has; whether it was removed."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(path, descriptor):
            path.unlink(missing_ok=True)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
