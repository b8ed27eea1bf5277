"""Declarations of metrics: the one place that states a metric's name, kind, labels and meaning."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from transforms.errors import InputError

#: The second word of a name: the kind of process that has the metric, or the queue that workers read.
ROLES = (
    "process",
    "worker",
    "queue",
    "controller",
    "reader",
    "host",
    "server",
    "embedding_worker",
    "tpu_server",
    "fleet",
    "predict",
    "lineage",
    "checks",
)
_NAME = re.compile(rf"headrace_(?:{'|'.join(ROLES)})_[a-z][a-z0-9_]*[a-z0-9]\Z", re.ASCII)
_LABEL = re.compile(r"[a-z][a-z_]*\Z", re.ASCII)
#: The upper limits of the buckets of durations, in seconds: from a message in memory to a job of hours, about two a decade.
SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3600.0)


class Kind(StrEnum):
    """The kind of a metric, as Prometheus has it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. Raises :class:`InputError` for a name without a role, or with the wrong unit.

    Attributes:
        name: ``headrace_<role>_<what>_<unit>``; a counter's ends with ``_total``, a histogram's with ``_seconds``.
        kind: of the metric.
        help: one sentence.
        labels: names of its labels.
        bounds: of a histogram, the upper limits of its buckets without infinity, ascending.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise InputError("the name of a metric must begin with its role", where="name", value=self.name,
                             allowed=f"headrace_<role>_<what>_<unit>, role: {', '.join(ROLES)}")  # fmt: skip
        if self.name.endswith("_total") != (self.kind is Kind.COUNTER):
            raise InputError("the name of a counter, and of no other metric, must end with _total", value=self.name)
        if (self.kind is Kind.HISTOGRAM) != bool(self.bounds) or list(self.bounds) != sorted(set(self.bounds)):
            raise InputError("a histogram, and no other metric, must have ascending bounds", where=self.name, value=self.bounds)  # fmt: skip
        if self.kind is Kind.HISTOGRAM and not self.name.endswith("_seconds"):
            raise InputError("the name of a histogram must end with its unit", value=self.name, allowed="_seconds")
        if not all(_LABEL.match(one) for one in self.labels):
            raise InputError("the name of a label must be lower-case letters", where=self.name, value=self.labels)


def counter(name: str, help: str, *labels: str) -> Metric:
    """A count since the process began."""
    return Metric(name, Kind.COUNTER, help, labels)


def gauge(name: str, help: str, *labels: str) -> Metric:
    """A value now."""
    return Metric(name, Kind.GAUGE, help, labels)


def durations(name: str, help: str, *labels: str) -> Metric:
    """A histogram of seconds with the buckets of :data:`SECONDS`."""
    return Metric(name, Kind.HISTOGRAM, help, labels, SECONDS)
