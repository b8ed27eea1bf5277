"""The served part of a commit: the weights of tables, window by window, and the dense arrays of a prediction."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainer.checkpoints.read import open_commit
from trainer.checkpoints.run_files import RunFiles, newest_first
from trainer.checkpoints.shard_rows import joined_columns
from trainer.checkpoints.stored_commit import StoredCommit
from trainer.checkpoints.table_windows import ArrayReader, Window, read_windows
from trainer.errors import TornCheckpoint
from trainer.serving.deltas.calibration_arrays import calibration_arrays_of
from trainer.serving.deltas.link_manifest import ServedCommit
from trainer.serving.deltas.sorted_rows import Rows, RowStream
from transforms.arrays import Array
from transforms.errors import NotFound

#: About so many bytes of rows are in memory at once.
WINDOW_BYTES = 16 << 20
_DENSE = "dense/"
#: Dense arrays that no prediction reads.
_OF_TRAINING = "dense/optimizer/"


def newest_commit(files: RunFiles) -> StoredCommit:
    """The newest commit whose manifests are intact. Raises :class:`NotFound` without one, :class:`TornCheckpoint` if all are torn."""
    torn: TornCheckpoint | None = None
    for name in newest_first(files):
        try:
            return open_commit(files, name)
        except TornCheckpoint as error:
            torn = torn or error
    if torn is not None:
        raise torn
    raise NotFound("the run directory must hold a checkpoint", where=files.place(""), next_step="train first")


def served_commit(commit: StoredCommit) -> ServedCommit:
    """The name of a commit in links."""
    return ServedCommit(commit.epochs_done, commit.document.at("step").count(), commit.digest)


def columns_of(files: RunFiles, commit: StoredCommit, kind: str, table: str) -> int:
    """The weights of a row. Raises :class:`TornCheckpoint` unless they are float32."""
    columns = 0
    for one in commit.slices(kind, table):
        array = ArrayReader(files, one.shards[0].weights, 0)
        if len(array.shape) != 2 or array.dtype != np.float32 or not array.shape[1]:
            raise TornCheckpoint("the weights of a table must be float32 [rows, columns]", where=array.place,
                                 value=f"{array.dtype} {array.shape}")  # fmt: skip
        columns += array.shape[1]
    return columns


def weights_bytes(commit: StoredCommit) -> int:
    """The bytes of the files with ids and weights of all tables."""
    tables = [one for kind, table in commit.model_tables for one in commit.slices(kind, table)]
    return sum(shard.rows.file.size_bytes + shard.weights.file.size_bytes for one in tables for shard in one.shards)


def weight_stream(
    files: RunFiles, commit: StoredCommit, kind: str, table: str, columns: int, window_bytes: int = WINDOW_BYTES
) -> RowStream:
    """The ids and weights, float32 [rows, columns], of a table; slots are not read."""
    return RowStream(
        _windows(files, commit, kind, table, columns, window_bytes),
        Rows(np.zeros(0, np.int64), (np.zeros((0, columns), np.float32),)),
    )


def _windows(
    files: RunFiles, commit: StoredCommit, kind: str, table: str, columns: int, window_bytes: int
) -> Iterator[Rows]:
    slices, where = commit.slices(kind, table), f"{kind} table {table}"
    row_bytes = 8 * len(slices) + 4 * columns
    for window in read_windows(files, slices, window_bytes, row_bytes, where, with_slots=False):
        yield Rows(window.rows, (_whole(window, where),))


def _whole(window: Window, where: str) -> Array:
    taken = [one.weights if one.order is None else one.weights.take(one.order, axis=0) for one in window.slices]
    if any(one.dtype != np.float32 for one in taken):
        raise TornCheckpoint("the weights of a table must be float32", where=where)
    return taken[0] if len(taken) == 1 else joined_columns(taken, 1)


def dense_arrays(files: RunFiles, commit: StoredCommit) -> dict[str, Array]:
    """The verified dense arrays of a prediction by their names without ``dense/``: weights, moving statistics, random state, calibration."""
    stored = {
        name.removeprefix(_DENSE): stored.array(files)
        for name, stored in commit.parts[0].arrays.items()
        if name.startswith(_DENSE) and not name.startswith(_OF_TRAINING)
    }
    return stored | calibration_arrays_of(commit.document)
