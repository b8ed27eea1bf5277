"""What a disk or an object store said, turned into errors of ours that name the path and the next step."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from transforms.errors import StorageError
from warehouse.errors import MissingFile

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def translated_os_errors(path: str, verb: str) -> Iterator[None]:
    """Turn what the file system says into an error of ours that names the path.

    Raises :class:`MissingFile` for a file that is not there, else :class:`StorageError`.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise missing_file(path, verb) from error
    except OSError as error:
        raise storage_error(error, path, verb) from error


def missing_file(path: str, verb: str) -> MissingFile:
    """The file is not there."""
    return MissingFile(f"cannot {verb} a file that is not there", where=path,
                       next_step="restore it, or register the table again if it was moved")  # fmt: skip


def storage_error(error: Exception, path: str, verb: str) -> StorageError:
    """What the operating system or the object store refused, with the path; a full disk says so."""
    said = str(error)
    if getattr(error, "errno", None) in _FULL or "No space left" in said:
        return StorageError(f"cannot {verb}: the disk is full", where=path, value=said,
                            next_step="free space or move the warehouse; nothing was left half written")  # fmt: skip
    return StorageError(f"cannot {verb} the file", where=path, value=said,
                        next_step="check the path, its permissions and the device")  # fmt: skip


def credentials_error(said: str, path: str, verb: str) -> StorageError:
    """The object store answered 401 or 403, or there are no credentials to show it."""
    return StorageError(f"cannot {verb}: the credentials do not allow it", where=path, value=said[:500],
                        next_step="grant this account roles/storage.objectUser on the bucket, or log in: "
                        "gcloud auth application-default login")  # fmt: skip


def unreachable(said: str, path: str, verb: str) -> StorageError:
    """The object store did not do it, however often it was asked."""
    return StorageError(f"cannot {verb}: the object store refused", where=path, value=said[:500],
                        next_step="check the network and the bucket's quota, then run it again; "
                        "nothing was left half written")  # fmt: skip
