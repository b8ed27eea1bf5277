"""Trusted folders for compiled kernels: cached code is run, so no other user may be able to write it.

A folder is trusted when it, and each folder above it, belongs to this user or to root and no other user may write there; above
it a sticky folder such as ``/tmp`` will do, in which no user renames another's files. Root can write anywhere, and is trusted.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import tempfile
from functools import cache
from pathlib import Path

_LOG = logging.getLogger(__name__)
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@cache
def trusted_folder(folder: str) -> str:
    """``folder`` if it is trusted, else one that only this user can enter, after one line of warning.

    A folder that is not there yet is judged by the nearest one above it that is.
    """
    reason = distrust_of(folder)
    if reason is None:
        return folder
    private = os.path.join(private_folder(), hashlib.sha256(os.path.abspath(folder).encode()).hexdigest()[:16])
    _warn_once(f"compiled kernels are not kept in {folder}, because {reason}; they are kept in {private} instead")
    return private


def distrust_of(folder: str) -> str | None:
    """The reason why another user could have written into a folder; None if no user could."""
    own = os.path.realpath(folder)
    for path in (Path(own), *Path(own).parents):
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"{path} cannot be looked at ({error.strerror})"
        is_above = str(path) != own
        if found.st_uid not in (os.geteuid(), 0):
            return f"{path} belongs to another user"
        if _is_open(found) and not (is_above and found.st_mode & stat.S_ISVTX):
            return f"other users may write to {path}"
    return None


def is_trusted_file(descriptor: int) -> bool:
    """Whether an open file is a plain one that belongs to this user or to root, and that no other user may write to."""
    found = os.fstat(descriptor)
    return stat.S_ISREG(found.st_mode) and found.st_uid in (os.geteuid(), 0) and not _is_open(found)


def private_folder() -> str:
    """A folder that only this user can enter: the same one for all processes, unless its name is taken."""
    path = os.path.join(tempfile.gettempdir(), f"headrace-kernels-{os.geteuid()}")
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError:
        return _fresh_folder()
    found = os.lstat(path)
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == 0o700
    return path if is_ours and distrust_of(path) is None else _fresh_folder()


@cache
def _fresh_folder() -> str:
    return tempfile.mkdtemp(prefix="headrace-kernels-")


@cache
def _warn_once(text: str) -> None:
    _LOG.warning("%s", text)


def _is_open(found: os.stat_result) -> bool:
    """Whether users other than the owner may write; a group that has no other member is no other user."""
    if not found.st_mode & _OTHERS_WRITE:
        return False
    return bool(found.st_mode & stat.S_IWOTH) or not _is_own_group(found.st_gid)


@cache
def _is_own_group(group: int) -> bool:
    """Whether a group is this user's own, as systems make one for each user."""
    try:
        import grp
        import pwd

        name = pwd.getpwuid(os.geteuid()).pw_name
        entry = grp.getgrgid(group)
    except (ImportError, KeyError):
        return False
    return entry.gr_name == name and not set(entry.gr_mem) - {name}
