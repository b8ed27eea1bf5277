"""An accumulator a kind of analysis: what it keeps of a partition, and how what partitions contributed is put together.

A partition's *contribution* is an accumulator's state. Contributions are merged in the order of the partitions, in one
process: the last bits of means and quantiles depend on that order. So the same contributions give the same bits, on any
number of workers. tf.Transform's analyzers are what the outcomes are tested against.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Protocol

import pyarrow as pa

from pipelines.analysis.batch import Batch
from pipelines.analysis.extremes import ExtremesAccumulator
from pipelines.analysis.labels import LabelledAccumulator
from pipelines.analysis.moments import MomentsAccumulator
from pipelines.analysis.quantiles import QuantilesAccumulator
from pipelines.analysis.terms import FrequencyAccumulator
from transforms.analysis.full_pass import Analysis
from transforms.errors import DataError
from transforms.operators.declaration import Scalar
from transforms.operators.full_pass import VOCABULARIES


class Accumulator(Protocol):
    """What is known of the events seen so far."""

    def add(self, batch: Batch) -> None:
        """Take in a batch of events of one partition."""

    def contribution(self) -> pa.RecordBatch:
        """All that was taken in, to be kept."""

    def merge(self, contribution: pa.RecordBatch) -> None:
        """Take in what a later partition contributed."""

    def extract(self, params: Mapping[str, Scalar]) -> pa.Array:
        """The outcome, for the operator's parameters; empty where there was nothing to find."""


_ACCUMULATORS: Mapping[str, Callable[[], Accumulator]] = {
    "vocabulary_ids": FrequencyAccumulator,
    "weighted_vocabulary_ids": partial(FrequencyAccumulator, weighted=True),
    "labelled_vocabulary_ids": LabelledAccumulator,
    "weighted_labelled_vocabulary_ids": partial(LabelledAccumulator, weighted=True),
    "quantile_buckets": QuantilesAccumulator,
    "standardize_over": MomentsAccumulator,
    "min_max_over": ExtremesAccumulator,
}


def new_accumulator(operator: str) -> Accumulator:
    """An accumulator for a full-pass operator that has seen nothing."""
    return _ACCUMULATORS[operator]()


def merged(analysis: Analysis, contributions: Iterable[pa.RecordBatch]) -> pa.Array:
    """What an analysis finds, from what its partitions contributed, in their order: terms, or float64 numbers.

    Raises :class:`DataError` if there is nothing to find: no value in the range, or none that the operator can work with.
    """
    accumulator = new_accumulator(analysis.operator)
    for contribution in contributions:
        accumulator.merge(contribution)
    found = accumulator.extract(analysis.params)
    if analysis.operator in VOCABULARIES:
        return _terms(found)
    if not len(found):
        raise DataError("no finite number is in the range of an analysis", next_step="widen the range")
    return found


def _terms(found: pa.Array) -> pa.Array:
    if not len(found):
        raise DataError("no term is left for the vocabulary", next_step="lower min_frequency, or widen the range")
    return found.cast(pa.string())
