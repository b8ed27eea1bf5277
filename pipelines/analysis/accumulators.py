"""Accumulators of full-pass operators: one per operator, with state, merge and result.

A partition's *contribution* is an accumulator's state. Contributions are merged in the order of the partitions, in one
process, since the last bits of means and quantiles depend on the order. So the same contributions give the same bits for
any number of workers. Tests compare the results with tf.Transform's analyzers.
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
    """The state of one analysis."""

    def add(self, batch: Batch) -> None:
        """Add a batch of events of one partition."""

    def contribution(self) -> pa.RecordBatch:
        """The state, to be stored."""

    def merge(self, contribution: pa.RecordBatch) -> None:
        """Merge the contribution of a later partition."""

    def extract(self, params: Mapping[str, Scalar]) -> pa.Array:
        """The result for the operator's parameters; empty if there is none."""


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
    """An empty accumulator for a full-pass operator."""
    return _ACCUMULATORS[operator]()


def merge_contributions(analysis: Analysis, contributions: Iterable[pa.RecordBatch]) -> pa.Array:
    """Merge the contributions of an analysis, in the order of the partitions, into its result: terms or float64 numbers.

    Raises :class:`DataError` if the range has no value that the operator accepts.
    """
    accumulator = new_accumulator(analysis.operator)
    for contribution in contributions:
        accumulator.merge(contribution)
    found = accumulator.extract(analysis.params)
    if analysis.operator in VOCABULARIES:
        return _terms(found)
    if not len(found):
        raise DataError("the range of an analysis must hold a finite number", next_step="widen the range")
    return found


def _terms(found: pa.Array) -> pa.Array:
    if not len(found):
        raise DataError("a vocabulary must have at least one term", next_step="lower min_frequency, or widen the range")
    return found.cast(pa.string())
