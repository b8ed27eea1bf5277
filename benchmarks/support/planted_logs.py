"""Logs whose labels are drawn from a known function of their inputs, so that the best possible predictions are known.

Each id stands for a vector of normal numbers that no model sees. Ids are spread over the buckets of their tables.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from trainer.model.inputs import InputLayout, TypedInput, lay_out
from trainer.options.config import TrainConfig
from trainer.run.reading.columns import LABEL_COLUMN, DecodedFragment, decode
from transforms.types import ColumnType, Dense, DType, Ragged

Array = np.ndarray[Any, np.dtype[Any]]
_BUCKETS = 1000
_IDS = Dense(DType.INT64, buckets=_BUCKETS)
_WIDTH = 4


@dataclass(frozen=True, eq=False)
class PlantedLog:
    """A log in memory.

    Attributes:
        inputs: the inputs of a model of all columns.
        fragments: its events in time order, of equal size.
        labels: float32 of 0 and 1.
        logits: the log odds from which each label was drawn.
    """

    inputs: tuple[TypedInput, ...]
    fragments: tuple[DecodedFragment, ...]
    labels: Array
    logits: Array

    def layout(self, config: TrainConfig) -> InputLayout:
        """The use of the inputs."""
        return lay_out(self.inputs, config)


def planted_log(kind: str, rows: int = 60_000, seed: int = 0, fragments: int = 20) -> PlantedLog:
    """A log of one of :data:`PLANTED`."""
    source = np.random.default_rng(seed)
    columns, logits = PLANTED[kind](source, rows)
    labels = (source.random(rows) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    inputs = tuple(TypedInput(name, kind) for name, (kind, _) in columns.items())
    table = pa.table({**{name: values for name, (_, values) in columns.items()}, LABEL_COLUMN: labels})
    layout, edges = lay_out(inputs, TrainConfig("run")), np.linspace(0, rows, fragments + 1).astype(int).tolist()
    parts = (table.slice(first, stop - first).combine_chunks() for first, stop in itertools.pairwise(edges))
    return PlantedLog(inputs, tuple(decode(part, layout, f"part-{k}") for k, part in enumerate(parts)), labels, logits)


Columns = dict[str, tuple[ColumnType, Any]]


def _spread(ids: Array, factor: int) -> Array:
    return ids * factor % _BUCKETS


def _two_ids(source: np.random.Generator, rows: int) -> tuple[Columns, Array]:
    a, b = source.integers(0, 40, rows), source.integers(0, 40, rows)
    left, right = source.normal(size=(40, _WIDTH)), source.normal(size=(40, _WIDTH))
    return {"a": (_IDS, _spread(a, 7)), "b": (_IDS, _spread(b, 11))}, 0.9 * (left[a] * right[b]).sum(1) - 1


def _three_ids(source: np.random.Generator, rows: int) -> tuple[Columns, Array]:
    ids = [source.integers(0, 20, rows) for _ in range(3)]
    vectors = [source.normal(size=(20, _WIDTH)) for _ in range(3)]
    product = np.prod([one[own] for one, own in zip(vectors, ids, strict=True)], axis=0).sum(1)
    columns = {name: (_IDS, _spread(own, factor)) for name, own, factor in zip("abc", ids, (7, 11, 13), strict=True)}
    return columns, 0.9 * product - 1


def _id_and_number(source: np.random.Generator, rows: int) -> tuple[Columns, Array]:
    a, number, slope = source.integers(0, 40, rows), source.normal(size=rows), source.normal(size=40)
    columns = {"a": (_IDS, _spread(a, 7)), "x": (Dense(DType.FLOAT32), (100 + 30 * number).astype(np.float32))}
    return columns, 1.5 * slope[a] * number - 1


def _list_and_id(source: np.random.Generator, rows: int) -> tuple[Columns, Array]:
    a, lengths = source.integers(0, 40, rows), source.integers(1, 6, rows)
    left, right = source.normal(size=(40, _WIDTH)), source.normal(size=(40, _WIDTH))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    items = source.integers(0, 40, offsets[-1])
    means = np.add.reduceat(right[items], offsets[:-1], axis=0) / lengths[:, None]
    stored = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(_spread(items, 11)))
    columns = {"a": (_IDS, _spread(a, 7)), "items": (Ragged(DType.INT64, buckets=_BUCKETS), stored)}
    return columns, 1.5 * (left[a] * means).sum(1) - 1


def paired_ids(
    source: np.random.Generator, rows: int, *, pairs: int = 8, values: int = 20, width: int = _WIDTH
) -> tuple[Columns, Array, tuple[tuple[str, str], ...]]:
    """Twice as many ids as ``pairs``, two of which interact each: log odds are a sum of products of their hidden vectors. And the pairs."""
    names = [f"f{k:02d}" for k in range(2 * pairs)]
    ids = [source.integers(0, values, rows) for _ in names]
    order = source.permutation(2 * pairs).reshape(pairs, 2).tolist()
    logits = np.full(rows, -1.0)
    for one, other in order:
        left, right = source.normal(size=(values, width)), source.normal(size=(values, width))
        logits += (left[ids[one]] * right[ids[other]]).sum(1) * 1.8 / math.sqrt(width * pairs)
    columns: Columns = {name: (_IDS, _spread(own, 7)) for name, own in zip(names, ids, strict=True)}
    return columns, logits, tuple((names[one], names[other]) for one, other in order)


PLANTED: Mapping[str, Callable[[np.random.Generator, int], tuple[Columns, Array]]] = {
    "two ids": _two_ids,
    "three ids": _three_ids,
    "id x number": _id_and_number,
    "list x id": _list_and_id,
}
