"""Which events each of several hosts scores: consecutive ones in time order, in whole batches as equal in number as they can be. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EventRange:
    """The stored events from ``first`` up to ``stop`` of a fragment; ``fragment``: its position in time order."""

    fragment: int
    first: int
    stop: int


def event_ranges(rows: Sequence[int], rank: int, hosts: int, batch_rows: int) -> tuple[EventRange, ...]:
    """The events of the host of ``rank``, so that the hosts by rank have all events in time order.

    Each begins where a batch of one process would, if all events have labels: so batches, and their predictions, are the same ones.
    ``rows``: the stored events of each fragment, in time order.
    """
    batches = -(-sum(rows) // batch_rows)
    begin, end = (batches * one // hosts * batch_rows for one in (rank, rank + 1))
    found, at = [], 0
    for number, count in enumerate(rows):
        first, stop = max(begin - at, 0), min(end - at, count)
        if first < stop:
            found.append(EventRange(number, first, stop))
        at += count
    return tuple(found)
