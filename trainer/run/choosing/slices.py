"""The sample of the newest events, and its slices of time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainer.model.inputs import InputLayout
from trainer.model.task_heads import AnyHead
from trainer.run.preparation.preparation import fragment_refs
from trainer.run.progress.identity import in_time_order
from trainer.run.reading.columns import DecodedFragment, decode, take_events
from trainer.run.reading.stream import ReadFragment
from warehouse.solution.solution import ReadSolution

#: The most events of the sample, the newest of the range.
SAMPLE_EVENTS = 100_000
#: Where the slices begin and end, as shares of the sample: each is validated by models that are trained on all before it.
_CUTS = (0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class TimeSlice:
    """A slice that is validated.

    Attributes:
        gap: the events between those that the slice before had in training, and this slice; of the first slice, all before it.
        validated: its events.
    """

    gap: tuple[DecodedFragment, ...]
    validated: tuple[DecodedFragment, ...]


def read_sample(
    solution: ReadSolution, read: ReadFragment, layout: InputLayout, head: AnyHead
) -> list[DecodedFragment]:
    """The newest events of the range, in time order, up to the sample's size."""
    refs = [ref for part in in_time_order(solution) for ref in fragment_refs(part.key, part.fragments)]
    newest: list[DecodedFragment] = []
    left = SAMPLE_EVENTS
    for ref in reversed(refs):
        if left <= 0:
            break
        decoded = decode(read(ref.fragment), layout, ref.key, head=head)
        if decoded.rows > left:
            decoded = take_events(decoded, np.arange(decoded.rows - left, decoded.rows))
        newest.append(decoded)
        left -= decoded.rows
    return newest[::-1]


def time_slices(sample: Sequence[DecodedFragment]) -> tuple[TimeSlice, ...]:
    """The slices of a sample in time order; those without events on one of the two sides are left out."""
    rows = sum(part.rows for part in sample)
    cuts = [round(rows * cut) for cut in _CUTS]
    found, begun = [], 0
    for first, last in itertools.pairwise(cuts):
        if first > begun and last > first:
            found.append(
                TimeSlice(tuple(events_between(sample, begun, first)), tuple(events_between(sample, first, last)))
            )
            begun = first
    return tuple(found)


def events_between(sample: Sequence[DecodedFragment], first: int, last: int) -> list[DecodedFragment]:
    """Events ``first`` to ``last`` of some fragments, one after the other."""
    found, at = [], 0
    for part in sample:
        start, stop = max(first - at, 0), min(last - at, part.rows)
        if stop > start:
            found.append(take_events(part, np.arange(start, stop)))
        at += part.rows
    return found
