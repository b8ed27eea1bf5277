"""Families of metrics in the classes of ``prometheus_client``, which writes them in the format that a scraper asks for."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from transforms.metrics.declarations import Kind, durations
from transforms.metrics.families import Distribution, Family, single
from transforms.metrics.instruments import Histogram
from transforms.metrics.registry import Registry

#: The label whose values are names of clients.
CLIENT = "client"
SCRAPES = durations("headrace_process_scrape_seconds", "Time in which the process has read its metrics for a scrape.")
_HASH_BYTES = 6


def anonymous_name(name: str) -> str:
    """A name for a client that shows no one but those who know the names which client it is."""
    return hashlib.blake2b(name.encode(), digest_size=_HASH_BYTES, person=b"headrace.client").hexdigest()


class RegistryCollector(Collector):
    """Gives ``prometheus_client`` the families of a registry.

    ``is_anonymous``: the values of the label :data:`CLIENT` are hashed. ``clock``: monotonic seconds.
    """

    def __init__(
        self, registry: Registry, *, is_anonymous: bool = False, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._registry, self._is_anonymous = registry, is_anonymous
        self._scrapes = Histogram(clock=clock)

    def collect(self) -> Iterator[Metric]:
        """All metrics now."""
        with self._scrapes.timed():
            families = self._registry.families()
        for family in (*families, single(SCRAPES, self._scrapes.reading())):
            yield _exposed(family, self._is_anonymous)

    def describe(self) -> Iterator[Metric]:
        """No metrics, so that registering reads no catalog."""
        return iter(())


class _Families(Collector):
    """Families that do not change."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = tuple(families)

    def collect(self) -> Iterator[Metric]:
        for one in self._families:
            yield _exposed(one, False)


def text_of(families: Iterable[Family]) -> bytes:
    """Families in the text format of Prometheus, as a file that a collector reads."""
    registry = CollectorRegistry()
    registry.register(_Families(families))
    return generate_latest(registry)


def _exposed(family: Family, is_anonymous: bool) -> Metric:
    metric = family.metric
    names = metric.labels
    samples = [(_labels(names, one.labels, is_anonymous), one.value) for one in family.samples]
    if metric.kind is Kind.HISTOGRAM:
        found = HistogramMetricFamily(metric.name, metric.help, labels=names)
        for labels, value in samples:
            assert isinstance(value, Distribution)
            limits = [*(f"{one:g}" for one in metric.bounds), "+Inf"]
            buckets = list(zip(limits, accumulate(value.counts), strict=True))
            found.add_metric(labels, buckets, value.total)
        return found
    plain = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    exposed = plain(metric.name, metric.help, labels=names)
    for labels, value in samples:
        assert not isinstance(value, Distribution)
        exposed.add_metric(labels, value)
    return exposed


def _labels(names: tuple[str, ...], values: tuple[str, ...], is_anonymous: bool) -> list[str]:
    return [
        anonymous_name(value) if is_anonymous and name == CLIENT else value
        for name, value in zip(names, values, strict=True)
    ]
