"""Read errors of the home's own files as what they mean: the file is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from transforms.errors import DataError

_READ_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError, DataError)


@contextmanager
def damaged_if_unreadable(damaged: type[DataError], what: str, path: str, next_step: str) -> Iterator[None]:
    """Raise ``damaged`` for every error of the body that bytes can cause; one that is ``damaged`` already passes as it is.

    A :class:`~transforms.errors.StorageError` passes too: it says nothing about the bytes.
    """
    try:
        yield
    except damaged:
        raise
    except _READ_ERRORS as error:
        value = str(error).splitlines()[0][:200]
        raise damaged(what, where=path, value=value, next_step=next_step) from error
