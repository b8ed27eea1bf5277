"""The embedding engine of one process: tables in memory, numba kernels, bit-for-bit repeatable.

A row gets its initial values when it is first read, from a hash of (seed, table name, row, column), independent of the
order of reads. The system commits memory as rows are touched, so a large vocabulary costs only its used rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.embedding import kernels
from trainer.embedding.layout import Bags, Scratch, layout_of, zero_values
from trainer.embedding.optimizers import SGD, Adagrad, OptimizerSettings
from trainer.embedding.row_updates import ADAGRAD_CODE
from trainer.embedding.snapshot import EngineSnapshot
from trainer.embedding.spec import FeatureSpec, TableSpec, tables_of
from trainer.errors import BadBatch, ConfigError, TornCheckpoint

Array = np.ndarray[Any, np.dtype[Any]]

_NO_SHARES = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class IdBatch:
    """Bags of ids for every feature of an engine, in its order. The arrays must not change afterwards.

    Attributes:
        ids: int64, all features concatenated.
        offsets: int64 [features, events + 1]; the bag of feature f and event b is
            ``ids[offsets[f, b]:offsets[f, b + 1]]``.
        weights: float32 per id, or None if all are 1; sums and means are those of ``tf.nn.embedding_lookup_sparse`` with
            ``sp_weights``.
        bounds: set if the batch was checked: offsets ascend from 0 to the number of ids, and the ids of feature f lie in
            ``[0, bounds[f])``.
    """

    ids: Array
    offsets: Array
    weights: Array | None = None
    bounds: tuple[int, ...] | None = None

    @property
    def rows(self) -> int:
        """Events, padding included."""
        return int(self.offsets.shape[1]) - 1


@dataclass(frozen=True, slots=True)
class TableState:
    """The rows of one table that training has changed: ``rows`` (int64, ascending), and float32 [rows, dim] arrays.

    ``slots`` has no columns for an optimizer without slots.
    """

    rows: Array
    weights: Array
    slots: Array


class CpuEngine:
    """Lookups and updates over the tables of ``features``; single-threaded, releases the GIL while it works.

    The same calls in the same order give the same bits on one machine. Raises :class:`ConfigError` for equal names.

    ``row_stride``, ``row_first``: row r here is row ``row_stride * r + row_first`` of its table, for tables that are spread over hosts.
    """

    def __init__(self, features: Sequence[FeatureSpec], *, seed: int, row_stride: int = 1, row_first: int = 0) -> None:
        self.features = tuple(features)
        self.tables = tables_of(features)
        if not self.features:
            raise ConfigError("an embedding engine must have at least one feature")
        for feature in self.features:
            _refuse_unsupported(feature)
        self._bounds = tuple(feature.table.vocabulary_size for feature in self.features)
        self._layout = layout_of(self.features, self.tables, seed, (row_stride, row_first))
        self._allocate()

    def _allocate(self) -> None:
        """Allocate the tables. Zero pages are not committed until written, so this needs no memory yet."""
        rows = int(self._layout.vocabulary.sum())
        try:
            self._values = zero_values(self._layout)
            self._scratch = Scratch(np.zeros(rows, np.int32), np.zeros(0, np.int64), np.zeros(0, np.float32))
        except (MemoryError, ValueError) as error:
            raise ConfigError("the embedding tables must fit in memory", value=str(error),
                              where=f"{rows:,} rows in all",
                              next_step="hash into fewer buckets, or make dim smaller") from error  # fmt: skip
        self._prepared: tuple[IdBatch, Bags] | None = None
        self._snapshot: EngineSnapshot | None = None

    @property
    def columns(self) -> dict[str, slice]:
        """Feature name to its columns in the activations."""
        widths = self._layout.dims[self._layout.table_of]
        return {
            feature.name: slice(int(start), int(start + width))
            for feature, start, width in zip(self.features, self._layout.column, widths, strict=True)
        }

    @property
    def width(self) -> int:
        """Columns of the activations: the sum of the features' dims."""
        return int(self._layout.dims[self._layout.table_of].sum())

    def lookup(self, batch: IdBatch) -> Array:
        """Activations, float32 [batch.rows, width]; an empty bag gives zeros.

        Raises :class:`BadBatch` for an id outside its table or offsets that do not fit, before anything is read.
        """
        bags = self._bags(batch)
        out = np.empty((batch.rows, self.width), np.float32)
        kernels.combine_bags(bags, self._layout, self._values.weights, out)
        return out

    def apply_gradients(self, batch: IdBatch, gradients: Array) -> None:
        """One optimizer update for each distinct row of ``batch``.

        ``gradients``: of the loss by the activations of the same batch, float32 [batch.rows, width]. Gradients of a row
        that occurs more than once, in one bag, in many, or in many features of its table, are summed in float32 in the
        order feature, event, position; then the row is updated once. Raises :class:`BadBatch`; nothing is changed then.
        """
        bags = self._bags(batch)
        if gradients.shape != (batch.rows, self.width) or gradients.dtype != np.float32:
            raise BadBatch("gradients must have the shape of the activations", value=(gradients.shape, str(gradients.dtype)),
                           allowed=f"float32 {(batch.rows, self.width)}")  # fmt: skip
        self._reserve(len(batch.ids))
        with self._changing(bags):
            kernels.apply_gradients(bags, gradients, self._layout, self._scratch, self._values)

    @contextmanager
    def _changing(self, bags: Bags) -> Iterator[None]:
        """While the rows of a batch change: a snapshot keeps what it has not read."""
        snapshot = self._snapshot
        if snapshot is not None and snapshot.is_done:
            snapshot = self._snapshot = None
        if snapshot is None:
            yield
            return
        with snapshot.changing():
            snapshot.put_aside(bags)
            yield

    def read_rows(self, rows: Array, counts: Array) -> Array:
        """The current weights of ``rows`` (int64), of which each table has ``counts``; float32, one row after the other.

        For an engine with one feature a table. Raises :class:`BadBatch` for a row outside its table.
        """
        batch = _one_event(rows, counts)
        bags = self._bags(batch)
        out = np.empty(int((counts * self._layout.dims).sum()), np.float32)
        kernels.read_rows(bags, self._layout, self._values.weights, out)
        return out

    def update_rows(self, asked: Sequence[tuple[Array, Array]], gradients: Sequence[Array]) -> None:
        """One optimizer update for each distinct row, with the sum of its gradients in the order of the parts.

        Args:
            asked: of each part, rows and their numbers by table, as in :meth:`read_rows`.
            gradients: of each part, float32 as :meth:`read_rows` returns them.

        Raises :class:`BadBatch`; nothing is changed then.
        """
        rows, counts, flat = _by_table(asked, gradients, self._layout.dims)
        batch = _one_event(rows, counts)
        bags = self._bags(batch)
        self._reserve(len(rows))
        with self._changing(bags):
            kernels.update_rows(bags, flat, self._layout, self._scratch, self._values)

    def begin_snapshot(self, *, most_bytes: int) -> EngineSnapshot:
        """Begin to read the changed rows of this moment in another thread, while training goes on; one at a time.

        ``most_bytes``: memory for rows that are changed before they are read; training waits for more. The snapshot must be
        read to its end, or closed.
        """
        self._snapshot = EngineSnapshot(self._layout, self._values, most_bytes=most_bytes)
        return self._snapshot

    def end_snapshot(self) -> None:
        """Close the snapshot, if there is one: training that waits for it goes on."""
        snapshot = self._snapshot  # the training thread sets it to None
        if snapshot is not None:
            snapshot.close()

    def _bags(self, batch: IdBatch) -> Bags:
        """The batch, checked, its rows with their initial values: worked out once for a lookup and its update."""
        if self._prepared is not None and self._prepared[0] is batch:
            return self._prepared[1]
        self._check(batch)
        shares = _NO_SHARES
        if batch.weights is not None:
            shares = kernels.shares_of(batch.weights, batch.offsets, self._layout)
        bags = Bags(batch.ids, batch.offsets, shares)
        kernels.initialise_missing(bags, self._layout, self._values)
        self._prepared = batch, bags
        return bags

    def _reserve(self, ids: int) -> None:
        if len(self._scratch.rows) < ids:
            sums = np.empty(2 * ids * int(self._layout.dims.max()), np.float32)
            self._scratch = Scratch(self._scratch.place, np.empty(2 * ids, np.int64), sums)

    def _check(self, batch: IdBatch) -> None:
        ids, offsets = batch.ids, batch.offsets
        if ids.dtype != np.int64 or offsets.dtype != np.int64 or ids.ndim != 1 or offsets.ndim != 2:
            raise BadBatch(
                "a batch must hold int64 ids and int64 offsets by feature", value=(str(ids.dtype), offsets.shape)
            )
        if batch.weights is not None and (batch.weights.shape != ids.shape or batch.weights.dtype != np.float32):
            raise BadBatch("a weighted batch must have a float32 weight for every id", value=(str(batch.weights.dtype),
                           batch.weights.shape), allowed=f"float32 {ids.shape}")  # fmt: skip
        if offsets.shape[0] != len(self.features) or offsets.shape[1] < 1:
            raise BadBatch("a batch must have offsets for every feature", value=offsets.shape[0],
                           allowed=str(len(self.features)))  # fmt: skip
        if batch.bounds == self._bounds:
            return
        problem, f, at = kernels.check_batch(ids, offsets, self._layout)
        if problem == kernels.BAD_ID:
            raise _bad_id(self.features[f], int(ids[at]))
        if problem == kernels.BAD_OFFSETS:
            raise BadBatch("offsets must ascend from the end of the previous feature to the number of ids",
                           where=f"feature {self.features[f].name}, event {at}", value=int(offsets[f, at]))  # fmt: skip

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights, float32 [len(rows), dim], also of rows that were never read. For inspection and tests."""
        t, of, (weights, _, row_state) = self._table_position(table), self._layout, self._values
        dim, base = int(of.dims[t]), int(of.row_base[t])
        out = np.empty((len(rows), dim), np.float32)
        for k, row in enumerate(np.asarray(rows, np.int64)):
            if not 0 <= row < of.vocabulary[t]:
                raise BadBatch("a row must lie in its table", where=f"table {table}", value=int(row),
                               allowed=f"[0, {of.vocabulary[t]})")  # fmt: skip
            if row_state[base + row]:
                start = int(of.weight_base[t]) + row * dim
                out[k] = weights[start : start + dim]
            else:
                kernels.fill_row(
                    out[k],
                    0,
                    dim,
                    of.keys[t],
                    row * of.rows_of[0] + of.rows_of[1],
                    of.kinds[t],
                    of.init_a[t],
                    of.init_b[t],
                )
        return out

    def _table_position(self, name: str) -> int:
        names = [table.name for table in self.tables]
        if name not in names:
            raise ConfigError("an embedding table must be one of the engine's", value=name, allowed=", ".join(names))
        return names.index(name)

    def state(self) -> dict[str, TableState]:
        """A copy of all changed rows, by table name: equal states have equal bytes."""
        return {table.name: self._table_state(t) for t, table in enumerate(self.tables)}

    def _table_state(self, t: int) -> TableState:
        base, size = int(self._layout.row_base[t]), int(self._layout.vocabulary[t])
        rows = np.flatnonzero(self._values.row_state[base : base + size] == 2)
        weights, slots = self._views(t)
        return TableState(rows, weights[rows], slots[rows] if slots.size else np.zeros((len(rows), 0), np.float32))

    def _views(self, t: int) -> tuple[Array, Array]:
        of = self._layout
        size, dim, start = int(of.vocabulary[t]), int(of.dims[t]), int(of.weight_base[t])
        weights = self._values.weights[start : start + size * dim].reshape(size, dim)
        if of.optimizer[t] != ADAGRAD_CODE:
            return weights, np.zeros((0, 0), np.float32)
        start = int(of.slot_base[t])
        return weights, self._values.slots[start : start + size * dim].reshape(size, dim)

    def load_state(self, state: Mapping[str, TableState]) -> None:
        """Restore a :meth:`state`. Raises :class:`TornCheckpoint` if it does not fit."""
        if set(state) != {table.name for table in self.tables}:
            raise TornCheckpoint("saved embedding tables must be those of the model", value=sorted(state),
                                 allowed=", ".join(table.name for table in self.tables))  # fmt: skip
        for t, table in enumerate(self.tables):
            self._check_state(t, table, state[table.name])
        self._allocate()
        for t, table in enumerate(self.tables):
            saved, (weights, slots) = state[table.name], self._views(t)
            weights[saved.rows] = saved.weights
            if slots.size:
                slots[saved.rows] = saved.slots
            self._values.row_state[int(self._layout.row_base[t]) + saved.rows] = 2

    def _check_state(self, t: int, table: TableSpec, saved: TableState) -> None:
        slot_dim = table.dim if self._layout.optimizer[t] == ADAGRAD_CODE else 0
        count = saved.rows.size
        shapes = (saved.rows.shape, saved.weights.shape, saved.slots.shape)
        types = [str(array.dtype) for array in (saved.rows, saved.weights, saved.slots)]
        expected = ((count,), (count, table.dim), (count, slot_dim))
        if shapes != expected or types != ["int64", "float32", "float32"] or not _ascending(saved.rows, table):
            raise TornCheckpoint("an embedding table's state must fit its table", where=f"table {table.name}",
                                 value=(*shapes, *types), allowed=f"{expected}, ascending rows of the table")  # fmt: skip


def _refuse_unsupported(feature: FeatureSpec) -> None:
    table, where = feature.table, f"feature {feature.name}, table {feature.table.name}"
    settings = {name: getattr(table.optimizer, name) for name in OptimizerSettings.__dataclass_fields__}
    settings["low_dimensional_packing_status"] = False
    if not isinstance(table.optimizer, (SGD, Adagrad)) or any(
        value != OptimizerSettings.__dataclass_fields__[name].default for name, value in settings.items()
    ):
        raise ConfigError("this engine's optimizer must be SGD or Adagrad without limits or decay", where=where,
                          value=table.optimizer)  # fmt: skip
    if callable(table.optimizer.learning_rate):
        raise ConfigError("this engine's learning rates must be numbers", where=where, value=table.optimizer)
    if table.combiner == "sqrtn" or table.quantization is not None or feature.max_sequence_length:
        raise ConfigError("this engine's bags must be sums or means without quantization", where=where, value=feature)


def _one_event(rows: Array, counts: Array) -> IdBatch:
    """Rows of each table as the bag of one event."""
    ends = np.cumsum(counts)
    if len(ends) and int(ends[-1]) != len(rows):
        raise BadBatch("rows must be as many as their numbers by table", value=len(rows), allowed=str(int(ends[-1])))
    return IdBatch(rows, np.stack([ends - counts, ends], axis=1).astype(np.int64))


def _by_table(
    asked: Sequence[tuple[Array, Array]], gradients: Sequence[Array], dims: Array
) -> tuple[Array, Array, Array]:
    """Rows, their numbers by table, and their gradients: table after table, in each the parts in order."""
    rows: list[Array] = [np.zeros(0, np.int64)]
    floats: list[Array] = [np.zeros(0, np.float32)]
    for (own, counts), flat in zip(asked, gradients, strict=True):
        if flat.dtype != np.float32 or flat.shape != (int((counts * dims).sum()),):
            raise BadBatch(
                "gradients must be those of the rows", value=flat.shape, allowed=str(int((counts * dims).sum()))
            )
        if len(own) != int(counts.sum()):
            raise BadBatch(
                "rows must be as many as their numbers by table", value=len(own), allowed=str(int(counts.sum()))
            )
    starts = [np.concatenate([[0], np.cumsum(counts)]) for _, counts in asked]
    float_starts = [np.concatenate([[0], np.cumsum(counts * dims)]) for _, counts in asked]
    for t in range(len(dims)):
        rows += [own[at[t] : at[t + 1]] for (own, _), at in zip(asked, starts, strict=True)]
        floats += [flat[at[t] : at[t + 1]] for flat, at in zip(gradients, float_starts, strict=True)]
    totals: Array = np.stack([counts for _, counts in asked]).sum(axis=0)
    return np.concatenate(rows), totals, np.concatenate(floats)


def _ascending(rows: Array, table: TableSpec) -> bool:
    """Whether these are distinct rows of the table in ascending order."""
    if not len(rows):
        return True
    return bool(rows[0] >= 0 and rows[-1] < table.vocabulary_size and (rows[1:] > rows[:-1]).all())


def _bad_id(feature: FeatureSpec, value: int) -> BadBatch:
    return BadBatch(
        "an embedding id must lie in its table",
        where=f"feature {feature.name}, table {feature.table.name}",
        value=value,
        allowed=f"[0, {feature.table.vocabulary_size})",
        next_step="hash the input into buckets (.hash_buckets(n)) or give the table more rows",
    )
