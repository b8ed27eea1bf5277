"""The sum of dense gradients over hosts on a grid, in two legs, of which only the second one crosses the slow links between machines.

A bucket has a column for each place of a machine. The hosts of a machine add its columns, each its own; then the hosts of equal places add their
columns over all machines, each a segment. What they have added returns the same way: over the machines, then inside them. So a host sends
2 n (X - 1) / (X Y) bytes of n to other machines, of X machines of Y hosts, and 2 n (Y - 1) / Y inside its own.

The order of summation is fixed: a machine's hosts by rank, each scaled by its share of the events of all hosts, then the machines by rank. Where
sums are exact in float32, their bits are those of sums without legs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from trainer.errors import ConfigError
from trainer.job.host.channels import Channel, LegChannels
from trainer.job.host.dense.all_reduce import (
    AllReduce,
    SegmentUpdates,
    add_up,
    add_weighted,
    floats_of,
    rows_of,
    shares_of,
)
from trainer.job.host.dense.gradient_buckets import GradientBuckets
from trainer.job.host.dense.part_encoding import PLAIN, PartEncoding
from transforms.arrays import Array
from transforms.errors import DataError


class GridAllReduce(AllReduce):
    """See :class:`AllReduce`.

    Args:
        buckets: those of a grid.
        events: takes the number of each host's events, of all hosts.
        legs: the channels inside this host's machine and between machines.
        updates: see :class:`AllReduce`.
        encoding: of sums between machines; inside them floats are sent as they are, and so are weights.
    """

    def __init__(
        self,
        buckets: GradientBuckets,
        events: Channel,
        legs: LegChannels,
        updates: SegmentUpdates | None = None,
        encoding: PartEncoding = PLAIN,
    ) -> None:
        if buckets.grid is None:
            raise ConfigError("sums in two legs must have the buckets of a grid", value=f"{events.hosts} hosts")
        self._events, self._legs, self._encoding = events, legs, encoding
        self._near, self._far = buckets.grid.near_of(events.rank), buckets.grid.far_of(events.rank)
        self._place = legs.near_shares.rank
        columns = [one.columns[self._place] for one in buckets.buckets]
        # Other memory than that of the sums: a column is added for the machine while segments of others are taken.
        self._of_machine = np.zeros(buckets.size, np.float32)
        self._scaled = np.zeros(max(stop - start for start, stop in columns), np.float32)
        super().__init__(buckets, events.rank, updates)

    def _stages(self) -> Sequence[Callable[[], None]]:
        return self._send_columns, self._add_machine, self._add_machines, self._return_columns, self._receive_columns

    def begin(self, rows: int) -> None:
        """See :meth:`AllReduce.begin`: the number of events goes to all hosts ahead of the gradients."""
        self._events.send([[np.array([rows], np.int64)]] * self._events.hosts)
        super().begin(rows)

    def _send_columns(self) -> None:
        """Send the columns of buckets as these become complete."""
        for number, bucket in enumerate(self._layout.buckets):
            self._wait_for(number)
            self._legs.near_shares.send([[self._own[start:stop]] for start, stop in bucket.columns])

    def _add_machine(self) -> None:
        """Add this host's columns of its machine, and send their segments to the hosts of its place."""
        received_rows = enumerate(self._events.receive())
        self._weights = shares_of([rows_of(sender, arrays) for sender, arrays in received_rows])
        weights = [self._weights[rank] for rank in self._near]
        for bucket in self._layout.buckets:
            start, stop = bucket.columns[self._place]
            received = self._legs.near_shares.receive()
            parts = [floats_of(rank, arrays, stop - start) for rank, arrays in zip(self._near, received, strict=True)]
            add_weighted(parts, weights, self._of_machine[start:stop], self._scaled)
            segments = [bucket.segments[rank] for rank in self._far]
            self._legs.far_shares.send([[self._encoding.encode(self._of_machine[a:b])] for a, b in segments])

    def _add_machines(self) -> None:
        """Add what the machines have of this host's segments, and send the sums to the hosts of its place."""
        encoding = self._encoding
        for number, bucket in enumerate(self._layout.buckets):
            start, stop = bucket.segments[self._rank]
            received = self._legs.far_shares.receive()
            total = self._total[start:stop]
            add_up([encoding.decode(rank, arrays, stop - start) for rank, arrays in zip(self._far, received, strict=True)], total)  # fmt: skip
            encoding.round(total)
            notes = self._update(number, total)
            sent = encoding.encode(total) if self._updates is None else total
            self._legs.far_sums.send([[sent, *notes]] * len(self._far))

    def _return_columns(self) -> None:
        """Take the sums of this host's columns, or the weights, and send these to the hosts of its machine."""
        for bucket in self._layout.buckets:
            notes: list[Array] = []
            for rank, arrays in zip(self._far, self._legs.far_sums.receive(), strict=True):
                start, stop = bucket.segments[rank]
                if self._updates is None:
                    floats = self._encoding.decode(rank, arrays, stop - start)
                else:
                    floats = floats_of(rank, arrays[:-1], stop - start)
                    notes.append(bytes_of(rank, arrays[-1]))
                if rank != self._rank:
                    self._total[start:stop] = floats
            start, stop = bucket.columns[self._place]
            joined = [] if self._updates is None else [np.array([len(one) for one in notes]), np.concatenate(notes)]
            self._legs.near_sums.send([[self._total[start:stop], *joined]] * len(self._near))

    def _receive_columns(self) -> None:
        """Take the columns of the other hosts of this machine."""
        for number, bucket in enumerate(self._layout.buckets):
            for place, arrays in enumerate(self._legs.near_sums.receive()):
                self._take(number, place, bucket.columns[place], arrays)

    def _take(self, bucket: int, place: int, column: tuple[int, int], arrays: Sequence[Array]) -> None:
        """Take a column with what the hosts of its place have sent beside their weights."""
        start, stop = column
        sender = self._near[place]
        floats = floats_of(sender, arrays if self._updates is None else arrays[:-2], stop - start)
        if place != self._place:
            self._total[start:stop] = floats
        if self._updates is not None:
            owners = range(place, self._events.hosts, len(self._near))
            for owner, notes in zip(owners, split_notes(sender, arrays[-2:], len(owners)), strict=True):
                self._take_notes(bucket, owner, notes)


def bytes_of(sender: int, notes: Array) -> Array:
    """What a host has sent beside its weights. Raises :class:`DataError` unless it is uint8."""
    if notes.dtype != np.uint8:
        raise DataError("notes of a segment must be bytes", where=f"host of rank {sender}", value=str(notes.dtype), allowed="uint8")  # fmt: skip
    return notes


def split_notes(sender: int, arrays: Sequence[Array], count: int) -> list[Array]:
    """The notes of ``count`` hosts from their lengths and their bytes. Raises :class:`DataError` unless these fit."""
    lengths, joined = arrays
    is_whole = lengths.dtype == np.int64 and lengths.shape == (count,) and bool((lengths >= 0).all())
    if not is_whole or joined.dtype != np.uint8 or sum(lengths.tolist()) != len(joined):
        raise DataError("the notes of a column must have the lengths before them", where=f"host of rank {sender}",
                        value=[f"{one.dtype} {one.shape}" for one in arrays], allowed=f"int64 ({count},), and as many bytes")  # fmt: skip
    return np.split(joined, np.cumsum(lengths[:-1]))
