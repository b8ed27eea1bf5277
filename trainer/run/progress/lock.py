"""An advisory lock that lets one process at a time train in a run directory; the system releases it when the process ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from transforms.errors import Busy, StorageError


@dataclass(frozen=True, slots=True)
class HeldLock:
    """A lock that this process took.

    Attributes:
        path: the file.
        descriptor: the open file.
    """

    path: Path
    descriptor: int

    @property
    def is_held(self) -> bool:
        """Whether the file at ``path`` is still the locked one: another process could lock one that replaced it."""
        own = os.fstat(self.descriptor)
        try:
            named = os.stat(self.path)
        except OSError:
            return False
        return (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)


@contextmanager
def run_lock(run_dir: Path, what: str = "run directory") -> Iterator[HeldLock]:
    """Lock ``run_dir``, which is created if absent; errors call it ``what``.

    Raises :class:`Busy` with the other process's id if the lock is taken, and :class:`StorageError` if the directory
    cannot be created or written.
    """
    path = run_dir / "lock"
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StorageError(f"a {what} cannot be used", where=str(run_dir), value=error.strerror,
                           next_step=f"choose another {what} or fix its permissions") from error  # fmt: skip
    try:
        _acquire(descriptor, path, what)
        yield HeldLock(path, descriptor)
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that is being started may have the descriptor for a moment
        os.close(descriptor)


def _acquire(descriptor: int, path: Path, what: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        raise Busy(
            f"the {what} must not be in use by another process",
            where=str(path),
            value=f"process {holder or 'unknown'}",
            next_step=f"wait for it to end, stop it, or choose another {what}",
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)


def is_locked(run_dir: Path) -> bool:
    """Whether a process has the lock of ``run_dir``. For the moment of the question this process may have it."""
    try:
        descriptor = os.open(run_dir / "lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
