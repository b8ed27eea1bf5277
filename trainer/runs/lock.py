"""An advisory lock that lets one process at a time train in a run directory; the system releases it when the process ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transforms.errors import Busy, StorageError


@contextmanager
def run_lock(run_dir: Path) -> Iterator[None]:
    """Lock ``run_dir``, which is created if absent.

    Raises :class:`Busy` with the other process's id if the lock is taken, and :class:`StorageError` if the directory
    cannot be created or written.
    """
    path = run_dir / "lock"
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StorageError("a run directory cannot be used", where=str(run_dir), value=error.strerror,
                           next_step="choose another run directory or fix its permissions") from error  # fmt: skip
    try:
        _acquire(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        raise Busy(
            "the run directory must not be in use by another process",
            where=str(path),
            value=f"process {holder or 'unknown'}",
            next_step="wait for it to end, stop it, or choose another run directory",
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
