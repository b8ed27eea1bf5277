"""A folder on a file system of its own of a few MB, so that a full one is real."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_folder(folder: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a tmpfs of a size; skips the test where this user may not."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small tmpfs needs a user who may mount one: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def free_bytes_in(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
