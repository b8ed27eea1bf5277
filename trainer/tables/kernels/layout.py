"""Where the tables of an engine stand in its flat buffers, as the named tuples that its kernels take.

All tables live in one flat float32 buffer. Tables of equal width and optimizer stand side by side: together they are one stacked
array of rows, each table from the beginning of a cache line on. Numba takes a named tuple of arrays as it takes the arrays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trainer.tables.kernels.memory import LINE_FLOATS, TableMemory
from trainer.tables.kernels.row_updates import optimizer_parameters
from trainer.tables.optimizers import current_learning_rate, slot_width
from trainer.tables.spec import COMBINERS, Constant, FeatureSpec, Initializer, TableSpec, Uniform
from transforms.arrays import Array
from transforms.kernels.compiled import pasted

CONSTANT, UNIFORM, NORMAL, TRUNCATED_NORMAL = 0, 1, 2, 3
SUM, MEAN, SQRTN = (COMBINERS.index(name) for name in ("sum", "mean", "sqrtn"))


@dataclass(frozen=True, slots=True)
class TableOrigin:
    """Which part of a whole table a table here is; the initial values of the part are those of the whole.

    Attributes:
        table: the name of the whole table.
        row_stride, row_first: row r here is row ``row_stride * r + row_first`` of the whole.
        first_column: the column of the whole that is column 0 here.
    """

    table: str
    row_stride: int = 1
    row_first: int = 0
    first_column: int = 0


class Bags(NamedTuple):
    """A batch of ids as kernels see it.

    Attributes:
        ids: int32 or int64, all features one after the other.
        offsets: int64 [features, events + 1]; the bag of feature f and event b is ``ids[offsets[f, b]:offsets[f, b + 1]]``.
        shares: float32, what each id counts for; empty where all weights are 1.
    """

    ids: Array
    offsets: Array
    shares: Array


class FeatureLayout(NamedTuple):
    """Features by their positions, int64 unless said otherwise.

    Attributes:
        table: The table of each feature.
        column: The first column of each feature's activations.
        combiner: The position of each feature's combiner in ``COMBINERS``.
        sequence: The most ids of an event of a sequence feature, 0 for other features.
        lower: float32, the lower limit of quantized rows.
        upper: float32, their upper limit.
        quantum: float32, the distance of quantized values; 0 for rows that are not quantized.
    """

    table: Array
    column: Array
    combiner: Array
    sequence: Array
    lower: Array
    upper: Array
    quantum: Array


class TableLayout(NamedTuple):
    """Tables by their positions, int64 unless said otherwise.

    Attributes:
        features_of: The features, table after table.
        first_feature: Where the features of each table begin in ``features_of``, and where the last ones end.
        vocabulary: The rows of each table.
        trained: The rows of each table that updates change, from the first one on: all of them, but for a row that stands for many.
        dims: The values of a row of each table.
        slot_dims: The slot values of a row of each table.
        row_base: Where the rows of each table begin among all rows.
        weight_base: Where the weights of each table begin.
        slot_base: Where the slots of each table begin.
        optimizer: The code of each table's optimizer.
        parameters: float32 [tables, :], see :func:`~trainer.tables.kernels.row_updates.optimizer_parameters`.
        slot_start: float32, the first slot values of a row, table after table.
        first_slot: Where those of each table begin.
        keys: uint64, what the initial weights of each table are drawn from.
        kinds: The code of each table's initializer.
        init_a: float64, its first number.
        init_b: float64, its second number.
        row_stride: See :class:`TableOrigin`.
        row_first: See :class:`TableOrigin`.
        first_column: See :class:`TableOrigin`.
    """

    features_of: Array
    first_feature: Array
    vocabulary: Array
    trained: Array
    dims: Array
    slot_dims: Array
    row_base: Array
    weight_base: Array
    slot_base: Array
    optimizer: Array
    parameters: Array
    slot_start: Array
    first_slot: Array
    keys: Array
    kinds: Array
    init_a: Array
    init_b: Array
    row_stride: Array
    row_first: Array
    first_column: Array


class PackedLayout(NamedTuple):
    """What :class:`TableLayout` has but features, in few arrays: each array of a call of a kernel takes time.

    Attributes:
        numbers: int64 [16, tables], all else in its order, with the bits of numbers of other types.
        parameters, slot_start: as there.
    """

    numbers: Array
    parameters: Array
    slot_start: Array


def packed_layout(tables: TableLayout) -> PackedLayout:
    """The layout of ``tables`` in few arrays; :func:`unpacked` is the inverse."""
    numbers = [
        tables.vocabulary, tables.trained, tables.dims, tables.slot_dims, tables.row_base, tables.weight_base, tables.slot_base,
        tables.optimizer, tables.first_slot, tables.keys, tables.kinds, tables.init_a, tables.init_b, tables.row_stride,
        tables.row_first, tables.first_column,
    ]  # fmt: skip
    return PackedLayout(np.stack([one.view(np.int64) for one in numbers]), tables.parameters, tables.slot_start)


@pasted
def unpacked(numbers: Array, parameters: Array, slot_start: Array) -> TableLayout:
    """The layout of tables without features, in a kernel, from the arrays of :class:`PackedLayout`."""
    n = numbers
    return TableLayout(
        n[0, :0], n[0, :0], n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], parameters, slot_start, n[8], n[9].view(np.uint64), n[10],
        n[11].view(np.float64), n[12].view(np.float64), n[13], n[14], n[15],
    )  # fmt: skip


class TableValues(NamedTuple):
    """What training changes: float32 ``weights`` and ``slots``, and uint8 ``row_state`` of every row.

    Row states: 0 never read, 1 initialised, 2 updated at least once. Only rows in state 2 differ from what the seed says.
    """

    weights: Array
    slots: Array
    row_state: Array


def stack_order(tables: Sequence[TableSpec]) -> list[int]:
    """The positions of ``tables``, those of equal width and optimizer side by side."""
    first: dict[tuple[int, object], int] = {}
    for t, table in enumerate(tables):
        first.setdefault((table.dim, table.optimizer), t)
    return sorted(range(len(tables)), key=lambda t: (first[tables[t].dim, tables[t].optimizer], t))


def feature_layout(features: Sequence[FeatureSpec], tables: Sequence[TableSpec]) -> FeatureLayout:
    """The layout of ``features`` over ``tables``."""
    position = {table.name: t for t, table in enumerate(tables)}
    quantizations = [feature.table.quantization for feature in features]
    return FeatureLayout(
        table=np.array([position[feature.table.name] for feature in features], np.int64),
        column=_starts(np.array([feature.width for feature in features], np.int64)),
        combiner=np.array([_combiner_code(feature) for feature in features], np.int64),
        sequence=np.array([feature.max_sequence_length for feature in features], np.int64),
        lower=np.array([q.lower if q else 0.0 for q in quantizations], np.float32),
        upper=np.array([q.upper if q else 0.0 for q in quantizations], np.float32),
        quantum=np.array([(q.upper - q.lower) / (q.num_buckets - 1) if q else 0.0 for q in quantizations], np.float32),
    )


def feature_columns(features: Sequence[FeatureSpec], layout: FeatureLayout) -> dict[str, slice]:
    """Feature name to its columns in the activations."""
    starts = layout.column.tolist()
    return {one.name: slice(start, start + one.width) for one, start in zip(features, starts, strict=True)}


def table_layout(
    features: FeatureLayout, tables: Sequence[TableSpec], seed: int, origins: Sequence[TableOrigin] | None = None
) -> TableLayout:
    """The layout of ``tables``, in their order, for ``features``; ``origins``: the origin of each, None for whole tables."""
    if origins is None:
        origins = [TableOrigin(table.name) for table in tables]
    vocabulary = np.array([table.vocabulary_size for table in tables], np.int64)
    dims = np.array([table.dim for table in tables], np.int64)
    slot_dims = np.array([slot_width(table.optimizer, table.dim) for table in tables], np.int64)
    order = stack_order(tables)
    features_of = np.argsort(features.table, kind="stable")
    initializers = [_initializer_code(table.effective_initializer) for table in tables]
    codes, parameters = zip(*(optimizer_parameters(table.optimizer) for table in tables), strict=True)
    starts = [_slot_start(table) for table in tables]
    return TableLayout(
        features_of=features_of,
        first_feature=np.searchsorted(features.table[features_of], np.arange(len(tables) + 1)),
        vocabulary=vocabulary,
        trained=vocabulary,
        dims=dims,
        slot_dims=slot_dims,
        row_base=_starts_in(order, vocabulary),
        weight_base=_starts_in(order, _whole_lines(vocabulary * dims)),
        slot_base=_starts_in(order, _whole_lines(vocabulary * slot_dims)),
        optimizer=np.array(codes, np.int64),
        parameters=np.stack(parameters),
        slot_start=np.concatenate([np.zeros(0, np.float32), *starts]),
        first_slot=_starts(slot_dims),
        keys=np.array([_table_key(seed, origin.table) for origin in origins], np.uint64),
        kinds=np.array([code[0] for code in initializers], np.int64),
        init_a=np.array([code[1] for code in initializers], np.float64),
        init_b=np.array([code[2] for code in initializers], np.float64),
        row_stride=np.array([origin.row_stride for origin in origins], np.int64),
        row_first=np.array([origin.row_first for origin in origins], np.int64),
        first_column=np.array([origin.first_column for origin in origins], np.int64),
    )


def table_values(layout: TableLayout, memory: TableMemory, *, is_fresh: bool) -> TableValues:
    """The values of tables in ``memory``; fresh ones were never read.

    Raises MemoryError where the system refuses memory of this size, and :class:`~trainer.errors.MemoryFull` for a folder without space.
    """
    rows = layout.vocabulary
    sizes = {
        "weights": (layout.weight_base, _whole_lines(rows * layout.dims), np.float32),
        "slots": (layout.slot_base, _whole_lines(rows * layout.slot_dims), np.float32),
        "row_state": (layout.row_base, rows, np.uint8),
    }
    return TableValues(*(memory.array(name, *of, is_fresh=is_fresh, in_place=True) for name, of in sizes.items()))


def _whole_lines(floats: Array) -> Array:
    """These numbers of floats, rounded up to whole cache lines."""
    rounded: Array = -(-floats // LINE_FLOATS) * LINE_FLOATS
    return rounded


def learning_rates(tables: Sequence[TableSpec]) -> Array:
    """The learning rate of each table in the next update, float32. Raises :class:`~trainer.errors.ConfigError` for a bad one."""
    return LearningRates(tables)()


class LearningRates:
    """The learning rate of each of some tables in the next update, float32; one of each optimizer is asked for."""

    def __init__(self, tables: Sequence[TableSpec]) -> None:
        self._optimizers = list(dict.fromkeys(table.optimizer for table in tables))
        self._optimizer_of = np.array([self._optimizers.index(table.optimizer) for table in tables], np.int64)

    def __call__(self) -> Array:
        """The rates of this moment. Raises :class:`~trainer.errors.ConfigError` for a bad one."""
        rates: Array = np.array([current_learning_rate(one) for one in self._optimizers], np.float32)[
            self._optimizer_of
        ]
        return rates


def _starts(sizes: Array) -> Array:
    starts: Array = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    return starts


def _starts_in(order: list[int], sizes: Array) -> Array:
    """Where each table begins if they stand in this order."""
    starts = np.empty(len(order), np.int64)
    starts[order] = _starts(sizes[order])
    return starts


def _combiner_code(feature: FeatureSpec) -> int:
    """The rows of a sequence are not divided by anything."""
    return SUM if feature.max_sequence_length else COMBINERS.index(feature.table.combiner)


def _slot_start(table: TableSpec) -> Array:
    parts = [np.full(1 if slot.is_row_wise else table.dim, slot.initial, np.float32) for slot in table.optimizer.slots]
    return np.concatenate([np.zeros(0, np.float32), *parts])


def _initializer_code(initializer: Initializer) -> tuple[int, float, float]:
    if isinstance(initializer, Constant):
        return CONSTANT, initializer.value, 0.0
    if isinstance(initializer, Uniform):
        return UNIFORM, initializer.low, initializer.high
    kind = TRUNCATED_NORMAL if initializer.truncated else NORMAL
    return kind, initializer.mean, initializer.stddev


def _table_key(seed: int, table: str) -> int:
    digest = hashlib.sha256(b"headrace embedding rows/1\0%d\0%s" % (seed, table.encode())).digest()
    return int.from_bytes(digest[:8], "little")
