"""The embedding engine of one process: tables in memory, numba kernels, bit-for-bit repeatable.

A row gets its initial values when it is first read, from a hash of (seed, table name, row, column), independent of the
order of reads. The system commits memory as rows are touched, so a large vocabulary costs only its used rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.embedding import kernels
from trainer.embedding.optimizers import ADAGRAD_CODE, SGD_CODE
from trainer.embedding.spec import Adagrad, Constant, FeatureSpec, Initializer, TableSpec, Uniform, tables_of
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
    """

    def __init__(self, features: Sequence[FeatureSpec], *, seed: int) -> None:
        self.features = tuple(features)
        self.tables = tables_of(features)
        if not self.features:
            raise ConfigError("an embedding engine must have at least one feature")
        position = {table.name: t for t, table in enumerate(self.tables)}
        self._bounds = tuple(feature.table.vocabulary_size for feature in self.features)
        self._table_of = np.array([position[feature.table.name] for feature in self.features], np.int64)
        self._vocabulary = np.array([table.vocabulary_size for table in self.tables], np.int64)
        self._dims = np.array([table.dim for table in self.tables], np.int64)
        self._row_base = _starts(self._vocabulary)
        self._weight_base = _starts(self._vocabulary * self._dims)
        self._column = _starts(self._dims[self._table_of])
        self._lay_out_optimizers()
        self._lay_out_initializers(seed)
        self._features_of = np.argsort(self._table_of, kind="stable")
        self._first_feature = np.searchsorted(self._table_of[self._features_of], np.arange(len(self.tables) + 1))
        self._is_mean = np.array([table.combiner == "mean" for table in self.tables], np.bool_)
        self._allocate()

    def _lay_out_optimizers(self) -> None:
        adagrad = [isinstance(table.optimizer, Adagrad) for table in self.tables]
        self._optimizer = np.where(adagrad, ADAGRAD_CODE, SGD_CODE).astype(np.int64)
        self._rate = np.array([table.optimizer.learning_rate for table in self.tables], np.float32)
        self._slot_base = _starts(np.where(adagrad, self._vocabulary * self._dims, 0))
        self._slot_start = np.array([_slot_start(table) for table in self.tables], np.float32)

    def _lay_out_initializers(self, seed: int) -> None:
        codes = [_initializer_code(table.effective_initializer) for table in self.tables]
        self._kinds = np.array([code[0] for code in codes], np.int64)
        self._init_a = np.array([code[1] for code in codes], np.float64)
        self._init_b = np.array([code[2] for code in codes], np.float64)
        self._keys = np.array([_table_key(seed, table.name) for table in self.tables], np.uint64)

    def _allocate(self) -> None:
        """Allocate the tables. Zero pages are not committed until written, so this needs no memory yet."""
        try:
            self._allocate_arrays()
        except (MemoryError, ValueError) as error:
            raise ConfigError("the embedding tables must fit in memory", value=str(error),
                              where=f"{int(self._vocabulary.sum()):,} rows in all",
                              next_step="hash into fewer buckets, or make dim smaller") from error  # fmt: skip

    def _allocate_arrays(self) -> None:
        slot_values = int(np.where(self._optimizer == ADAGRAD_CODE, self._vocabulary * self._dims, 0).sum())
        self._weights = np.zeros(int((self._vocabulary * self._dims).sum()), np.float32)
        self._slots = np.zeros(slot_values, np.float32)
        self._row_state = np.zeros(int(self._vocabulary.sum()), np.uint8)
        self._place = np.zeros(int(self._vocabulary.sum()), np.int32)
        self._prepared: IdBatch | None = None
        self._shares = _NO_SHARES
        self._rows = np.zeros(0, np.int64)
        self._sums = np.zeros(0, np.float32)

    @property
    def columns(self) -> dict[str, slice]:
        """Feature name to its columns in the activations."""
        widths = self._dims[self._table_of]
        return {
            feature.name: slice(int(start), int(start + width))
            for feature, start, width in zip(self.features, self._column, widths, strict=True)
        }

    @property
    def width(self) -> int:
        """Columns of the activations: the sum of the features' dims."""
        return int(self._dims[self._table_of].sum())

    def lookup(self, batch: IdBatch) -> Array:
        """Activations, float32 [batch.rows, width]; an empty bag gives zeros.

        Raises :class:`BadBatch` for an id outside its table or offsets that do not fit, before anything is read.
        """
        self._prepare(batch)
        out = np.empty((batch.rows, self.width), np.float32)
        kernels.combine_bags(
            batch.ids, batch.offsets, self._shares, self._table_of, self._weight_base, self._dims, self._is_mean, self._column,
            self._weights, out,
        )  # fmt: skip
        return out

    def apply_gradients(self, batch: IdBatch, gradients: Array) -> None:
        """One optimizer update for each distinct row of ``batch``.

        ``gradients``: of the loss by the activations of the same batch, float32 [batch.rows, width]. Gradients of a row
        that occurs more than once, in one bag, in many, or in many features of its table, are summed in float32 in the
        order feature, event, position; then the row is updated once. Raises :class:`BadBatch`; nothing is changed then.
        """
        self._prepare(batch)
        if gradients.shape != (batch.rows, self.width) or gradients.dtype != np.float32:
            raise BadBatch("gradients must have the shape of the activations", value=(gradients.shape, str(gradients.dtype)),
                           allowed=f"float32 {(batch.rows, self.width)}")  # fmt: skip
        self._reserve(len(batch.ids))
        kernels.apply_gradients(
            batch.ids, batch.offsets, self._shares, gradients, self._first_feature, self._features_of, self._row_base,
            self._weight_base, self._slot_base, self._dims, self._is_mean, self._column, self._optimizer, self._rate,
            self._place, self._rows, self._sums, self._weights, self._slots, self._row_state,
        )  # fmt: skip

    def _prepare(self, batch: IdBatch) -> None:
        """Check a batch, initialise its rows and compute its shares, once for a lookup and its update."""
        if batch is self._prepared:
            return
        self._check(batch)
        kernels.initialise_missing(
            batch.ids, batch.offsets, self._table_of, self._row_base, self._weight_base, self._slot_base, self._dims,
            self._keys, self._kinds, self._init_a, self._init_b, self._slot_start, self._optimizer,
            self._weights, self._slots, self._row_state,
        )  # fmt: skip
        self._shares = _NO_SHARES
        if batch.weights is not None:
            self._shares = kernels.shares_of(batch.weights, batch.offsets, self._table_of, self._is_mean)
        self._prepared = batch

    def _reserve(self, ids: int) -> None:
        if len(self._rows) < ids:
            self._rows = np.empty(2 * ids, np.int64)
            self._sums = np.empty(2 * ids * int(self._dims.max()), np.float32)

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
        problem, f, at = kernels.check_batch(ids, offsets, self._table_of, self._vocabulary)
        if problem == kernels.BAD_ID:
            raise _bad_id(self.features[f], int(ids[at]))
        if problem == kernels.BAD_OFFSETS:
            raise BadBatch("offsets must ascend from the end of the previous feature to the number of ids",
                           where=f"feature {self.features[f].name}, event {at}", value=int(offsets[f, at]))  # fmt: skip

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights, float32 [len(rows), dim], also of rows that were never read. For inspection and tests."""
        t = self._table_position(table)
        dim, base = int(self._dims[t]), int(self._row_base[t])
        out = np.empty((len(rows), dim), np.float32)
        for k, row in enumerate(np.asarray(rows, np.int64)):
            if not 0 <= row < self._vocabulary[t]:
                raise BadBatch("a row must lie in its table", where=f"table {table}", value=int(row),
                               allowed=f"[0, {self._vocabulary[t]})")  # fmt: skip
            if self._row_state[base + row]:
                start = int(self._weight_base[t]) + row * dim
                out[k] = self._weights[start : start + dim]
            else:
                kernels.fill_row(out[k], 0, dim, self._keys[t], row, self._kinds[t], self._init_a[t], self._init_b[t])
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
        base, size = int(self._row_base[t]), int(self._vocabulary[t])
        rows = np.flatnonzero(self._row_state[base : base + size] == 2)
        weights, slots = self._views(t)
        return TableState(rows, weights[rows], slots[rows] if slots.size else np.zeros((len(rows), 0), np.float32))

    def _views(self, t: int) -> tuple[Array, Array]:
        size, dim, start = int(self._vocabulary[t]), int(self._dims[t]), int(self._weight_base[t])
        weights = self._weights[start : start + size * dim].reshape(size, dim)
        if self._optimizer[t] != ADAGRAD_CODE:
            return weights, np.zeros((0, 0), np.float32)
        start = int(self._slot_base[t])
        return weights, self._slots[start : start + size * dim].reshape(size, dim)

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
            self._row_state[int(self._row_base[t]) + saved.rows] = 2

    def _check_state(self, t: int, table: TableSpec, saved: TableState) -> None:
        slot_dim = table.dim if self._optimizer[t] == ADAGRAD_CODE else 0
        count = saved.rows.size
        shapes = (saved.rows.shape, saved.weights.shape, saved.slots.shape)
        types = [str(array.dtype) for array in (saved.rows, saved.weights, saved.slots)]
        expected = ((count,), (count, table.dim), (count, slot_dim))
        if shapes != expected or types != ["int64", "float32", "float32"] or not _ascending(saved.rows, table):
            raise TornCheckpoint("an embedding table's state must fit its table", where=f"table {table.name}",
                                 value=(*shapes, *types), allowed=f"{expected}, ascending rows of the table")  # fmt: skip


def _ascending(rows: Array, table: TableSpec) -> bool:
    """Whether these are distinct rows of the table in ascending order."""
    if not len(rows):
        return True
    return bool(rows[0] >= 0 and rows[-1] < table.vocabulary_size and (rows[1:] > rows[:-1]).all())


def _starts(sizes: Array) -> Array:
    starts: Array = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    return starts


def _slot_start(table: TableSpec) -> float:
    return table.optimizer.initial_accumulator if isinstance(table.optimizer, Adagrad) else 0.0


def _initializer_code(initializer: Initializer) -> tuple[int, float, float]:
    if isinstance(initializer, Constant):
        return kernels.CONSTANT, initializer.value, 0.0
    if isinstance(initializer, Uniform):
        return kernels.UNIFORM, initializer.low, initializer.high
    kind = kernels.TRUNCATED_NORMAL if initializer.truncated else kernels.NORMAL
    return kind, initializer.mean, initializer.stddev


def _table_key(seed: int, table: str) -> int:
    digest = hashlib.sha256(b"headrace embedding rows/1\0%d\0%s" % (seed, table.encode())).digest()
    return int.from_bytes(digest[:8], "little")


def _bad_id(feature: FeatureSpec, value: int) -> BadBatch:
    return BadBatch(
        "an embedding id must lie in its table",
        where=f"feature {feature.name}, table {feature.table.name}",
        value=value,
        allowed=f"[0, {feature.table.vocabulary_size})",
        next_step="hash the input into buckets (.hash_buckets(n)) or give the table more rows",
    )
