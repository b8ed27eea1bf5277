"""Artifacts: results of full passes, as small Arrow files named by the digest of their values.

``<home>/artifacts/<digest>.arrow`` holds one column, ``values``. The digest is the column's (:mod:`warehouse.files.digests`), so
a file can be verified by its name, and equal results are one file. Analyses and components refer to artifacts by digest;
``headrace gc`` deletes unreferenced ones.
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
#: Artifacts cached by a process. A vocabulary of a million terms has about 20 MB.
_KEPT = 64


@dataclass(frozen=True, slots=True)
class ArtifactSource:
    """The artifacts of the warehouse at ``home``, for :func:`transforms.execution.plan.compile_plan`. Can be pickled."""

    home: str

    def __call__(self, digest: str) -> pa.Array:
        """The values, verified by the first read in this process. Raises :class:`ArtifactDamaged`."""
        return _kept(self.home, digest)


@lru_cache(maxsize=_KEPT)
def _kept(home: str, digest: str) -> pa.Array:
    return read_artifact(Storage(home), digest)


def artifact_path(digest: str) -> str:
    """The path of an artifact, relative to the home."""
    return f"{ARTIFACTS}/{digest}.arrow"


def write_artifact(storage: Storage, values: pa.Array) -> str:
    """Write values unless an intact file holds them, and return their digest.

    Raises :class:`InputError` for nulls or no values, and :class:`~transforms.errors.StorageError`.
    """
    if len(values) == 0 or values.null_count:
        raise InputError(
            "an artifact must have at least one value and no nulls", value=(len(values), values.null_count)
        )
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
    """The verified values of an artifact. Raises :class:`ArtifactDamaged` if they are missing or differ."""
    path = artifact_path(digest)
    again = "headrace analyze MODEL_FILE makes it again"
    unreadable = damaged_if_unreadable(ArtifactDamaged, "the artifact cannot be read", path, again)
    with unreadable, storage.open_input(path) as source:
        check_arrow_file(source, None)
        table = ipc.open_file(source).read_all()
        table.validate(full=True)  # damaged offsets must not be followed
        column = table.column(_COLUMN)
    if column_digest(column) != digest:
        raise ArtifactDamaged("the artifact does not have the values of its digest", where=path,
                              value=column_digest(column), allowed=digest, next_step=again)  # fmt: skip
    return one_array(column)


def _holds(storage: Storage, digest: str) -> bool:
    try:
        read_artifact(storage, digest)
    except ArtifactDamaged:
        return False  # the caller writes it again
    return True
