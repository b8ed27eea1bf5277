"""The metrics of lineage, of every process that sends events."""

from __future__ import annotations

from transforms.metrics.declarations import counter, gauge
from transforms.metrics.families import Family, single

SENT = counter("headrace_lineage_sent_events_total", "Events that the receiver took from this process.")
REFUSED = counter("headrace_lineage_refused_events_total", "Events that the receiver does not accept.")
FAILURES = counter("headrace_lineage_failures_total", "Times that the receiver took no event: it was away, slow, or had an error.")  # fmt: skip
DROPPED = counter("headrace_lineage_dropped_events_total", "Events that this process dropped, since too many waited.")
WAITING = gauge("headrace_lineage_waiting_events", "Events that waited in the catalog when this process last looked.")
METRICS = (SENT, REFUSED, FAILURES, DROPPED, WAITING)


def lineage_families(*, sent: int, refused: int, failures: int, dropped: int, waiting: int) -> tuple[Family, ...]:
    """What a process has sent."""
    return (
        single(SENT, sent),
        single(REFUSED, refused),
        single(FAILURES, failures),
        single(DROPPED, dropped),
        single(WAITING, waiting),
    )
