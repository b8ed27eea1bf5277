"""Which events of a batch each host trains. Pure.

A batch of a job is the next events of the stream, whatever the number of hosts: batch k of an epoch begins k batches after the epoch's
first due event. The host of rank r trains the r-th contiguous part of each batch. Parts differ by one event at most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transforms.arrays import Array


@dataclass(frozen=True, slots=True)
class BatchParts:
    """The batches of a natural epoch, and the parts of one host.

    Attributes:
        batch_rows: the events of a batch of all hosts; the last batch of the epoch may have fewer.
        rank, hosts: the host.
        first, stop: the due events of the epoch, counted in the stream.
    """

    batch_rows: int
    rank: int
    hosts: int
    first: int
    stop: int

    @property
    def batches(self) -> int:
        """The batches of the epoch."""
        return -(-(self.stop - self.first) // self.batch_rows)

    def batch(self, number: int) -> tuple[int, int]:
        """The events ``[first, stop)`` of a batch."""
        first = self.first + number * self.batch_rows
        return first, min(first + self.batch_rows, self.stop)

    def part(self, number: int) -> tuple[int, int]:
        """The events ``[first, stop)`` of a batch that the host trains; possibly none."""
        first, stop = self.batch(number)
        begin, end = (first + rank * (stop - first) // self.hosts for rank in (self.rank, self.rank + 1))
        return begin, end

    def own(self, first: int, stop: int) -> Array:
        """The events of ``[first, stop)`` that the host trains, int64, ascending."""
        first, stop = max(first, self.first), min(stop, self.stop)
        if first >= stop:
            return np.zeros(0, np.int64)
        numbers = np.arange((first - self.first) // self.batch_rows, -(-(stop - self.first) // self.batch_rows))
        starts = self.first + numbers * self.batch_rows
        sizes = np.minimum(self.batch_rows, self.stop - starts)
        begins = np.maximum(starts + self.rank * sizes // self.hosts, first)
        counts = np.maximum(np.minimum(starts + (self.rank + 1) * sizes // self.hosts, stop) - begins, 0)
        before = np.cumsum(counts) - counts
        return np.asarray(np.repeat(begins - before, counts) + np.arange(counts.sum()))
