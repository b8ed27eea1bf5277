"""What a scrape reads: metrics with their samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from transforms.errors import InputError
from transforms.metrics.declarations import Kind, Metric


@dataclass(frozen=True, slots=True)
class Distribution:
    """The observations of a histogram at one moment.

    Attributes:
        counts: observations in each bucket, the last one without an upper limit; they are not cumulative.
        total: their sum, in the unit of the metric.
    """

    counts: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a metric; ``labels`` are the values of its labels, in their order."""

    labels: tuple[str, ...]
    value: float | Distribution


@dataclass(frozen=True, slots=True)
class Family:
    """A metric and its samples now. Raises :class:`InputError` for samples that do not fit the metric."""

    metric: Metric
    samples: tuple[Sample, ...]

    def __post_init__(self) -> None:
        metric = self.metric
        for one in self.samples:
            is_whole = isinstance(one.value, Distribution) and len(one.value.counts) == len(metric.bounds) + 1
            if len(one.labels) != len(metric.labels) or is_whole != (metric.kind is Kind.HISTOGRAM):
                raise InputError("a sample must fit its metric", where=metric.name, value=one)


def single(metric: Metric, value: float | Distribution) -> Family:
    """The family of a metric without labels."""
    return Family(metric, (Sample((), value),))


def by_label(metric: Metric, values: Mapping[str, float] | Mapping[str, Distribution]) -> Family:
    """The family of a metric with one label, by its values."""
    return Family(metric, tuple(Sample((name,), value) for name, value in values.items()))


def by_labels(metric: Metric, values: Iterable[tuple[tuple[str, ...], float]]) -> Family:
    """The family of a metric with several labels."""
    return Family(metric, tuple(Sample(labels, value) for labels, value in values))
