"""A memory folder of parameter servers on a file system of its own, which can be made full and have space again."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from transforms.errors import InputError, StorageError


class LimitedMemory:
    """A tmpfs while its context lasts; full, its limit is what is used.

    Attributes:
        folder: of the file system.

    Raises :class:`InputError` where this user may not mount one.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-chaos-memory-"))
        self._is_mounted = False
        #: Whether it has no space for more now, and how often it had none.
        self.is_full, self.fills = False, 0

    def __enter__(self) -> Self:
        done = _run("mount", "-t", "tmpfs", "-o", "mode=700", "tmpfs", str(self.folder))
        if done.returncode:
            self.folder.rmdir()
            raise InputError("the fault full-memory needs a user who may mount a file system", where="--kinds",
                             value=done.stderr.strip()[:200], next_step="leave full-memory out, or run the command as root")  # fmt: skip
        found = os.statvfs(self.folder)
        self._is_mounted, self._size_bytes = True, found.f_blocks * found.f_frsize
        return self

    def fill(self) -> None:
        """Let the folder have no space for more. Raises :class:`StorageError`."""
        found = os.statvfs(self.folder)
        self.is_full, self.fills = True, self.fills + 1
        self._limit((found.f_blocks - found.f_bfree) * found.f_frsize)

    def empty(self) -> None:
        """Let the folder have space again. Raises :class:`StorageError`."""
        self._limit(self._size_bytes)
        self.is_full = False

    def _limit(self, size_bytes: int) -> None:
        done = _run("mount", "-o", f"remount,size={max(size_bytes, 1)}", str(self.folder))
        if done.returncode:
            raise StorageError(
                "the limit of a memory folder could not be changed",
                where=str(self.folder),
                value=done.stderr.strip()[:200],
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_mounted:
            _run("umount", "--lazy", str(self.folder))
            self.folder.rmdir()


def may_limit_memory() -> bool:
    """Whether this user may mount a file system."""
    try:
        with LimitedMemory():
            return True
    except InputError:
        return False


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))
