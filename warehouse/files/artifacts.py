"""Artifacts: what full passes found, as small Arrow files under the digest of their values.

``<home>/artifacts/<digest>.arrow`` holds one column, ``values``. The digest is the column's (:mod:`warehouse.files.digests`), so
that a file proves itself and equal findings are one file. Analyses and components name them by digest; ``headrace gc`` deletes
those that nothing names.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import IO

import pyarrow as pa
from pyarrow import ipc

from transforms.columns.arrays import one_array
from transforms.errors import InputError
from warehouse.errors import ArtifactDamaged
from warehouse.files.arrow_bounds import check_arrow_file
from warehouse.files.damaged_files import damaged_if_unreadable
from warehouse.files.digests import column_digest
from warehouse.storage.layout import ARTIFACTS
from warehouse.storage.storage import Storage

_COLUMN = "values"
#: Of each process. A vocabulary of a million terms takes about 20 MB.
_KEPT = 64


@dataclass(frozen=True, slots=True)
class ArtifactSource:
    """What :func:`transforms.execution.plan.compile_plan` asks for artifacts: those of the warehouse at ``home``. It can be pickled."""

    home: str

    def __call__(self, digest: str) -> pa.Array:
        """The values, verified when they are first read in this process. Raises :class:`ArtifactDamaged`."""
        return _kept(self.home, digest)


@lru_cache(maxsize=_KEPT)
def _kept(home: str, digest: str) -> pa.Array:
    return read_artifact(Storage(home), digest)


def artifact_path(digest: str) -> str:
    """Where an artifact lies, relative to the home."""
    return f"{ARTIFACTS}/{digest}.arrow"


def write_artifact(storage: Storage, values: pa.Array) -> str:
    """Publish values, whole or not at all, unless they are there already; returns their digest.

    Raises :class:`InputError` for nulls or no values, and :class:`~transforms.errors.StorageError`.
    """
    if len(values) == 0 or values.null_count:
        raise InputError("an artifact holds at least one value and no nulls",
                         value=(len(values), values.null_count))  # fmt: skip
    digest = column_digest(values)
    path = artifact_path(digest)
    if storage.exists(path) and _holds(storage, digest):
        return digest
    batch = pa.record_batch([values], names=[_COLUMN])

    def write(file: IO[bytes]) -> None:
        with ipc.new_file(file, batch.schema, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_batch(batch)

    storage.write_atomic(path, write)
    return digest


def read_artifact(storage: Storage, digest: str) -> pa.Array:
    """The values of an artifact, verified. Raises :class:`ArtifactDamaged` if they are missing or are not those."""
    path = artifact_path(digest)
    again = "headrace analyze MODEL_FILE makes it again"
    unreadable = damaged_if_unreadable(ArtifactDamaged, "an artifact cannot be read", path, again)
    with unreadable, storage.open_input(path) as source:
        check_arrow_file(source, None)
        table = ipc.open_file(source).read_all()
        table.validate(full=True)  # damaged offsets must not be followed
        column = table.column(_COLUMN)
    if column_digest(column) != digest:
        raise ArtifactDamaged("an artifact does not hold the values it is named by", where=path,
                              value=column_digest(column), allowed=digest, next_step=again)  # fmt: skip
    return one_array(column)


def _holds(storage: Storage, digest: str) -> bool:
    try:
        read_artifact(storage, digest)
    except ArtifactDamaged:
        return False  # it is written anew
    return True
