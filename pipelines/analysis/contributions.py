"""Store the contributions of partitions to analyses under ``<home>/analysis``.

A contribution is identified by the operator, the analysed expressions and the digests of the data that they read. It is
one small file that starts with the digest of its content. A torn file, for example after a power cut, is ignored and its
partition is read again, so these files are not synced to disk one by one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version

import pyarrow as pa
from pyarrow import ipc

from transforms.errors import DataError
from warehouse.storage.layout import ANALYSIS
from warehouse.storage.storage import Storage

_DIGEST_BYTES = 32
_FORMAT = 2


@cache
def _folder() -> str:
    """The folder; its name holds the library's version, since only the same version reads a sketch."""
    return f"{ANALYSIS}/sums-{_FORMAT}-{version('tfx-bsl')}"


def contribution_path(contribution: str) -> str:
    """The path of a contribution, relative to the home."""
    return f"{_folder()}/{contribution[0]}/{contribution}.arrow"


def write_contribution(storage: Storage, contribution: str, batch: pa.RecordBatch) -> None:
    """Publish a contribution atomically."""
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, batch.schema, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    content = sink.getvalue()
    path = contribution_path(contribution)
    storage.write_atomic(path, hashlib.sha256(content).digest() + content.to_pybytes(), synced=False)


def read_contribution(storage: Storage, contribution: str) -> pa.RecordBatch:
    """A verified contribution. Raises :class:`DataError` if it is missing or torn."""
    path = contribution_path(contribution)
    content = memoryview(storage.read_bytes(path))
    body = content[_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != content[:_DIGEST_BYTES]:
        raise _not_whole(path)
    try:
        with ipc.open_stream(pa.py_buffer(body)) as reader:
            batch = reader.read_next_batch()
            batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, StopIteration) as error:
        raise _not_whole(path) from error
    return batch


def known_contributions(storage: Storage, contributions: Iterable[str]) -> set[str]:
    """The contributions that are stored and intact."""
    paths = {contribution_path(contribution): contribution for contribution in contributions}
    absent = set(storage.missing(list(paths)))
    return {
        contribution for path, contribution in paths.items() if path not in absent and _is_whole(storage, contribution)
    }


def _is_whole(storage: Storage, contribution: str) -> bool:
    try:
        read_contribution(storage, contribution)
    except DataError:
        return False  # the partition is read again
    return True


def _not_whole(path: str) -> DataError:
    return DataError("a contribution to an analysis must be intact until it is merged",
                     where=path, next_step="analyze again: the partition is read again")  # fmt: skip
