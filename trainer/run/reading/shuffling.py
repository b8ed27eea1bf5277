"""The order of events that are shuffled in windows. Pure.

A window is a number of events that follow each other in the stream, counted from the natural start of the epoch. A batch takes
events of its window at random; inside a batch events stay in the order of the stream. The order is a hash of the window and of each
event's place in the stream, so it depends on nothing else: not on readers, nor on where an epoch was interrupted and continued. Where
hosts share each batch, all of them compute it for all events of a window, so it does not depend on their number either.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from trainer.errors import ConfigError
from transforms.arrays import Array
from transforms.kernels.compiled import compiled

_MULTIPLIERS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class Window(Protocol):
    """A number of events of a host's stream that are whole before a batch takes any of them."""

    @property
    def rows(self) -> int:
        """Its events."""

    @property
    def drawn(self) -> int:
        """How many of them are trained already; they are added again and left out."""

    def order(self, places: Array) -> Array:
        """The order in which its events at these places are drawn: positions in ``places``, int64."""

    def cuts(self, rows: int, batch_rows: int) -> Array:
        """Where its batches begin and the last one ends, counted in drawn events, int64, of its ``rows``; none if that is not known."""

    def following(self) -> Window:
        """The window after it."""


@dataclass(frozen=True, slots=True)
class ShuffleWindow:
    """The window of a stream.

    Attributes:
        rows: the events of a window.
        seed: the seed of the run.
        start: the first unit of the natural epoch.
        number: the window that comes next.
        drawn: how many of its events are trained already; they are added again and left out.
    """

    rows: int
    seed: int = 0
    start: int = 0
    number: int = 0
    drawn: int = 0

    def __post_init__(self) -> None:
        if self.rows < 1 or not 0 <= self.drawn < self.rows or min(self.seed, self.start, self.number) < 0:
            raise ConfigError(
                "a window of shuffled events must have at least one, and fewer drawn than it has", value=self
            )

    def order(self, places: Array) -> Array:
        """See :meth:`Window.order`."""
        return order_of(self, places)

    def cuts(self, rows: int, batch_rows: int) -> Array:
        """See :meth:`Window.cuts`."""
        return np.append(np.arange(0, rows, batch_rows), rows)

    def following(self) -> ShuffleWindow:
        """See :meth:`Window.following`."""
        return replace(self, number=self.number + 1, drawn=0)


def order_of(window: ShuffleWindow, places: Array) -> Array:
    """The order in which the events of a window are drawn: positions in ``places``, int64."""
    key = _mixed(_mixed(np.uint64(window.seed), window.start), window.number)
    return ascending(_mixed(key, places))


def ascending(hashes: Array) -> Array:
    """The positions of uint64 hashes in ascending order, int64; equal ones keep their order."""
    bits = max(1, len(hashes).bit_length())
    counts = np.zeros((1 << bits) + 1, np.int64)
    order, ordered = np.empty(len(hashes), np.int64), np.empty(len(hashes), np.uint64)
    _order_by_bits(hashes, np.uint64(64 - bits), counts, ordered, order)
    return order


@compiled
def _order_by_bits(hashes: Array, shift: Any, counts: Array, ordered: Array, order: Array) -> None:
    """Place each hash by its first bits, which leaves few out of order, then move those: hashes are spread evenly."""
    for i in range(len(hashes)):
        counts[np.int64(hashes[i] >> shift) + 1] += 1
    for k in range(1, len(counts)):
        counts[k] += counts[k - 1]
    for i in range(len(hashes)):
        bucket = np.int64(hashes[i] >> shift)
        ordered[counts[bucket]], order[counts[bucket]] = hashes[i], i
        counts[bucket] += 1
    for i in range(1, len(order)):
        one, position, at = ordered[i], order[i], i
        while at and ordered[at - 1] > one:
            ordered[at], order[at] = ordered[at - 1], order[at - 1]
            at -= 1
        ordered[at], order[at] = one, position


def _mixed(key: Any, values: Any) -> Any:
    """A hash of each pair (SplitMix64)."""
    with np.errstate(over="ignore"):
        found = (np.asarray(key, np.uint64) ^ np.asarray(values).astype(np.uint64)) + _MULTIPLIERS[0]
        for shift, multiplier in ((30, _MULTIPLIERS[1]), (27, _MULTIPLIERS[2])):
            found = (found ^ (found >> np.uint64(shift))) * multiplier
        return found ^ (found >> np.uint64(31))
