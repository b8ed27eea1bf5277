"""Where the tables of an engine stand in its flat buffers, as the named tuples that its kernels take.

All tables live in one flat float32 buffer, one after the other. Numba takes a named tuple of arrays as it takes the arrays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from trainer.embedding.optimizers import Adagrad
from trainer.embedding.row_updates import ADAGRAD_CODE, SGD_CODE
from trainer.embedding.spec import Constant, FeatureSpec, Initializer, TableSpec, Uniform

Array = np.ndarray[Any, np.dtype[Any]]

CONSTANT, UNIFORM, NORMAL, TRUNCATED_NORMAL = 0, 1, 2, 3


class Bags(NamedTuple):
    """A batch of ids as kernels see it.

    Attributes:
        ids: int64, all features one after the other.
        offsets: int64 [features, events + 1]; the bag of feature f and event b is ``ids[offsets[f, b]:offsets[f, b + 1]]``.
        shares: float32, what each id counts for; empty where all weights are 1.
    """

    ids: Array
    offsets: Array
    shares: Array


class TableLayout(NamedTuple):
    """Features and tables by their positions, int64 unless said otherwise.

    Attributes:
        table_of: The table of each feature.
        column: The first column of each feature's activations.
        features_of: The features, table after table.
        first_feature: Where the features of each table begin in ``features_of``, and where the last ones end.
        vocabulary: The rows of each table.
        dims: The values of a row of each table.
        row_base: Where the rows of each table begin among all rows.
        weight_base: Where the weights of each table begin.
        slot_base: Where the slots of each table begin, for an optimizer that has slots.
        is_mean: bool, whether the bags of each table are averaged, not summed.
        optimizer: The code of each table's optimizer.
        rate: float32, the learning rate of each table.
        slot_start: float32, the first value of each table's slots.
        keys: uint64, what the initial weights of each table are drawn from.
        kinds: The code of each table's initializer.
        init_a: float64, its first number.
        init_b: float64, its second number.
        rows_of: (stride, first): row r of a table here is row ``stride * r + first`` of the table that its initial weights are
            drawn for; (1, 0) unless the tables are spread over hosts.
    """

    table_of: Array
    column: Array
    features_of: Array
    first_feature: Array
    vocabulary: Array
    dims: Array
    row_base: Array
    weight_base: Array
    slot_base: Array
    is_mean: Array
    optimizer: Array
    rate: Array
    slot_start: Array
    keys: Array
    kinds: Array
    init_a: Array
    init_b: Array
    rows_of: Array


class TableValues(NamedTuple):
    """What training changes: float32 ``weights`` and ``slots``, and uint8 ``row_state`` of every row.

    Row states: 0 never read, 1 initialised, 2 updated at least once. Only rows in state 2 differ from what the seed says.
    """

    weights: Array
    slots: Array
    row_state: Array


class Scratch(NamedTuple):
    """Memory of one update, kept for the next.

    Attributes:
        place: int32 a row of all tables, all zero between updates.
        rows: int64, the distinct rows of a table.
        sums: float32, their summed gradients.
    """

    place: Array
    rows: Array
    sums: Array


def layout_of(
    features: Sequence[FeatureSpec], tables: Sequence[TableSpec], seed: int, rows_of: tuple[int, int] = (1, 0)
) -> TableLayout:
    """The layout of ``tables``, in their order, for ``features``; ``rows_of``: see :class:`TableLayout`."""
    position = {table.name: t for t, table in enumerate(tables)}
    table_of = np.array([position[feature.table.name] for feature in features], np.int64)
    vocabulary = np.array([table.vocabulary_size for table in tables], np.int64)
    dims = np.array([table.dim for table in tables], np.int64)
    adagrad = np.array([isinstance(table.optimizer, Adagrad) for table in tables], np.bool_)
    features_of = np.argsort(table_of, kind="stable")
    initializers = [_initializer_code(table.effective_initializer) for table in tables]
    return TableLayout(
        table_of=table_of,
        column=_starts(dims[table_of]),
        features_of=features_of,
        first_feature=np.searchsorted(table_of[features_of], np.arange(len(tables) + 1)),
        vocabulary=vocabulary,
        dims=dims,
        row_base=_starts(vocabulary),
        weight_base=_starts(vocabulary * dims),
        slot_base=_starts(np.where(adagrad, vocabulary * dims, 0)),
        is_mean=np.array([table.combiner == "mean" for table in tables], np.bool_),
        optimizer=np.where(adagrad, ADAGRAD_CODE, SGD_CODE).astype(np.int64),
        rate=np.array([table.optimizer.learning_rate for table in tables], np.float32),
        slot_start=np.array([_slot_start(table) for table in tables], np.float32),
        keys=np.array([_table_key(seed, table.name) for table in tables], np.uint64),
        kinds=np.array([code[0] for code in initializers], np.int64),
        init_a=np.array([code[1] for code in initializers], np.float64),
        init_b=np.array([code[2] for code in initializers], np.float64),
        rows_of=np.array(rows_of, np.int64),
    )


def zero_values(layout: TableLayout) -> TableValues:
    """Tables that were never read. The system commits no memory for them until it is written to."""
    values = layout.vocabulary * layout.dims
    slots = int(np.where(layout.optimizer == ADAGRAD_CODE, values, 0).sum())
    return TableValues(np.zeros(int(values.sum()), np.float32), np.zeros(slots, np.float32),
                       np.zeros(int(layout.vocabulary.sum()), np.uint8))  # fmt: skip


def _starts(sizes: Array) -> Array:
    starts: Array = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    return starts


def _slot_start(table: TableSpec) -> float:
    return table.optimizer.initial_accumulator if isinstance(table.optimizer, Adagrad) else 0.0


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
