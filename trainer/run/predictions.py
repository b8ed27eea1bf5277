"""Predictions of batches, one after another or many at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeAlias

from trainer.run.reading.batches import Batch
from transforms.arrays import Array

#: Gives each batch with its logits, float32 [batch.rows] or [batch.rows, outputs], in order. It may draw several batches before it gives the first one.
Predictor: TypeAlias = Callable[[Iterable[Batch]], Iterator[tuple[Batch, Array]]]


def each_predicted(predict: Callable[[Batch], Array]) -> Predictor:
    """Predicts one batch after another; ``predict``: the logits of a batch."""
    return partial(_each, predict)


def _each(predict: Callable[[Batch], Array], batches: Iterable[Batch]) -> Iterator[tuple[Batch, Array]]:
    for batch in batches:
        yield batch, predict(batch)
