"""The sum of dense gradients over all hosts alike: each host adds its segment of a bucket, and sends the sum to the others.

A host sends 2 n (H - 1) / H bytes of n, where it would send (H - 1) n of whole vectors. Floats are added in the order of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from trainer.job.host.channels import Channel
from trainer.job.host.dense.all_reduce import (
    AllReduce,
    SegmentUpdates,
    add_weighted,
    floats_of,
    rows_of,
    shares_of,
)
from trainer.job.host.dense.gradient_buckets import Bucket, GradientBuckets
from trainer.job.host.dense.part_encoding import PLAIN, PartEncoding
from transforms.arrays import Array


class FlatAllReduce(AllReduce):
    """See :class:`AllReduce`.

    Args:
        buckets, updates: see :class:`AllReduce`.
        shares: takes each host's gradients.
        sums: takes their sums.
        encoding: of gradients and sums; weights are sent as they are.
    """

    def __init__(
        self,
        buckets: GradientBuckets,
        shares: Channel,
        sums: Channel,
        updates: SegmentUpdates | None = None,
        encoding: PartEncoding = PLAIN,
    ) -> None:
        self._shares, self._sums, self._encoding = shares, sums, encoding
        longest = max(stop - start for start, stop in (_added(one, shares.rank) for one in buckets.buckets))
        self._scaled = np.zeros(longest, np.float32)
        super().__init__(buckets, shares.rank, updates)

    def _stages(self) -> Sequence[Callable[[], None]]:
        return self._send_all, self._add_all, self._receive_all

    def _send_all(self) -> None:
        """Send the buckets as they become complete."""
        for number, bucket in enumerate(self._layout.buckets):
            self._wait_for(number)
            first = [np.array([self._rows], np.int64)] if number == 0 else []
            if bucket.is_whole:
                parts = [self._encoding.encode(self._own[bucket.start : bucket.stop])] * self._shares.hosts
            else:
                parts = [self._encoding.encode(self._own[start:stop]) for start, stop in bucket.segments]
            self._shares.send([[*first, part] for part in parts])

    def _add_all(self) -> None:
        """Add what the hosts send of this host's segments, and send the sums."""
        hosts, encoding = self._shares.hosts, self._encoding
        for number, bucket in enumerate(self._layout.buckets):
            received = self._shares.receive()
            if number == 0:
                self._weights = shares_of([rows_of(sender, arrays[:-1]) for sender, arrays in enumerate(received)])
            start, stop = _added(bucket, self._rank)
            total = self._total[start:stop]
            parts = [encoding.decode(sender, arrays[-1:], stop - start) for sender, arrays in enumerate(received)]
            add_weighted(parts, self._weights, total, self._scaled)
            encoding.round(total)
            notes = self._update(number, total)
            if not bucket.is_whole:
                sent = encoding.encode(total) if self._updates is None else total
                self._sums.send([[sent, *notes]] * hosts)

    def _receive_all(self) -> None:
        """Take the sums of the other hosts, or their weights."""
        for number, bucket in enumerate(self._layout.buckets):
            if not bucket.is_whole:
                for sender, arrays in enumerate(self._sums.receive()):
                    self._take(number, sender, bucket.segments[sender], arrays)

    def _take(self, bucket: int, sender: int, segment: tuple[int, int], arrays: Sequence[Array]) -> None:
        start, stop = segment
        if self._updates is None:
            if sender != self._rank:
                self._total[start:stop] = self._encoding.decode(sender, arrays, stop - start)
            return
        weights = floats_of(sender, arrays[:-1], stop - start)
        if sender != self._rank:
            self._total[start:stop] = weights
        self._take_notes(bucket, sender, arrays[-1])


def _added(bucket: Bucket, rank: int) -> tuple[int, int]:
    """The floats of a bucket that a host adds."""
    return (bucket.start, bucket.stop) if bucket.is_whole else bucket.segments[rank]
