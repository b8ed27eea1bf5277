"""Errors of disks and object stores, translated to Headrace errors with the path and the next step."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from transforms.errors import StorageError
from warehouse.errors import MissingFile

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def translated_os_errors(path: str, verb: str) -> Iterator[None]:
    """Translate an :class:`OSError` of the block to :class:`MissingFile` or :class:`StorageError`, with the path."""
    try:
        yield
    except FileNotFoundError as error:
        raise missing_file(path, verb) from error
    except OSError as error:
        raise storage_error(error, path, verb) from error


def missing_file(path: str, verb: str) -> MissingFile:
    """The error for a file that does not exist."""
    return MissingFile(f"cannot {verb} a file that is not there", where=path,
                       next_step="restore it, or register the table again if it was moved")  # fmt: skip


def storage_error(error: Exception, path: str, verb: str) -> StorageError:
    """The error for a request that the operating system or the object store rejected."""
    said = str(error)
    if getattr(error, "errno", None) in _FULL or "No space left" in said:
        return StorageError(f"cannot {verb}: the disk is full", where=path, value=said,
                            next_step="free space or move the warehouse; no partial file was left")  # fmt: skip
    return StorageError(
        f"cannot {verb} the file", where=path, value=said, next_step="check the path, its permissions and the device"
    )


def credentials_error(said: str, path: str, verb: str) -> StorageError:
    """The error for missing credentials, and for the answers 401 and 403."""
    return StorageError(f"cannot {verb}: the credentials do not allow it", where=path, value=said[:500],
                        next_step="grant this account roles/storage.objectUser on the bucket, or log in: "
                        "gcloud auth application-default login")  # fmt: skip


def unreachable(said: str, path: str, verb: str) -> StorageError:
    """The error for a request that failed after all retries."""
    return StorageError(f"cannot {verb}: the object store failed or rejected the request", where=path, value=said[:500],
                        next_step="check the network and the bucket's quota, then run it again; "
                        "no partial file was left")  # fmt: skip
