"""Read errors of Headrace's own files, translated to errors of damaged files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from transforms.errors import DataError

_READ_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError, DataError)


@contextmanager
def damaged_if_unreadable(damaged: type[DataError], what: str, path: str, next_step: str) -> Iterator[None]:
    """Translate every error of the body that damaged bytes can cause to ``damaged``.

    A :class:`~transforms.errors.StorageError` is not translated: it does not depend on the bytes.
    """
    try:
        yield
    except damaged:
        raise
    except _READ_ERRORS as error:
        value = str(error).splitlines()[0][:200]
        raise damaged(what, where=path, value=value, next_step=next_step) from error
