"""Apply links to a SavedModel that ``headrace model export --trained`` wrote: its graph stays, its variables change.

The changed SavedModel is written beside the old one, whole, and takes its place by one operation of the file system, or appears under a
new name. One table is in memory at a time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from trainer.checkpoints.local_run import delete
from trainer.checkpoints.not_written import translated_write_errors
from trainer.errors import LinkRefused, TornCheckpoint
from trainer.serving.deltas.chain import Link, Position
from trainer.serving.deltas.commit_weights import WINDOW_BYTES
from trainer.serving.deltas.link_manifest import FULL
from trainer.serving.deltas.link_tables import read_dense, removed_stream, set_stream
from trainer.serving.exchange import exchange_folders
from trainer.serving.saved_model_document import EXTRA, written_document
from trainer.serving.served_model import ServedModel, ServedTable
from trainer.tables.tpu.initial_rows import initial_rows
from transforms.arrays import Array
from warehouse.storage.durable_files import sync_folder, sync_path

_VARIABLES = "variables/variables"
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "VARIABLE_VALUE"
#: Where the graph has the tables of each kind, and the dense arrays: attributes of :class:`trainer.serving.tensorflow_model.Scorer`.
_TABLES = {"embedding": "deep_tables", "linear": "linear_tables"}
_DENSE = "layers"
#: Variables are written to files of about so many bytes, a larger one to a file of its own.
_FILE_BYTES = 64 << 20
_ROWS_AT_ONCE = 1 << 16


def apply_to_saved_model(
    target: Path,
    links: Sequence[Link],
    served: ServedModel,
    output: Path | None,
    *,
    window_bytes: int = WINDOW_BYTES,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> Position:
    """Apply links, of which there is one at least, to a SavedModel.

    Args:
        target: its folder, which one process at a time may change.
        links: as :func:`~trainer.serving.deltas.chain.links_to_apply` gives them.
        served: what the SavedModel says of its weights.
        output: a new folder for the result; None: it takes the place of ``target``.
        window_bytes: about so many bytes of the rows of links are in memory at once.
        on_rows: called with the rows of each table that is done.

    Raises :class:`TornCheckpoint` for damaged links, :class:`LinkRefused` for links that do not fit the graph,
    :class:`~transforms.errors.StorageError` where a folder cannot be replaced at once, and
    :class:`~trainer.errors.CheckpointNotWritten`; the SavedModel is as before then.
    """
    last = links[-1]
    at = Position(
        last.manifest.model, last.manifest.commit.epochs, last.manifest.commit.sha256, last.manifest.number, last.hash
    )
    place = Path(os.path.abspath(output or target))
    made = place.with_name(f".{place.name}.applied")
    with translated_write_errors(str(place), "the SavedModel"):
        if made.exists():
            delete(made)  # of a killed process
        try:
            _copy_without_variables(target, made)
            _write_variables(target, made, _Weights(links, served, window_bytes, on_rows))
            (made / EXTRA).write_bytes(written_document(target, served.at(at)))
            sync_folder(made)
            if output is None:
                exchange_folders(made, place)
            else:
                os.rename(made, place)
                sync_path(place.parent)
        finally:
            if made.exists():
                delete(made)
    return at


def _copy_without_variables(target: Path, made: Path) -> None:
    shutil.copytree(target, made, ignore=lambda folder, names: ["variables"] if Path(folder) == target else [])
    (made / "variables").mkdir()


class _Weights:
    """The weights of variables after links."""

    def __init__(
        self, links: Sequence[Link], served: ServedModel, window_bytes: int, on_rows: Callable[[int], None]
    ) -> None:
        self._links, self._served, self._window_bytes, self._on_rows = links, served, window_bytes, on_rows
        self.dense = read_dense(links[-1])
        theirs = [(one.kind, one.table, one.columns) for one in links[-1].manifest.tables]
        ours = [(one.kind, one.spec.name, one.spec.dim) for one in served.tables]
        if sorted(theirs) != sorted(ours) or self.dense.keys() != set(served.dense):
            raise LinkRefused("a link must have the tables and dense arrays of the SavedModel, got others", where=links[-1].place,
                              value=str(sorted({*theirs} ^ {*ours}))[:200], next_step="export the model again")  # fmt: skip
        self._positions = {(kind, table): k for k, (kind, table, _) in enumerate(theirs)}

    def table(self, one: ServedTable, rows: Array) -> Array:
        """The rows of a table, float32 [rows, columns], which are changed in place."""
        position = self._positions[one.kind, one.spec.name]
        for link in self._links:
            if link.manifest.kind == FULL:
                for first in range(0, len(rows), _ROWS_AT_ONCE):
                    self._reset(one, rows, np.arange(first, min(first + _ROWS_AT_ONCE, len(rows)), dtype=np.int64))
            for changed in _checked(link, position, set_stream(link, position, self._window_bytes).pieces, len(rows)):
                rows[changed.ids] = one.served(changed.values[0])
            for removed in _checked(link, position, removed_stream(link, position, self._window_bytes).pieces, len(rows)):  # fmt: skip
                self._reset(one, rows, removed.ids)
        self._on_rows(self._links[-1].manifest.tables[position].rows_after)
        return rows

    def _reset(self, one: ServedTable, rows: Array, ids: Array) -> None:
        rows[ids] = one.served(initial_rows(one.spec, self._served.seed, ids))

    def by_key(self, keys: dict[tuple[str, ...], str]) -> dict[str, tuple[str, Any]]:
        """For each variable's key in the files what it holds: ("table", ServedTable) or ("dense", array)."""
        found: dict[str, tuple[str, Any]] = {}
        for one in self._served.tables:
            found[_key(keys, ("scorer", _TABLES[one.kind], one.spec.name))] = ("table", one)
        for k, name in enumerate(self._served.dense):
            found[_key(keys, ("scorer", _DENSE, str(k)))] = ("dense", self.dense[name])
        return found


