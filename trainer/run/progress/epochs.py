"""The plan of epochs over partitions, and the position of a checkpoint in it. Pure.

A run trains *segments* in order. The first segment is the data at the run's start; each later one is an addition to the
table. All passes of a segment run before the next segment begins, so later data never changes the order of earlier data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

NO_ROWS: Mapping[str, int] = MappingProxyType({})

Segments = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Epoch:
    """Partitions trained between two checkpoints. ``number`` counts from 0 over the run, ``pass_number`` over passes."""

    number: int
    pass_number: int
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DataPosition:
    """The position of a checkpoint: ``epochs_done`` epochs of the plan, over data with this digest."""

    epochs_done: int
    data_digest: str


def plan_epochs(
    segments: Sequence[Sequence[str]],
    *,
    partitions_per_epoch: int,
    passes: int,
    events_per_epoch: int = 0,
    rows: Mapping[str, int] = NO_ROWS,
) -> tuple[Epoch, ...]:
    """All epochs of a run, in order: each segment ``passes`` times, in groups; the last group of a pass may be smaller.

    A group is whole partitions until they hold ``events_per_epoch`` of the events in ``rows``, or
    ``partitions_per_epoch`` partitions if that is 0. A larger partition is an epoch of its own.
    """
    epochs: list[Epoch] = []
    for segment in segments:
        if events_per_epoch:
            groups = _by_events(segment, events_per_epoch, rows)
        else:
            starts = range(0, len(segment), partitions_per_epoch)
            groups = [tuple(segment[start : start + partitions_per_epoch]) for start in starts]
        for pass_number in range(passes):
            for group in groups:
                epochs.append(Epoch(len(epochs), pass_number, group))
    return tuple(epochs)


def _by_events(segment: Sequence[str], events: int, rows: Mapping[str, int]) -> list[tuple[str, ...]]:
    groups: list[tuple[str, ...]] = []
    group: list[str] = []
    held = 0
    for key in segment:
        group.append(key)
        held += rows.get(key, 0)
        if held >= events:
            groups.append(tuple(group))
            group, held = [], 0
    return [*groups, tuple(group)] if group else groups
