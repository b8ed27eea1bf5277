"""A batch as NumPy arrays, by input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainer.model.inputs import InputLayout, width_of
from trainer.run.reading.batches import Batch
from transforms.arrays import Array
from transforms.types import Weighted


@dataclass(frozen=True, slots=True)
class RaggedIds:
    """The ids of an input: those of event i are ``values[offsets[i]:offsets[i + 1]]``.

    Attributes:
        values: int32, or int64 if any input has more than 2**31 buckets.
        offsets: int64 [events + 1], from 0 to the number of ids.
        weights: float32 per id of an input with weights, else None.
    """

    values: Array
    offsets: Array
    weights: Array | None


@dataclass(frozen=True, slots=True)
class FeatureBatch:
    """The events of a batch.

    Attributes:
        rows: its events, without those that fill it up.
        ids: the inputs of ids, by name.
        dense: the inputs of numbers, float32 [events, numbers], in the order of :attr:`NumpyBatches.dense_columns <headrace.loaders.batches.NumpyBatches.dense_columns>`.
        labels: float32 [events], or of several labels [events, labels] with NaN where an event has none.
        weights: float32 [events]: 1, or 0 for what fills a batch up.
    """

    rows: int
    ids: Mapping[str, RaggedIds]
    dense: Array
    labels: Array
    weights: Array


def feature_batch(batch: Batch, layout: InputLayout) -> FeatureBatch:
    """The arrays of a batch by input, without copies of ids."""
    return FeatureBatch(batch.rows, dict(ragged_inputs(batch, layout)), batch.dense, batch.labels, batch.weights)


def ragged_inputs(batch: Batch, layout: InputLayout) -> Iterator[tuple[str, RaggedIds]]:
    """The ids of each input."""
    ids, weights, ends = batch.ids.ids, batch.ids.weights, batch.ids.offsets
    offsets = ends - ends[:, :1]
    bounds = zip(ends[:, 0].tolist(), ends[:, -1].tolist(), strict=True)
    for item, own, (first, stop) in zip(layout.embedded, offsets, bounds, strict=True):
        held = weights[first:stop] if weights is not None and isinstance(item.type, Weighted) else None
        yield item.name, RaggedIds(ids[first:stop], own, held)


def dense_columns(layout: InputLayout) -> dict[str, slice]:
    """The columns of each input of numbers in ``dense``."""
    found, at = {}, 0
    for item in layout.dense:
        width = width_of(item.type)
        found[item.name] = slice(at, at + width)
        at += width
    return found


def bucket_counts(layout: InputLayout) -> dict[str, int]:
    """The buckets of each input of ids: its ids are below them."""
    return {item.name: item.type.buckets or 0 for item in layout.embedded}