def _checked(link: Link, position: int, pieces: Iterator[Any], rows: int) -> Iterator[Any]:
    """Pieces of a link. Raises :class:`LinkRefused` for ids beyond the table of the SavedModel."""
    for piece in pieces:
        if len(piece) and (piece.ids.min() < 0 or piece.ids.max() >= rows):
            raise LinkRefused("the ids of a link must be rows of the table of the SavedModel", where=link.manifest.tables[position].place,
                              value=f"{piece.ids.min()} to {piece.ids.max()}", allowed=f"0 to {rows - 1}",
                              next_step="export the model again")  # fmt: skip
        yield piece


def _key(keys: dict[tuple[str, ...], str], path: tuple[str, ...]) -> str:
    if path not in keys:
        raise TornCheckpoint("a SavedModel must have the variables of its description", where=".".join(path),
                             next_step="export the model again")  # fmt: skip
    return keys[path]


def _write_variables(target: Path, made: Path, weights: _Weights) -> None:
    """Write all variables, those of links changed, to a few files that are then merged."""
    source = str(target / _VARIABLES)
    with _damage_named(target):
        reader = tf.train.load_checkpoint(source)
        changed = weights.by_key(_variable_keys(reader.get_tensor(_GRAPH)))
        names = sorted(reader.get_variable_to_dtype_map())
    files: list[str] = []
    pending: dict[str, Any] = {}
    for name in names:
        pending[name] = _tensor(target, reader, name, changed.get(name), weights)
        if sum(getattr(one, "nbytes", 0) for one in pending.values()) >= _FILE_BYTES:
            files.append(_save(made, len(files), pending))
    if pending:
        files.append(_save(made, len(files), pending))
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=files, destination_prefix=str(made / _VARIABLES), delete_old_dirs=False
    )
    for path in (made / "variables").glob("part-*"):
        delete(path)


def _tensor(target: Path, reader: Any, name: str, held: tuple[str, Any] | None, weights: _Weights) -> Any:
    """The new value of a variable: an array, or a scalar text as bytes."""
    with _damage_named(target):
        if held is not None and held[0] == "dense":
            return _fitted(reader.get_variable_to_shape_map()[name], name, held[1])
        value = reader.get_tensor(name)
    if held is None:
        return value
    table: ServedTable = held[1]
    return weights.table(
        table, _fitted([table.spec.vocabulary_size, table.spec.dim], name, np.require(value, requirements="W"))
    )


def _fitted(shape: Sequence[int], name: str, array: Array) -> Array:
    if list(array.shape) != list(shape):
        raise LinkRefused("a link must have the shapes of the SavedModel, got others", where=name, value=str(array.shape),
                          allowed=str(tuple(shape)), next_step="export the model again")  # fmt: skip
    return array


def _save(made: Path, number: int, pending: dict[str, Any]) -> str:
    """Write variables to a file, whose prefix is returned, and forget them."""
    prefix = str(made / "variables" / f"part-{number:05d}")
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(pending),
        shape_and_slices=[""] * len(pending),
        tensors=[tf.constant(value) for value in pending.values()],
    )
    pending.clear()
    return prefix


def _variable_keys(graph: bytes) -> dict[tuple[str, ...], str]:
    """The keys of variables by the names of attributes that lead to them from the root."""
    nodes = TrackableObjectGraph.FromString(graph).nodes
    keys: dict[tuple[str, ...], str] = {}
    ahead: list[tuple[tuple[str, ...], int]] = [((), 0)]
    seen = {0}
    while ahead:
        path, number = ahead.pop()
        for attribute in nodes[number].attributes:
            if attribute.name == _VALUE:
                keys[path] = attribute.checkpoint_key
        for child in nodes[number].children:
            if child.node_id not in seen and path[:1] in ((), ("scorer",)):
                seen.add(child.node_id)
                ahead.append(((*path, child.local_name), child.node_id))
    return keys


@contextmanager
def _damage_named(target: Path) -> Iterator[None]:
    """Translate TensorFlow's errors for damaged variables."""
    try:
        yield
    except (tf.errors.OpError, ValueError, IndexError) as error:
        raise TornCheckpoint("the variables of a SavedModel must be those that were exported", where=str(target),
                             value=str(error)[:200], next_step="export the model again") from error  # fmt: skip
