"""The error for a checkpoint that the disk or the object store did not take."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from trainer.errors import CheckpointNotWritten
from transforms.errors import StorageError


@contextmanager
def translated_write_errors(place: str, what: str = "a checkpoint") -> Iterator[None]:
    """Translate an :class:`OSError` or a :class:`StorageError` of the block to :class:`CheckpointNotWritten`."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise CheckpointNotWritten(
            f"the disk is full: {what} was not written" if full else f"{what} could not be written",
            where=place,
            value=error.strerror,
            next_step=f"{'free disk space' if full else 'fix the run directory'}, then run the same command again: it "
            "continues from the previous checkpoint",
        ) from error
    except CheckpointNotWritten:
        raise
    except StorageError as error:
        raise CheckpointNotWritten(
            f"{what} could not be written: {error.what}", where=place, value=error.value, next_step=error.next_step
        ) from error
