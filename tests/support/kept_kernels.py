"""A folder of compiled kernels for the tests of all checkouts of a user: a fresh checkout, as CI has one, compiles only what is new.

Kernels are kept under the digest of their sources (``transforms/kernels/kept_code.py``), so that checkouts with the same sources share them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path

_VARIABLE = "NUMBA_CACHE_DIR"
#: What no test has loaded for so long is removed.
KEPT_SECS = 30 * 86_400


def share_kernels(environment: MutableMapping[str, str]) -> None:
    """Name the folder in an environment that names none, for this process before it imports numba, and for its children."""
    caches = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.path.isabs(caches):
        environment.setdefault(_VARIABLE, str(Path(caches, "headrace-tests", "kernels")))


def with_bounds_checks(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of processes whose kernels check every position. They are kept apart: numba's own cache does not tell them from others."""
    checked = {**environment, "NUMBA_BOUNDSCHECK": "1"}
    if folder := environment.get(_VARIABLE):
        checked[_VARIABLE] = f"{folder}-with-bounds-checks"
    return checked


def remove_old_kernels(folder: Path, now: float) -> None:
    """Remove files that were neither written nor read for :data:`KEPT_SECS`; ``now``: seconds since 1970."""
    for path in folder.rglob("*.nb[ci]"):
        with suppress(FileNotFoundError):  # another process removes it too
            found = path.stat()
            if now - max(found.st_atime, found.st_mtime) > KEPT_SECS:
                path.unlink()


def remove_old_shared_kernels() -> None:
    """:func:`remove_old_kernels` of the folder that :func:`share_kernels` names; another one is not of the tests."""
    own = {key: value for key, value in os.environ.items() if key != _VARIABLE}
    share_kernels(own)
    if own.get(_VARIABLE, "") == os.environ.get(_VARIABLE):
        remove_old_kernels(Path(own[_VARIABLE]).parent, time.time())
