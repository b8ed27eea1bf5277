"""The sum of the dense gradients of all hosts, which each host sends in buckets while its backward pass goes on.

Each host adds its segment of a bucket, and sends the sum to the others: a host sends 2 n (H - 1) / H bytes of n, where it would send
(H - 1) n of whole vectors. Floats are added in the order of ranks, so sums are equal on all hosts, bit for bit, and do not depend on
buckets or timing.

Hosts may also update the dense weights by segments: each replaces the sums of its segment by the weights after the update, and sends these.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trainer.errors import AttemptOver
from trainer.job.host.channels import Channel
from trainer.job.host.gradient_buckets import Bucket, GradientBuckets
from trainer.model.segments import aligned_zeros
from transforms.arrays import Array
from transforms.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class DenseSum:
    """What all hosts have after a step.

    Attributes:
        vector: the sum of the gradients, or the weights after an update by it, float32, flat, at the offsets of the buckets.
        share: this host's share of the events of all hosts.
    """

    vector: Array
    share: np.float32


class SegmentUpdates(Protocol):
    """The updates of this host's segments, by the number of their bucket. Calls come from the threads of the sum."""

    def update(self, bucket: int, floats: Array) -> Array:
        """Replace the sums of a segment by its weights after the update; return what all hosts take with them, an array of one dimension."""

    def take(self, bucket: int, sender: int, notes: Array) -> None:
        """What :meth:`update` has returned on a host, this one included. Raises :class:`DataError` for another array."""


class DenseAllReduce:
    """One host's part in the sums. All hosts make the same calls.

    A step is :meth:`begin`, :meth:`put` for each group of variables in order, and :meth:`finish`.

    Args:
        buckets: of the model, equal on all hosts.
        shares: takes each host's gradients.
        sums: takes their sums.
        updates: updates this host's segments, which all buckets must have; None: hosts need the sums themselves.
    """

    def __init__(
        self, buckets: GradientBuckets, shares: Channel, sums: Channel, updates: SegmentUpdates | None = None
    ) -> None:
        self._layout, self._shares, self._sums, self._updates = buckets, shares, sums, updates
        self._own = np.zeros(buckets.size, np.float32)
        self._total = aligned_zeros(buckets.size)
        # Weights stay as they are until the next ones have been taken: they may be in use without a copy.
        self._next = self._total if updates is None else aligned_zeros(buckets.size)
        longest = max(stop - start for start, stop in (_added(one, shares.rank) for one in buckets.buckets))
        self._scaled = np.zeros(longest, np.float32)
        self._weights: list[np.float32] = []
        self._changed = threading.Condition()
        self._rows = self._put = 0
        self._is_over = True
        # A single bucket is sent by the thread that trains: there is nothing to send beside it.
        self._pool = ThreadPoolExecutor(3, "all-reduce") if len(buckets.buckets) > 1 else None
        self._running: list[Future[None]] = []

    def begin(self, rows: int) -> None:
        """Begin a step, in which this host has ``rows`` events."""
        self._rows, self._put, self._is_over = rows, 0, False
        if self._pool is not None:
            works = (self._send_all, self._add_all, self._receive_all)
            self._running = [self._pool.submit(work) for work in works]

    def put(self, group: int, gradients: Sequence[Array]) -> None:
        """Hand over the gradients of a group of variables by the mean loss of this host's events; from any thread."""
        layout = self._layout
        for place, gradient in zip(layout.groups[group], gradients, strict=True):
            at = layout.offsets[place]
            self._own[at : at + gradient.size] = gradient.reshape(-1)
        with self._changed:
            assert group == self._put, "groups come in the order of the backward pass"
            self._put += 1
            self._changed.notify_all()

    def put_all(self, gradients: Array) -> None:
        """As :meth:`put` for all groups, with the flat gradients of all variables."""
        layout, first = self._layout, 0
        for at, size in zip(layout.offsets, layout.sizes, strict=True):
            self._own[at : at + size] = gradients[first : first + size]
            first += size
        with self._changed:
            self._put = len(self._layout.groups)
            self._changed.notify_all()

    def finish(self) -> DenseSum:
        """The sum, in memory that the next step writes to, or weights, in memory that the next but one writes to.

        Raises what the exchange with other hosts raises.
        """
        if self._pool is None:
            for work in (self._send_all, self._add_all, self._receive_all):
                work()
        else:
            done, _ = wait(self._running, return_when=FIRST_EXCEPTION)
            for one in done:
                one.result()
        self._is_over = True
        found = DenseSum(self._total, self._weights[self._shares.rank])
        self._total, self._next = self._next, self._total
        return found

    def abandon(self) -> None:
        """Give up the step that was begun, if there is one; the channels must be closed. Returns when no thread works for it."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        wait(self._running)

    def _send_all(self) -> None:
        """Send the buckets as they become complete."""
        for number, bucket in enumerate(self._layout.buckets):
            self._wait_for(number)
            first = [np.array([self._rows], np.int64)] if number == 0 else []
            cuts = [(bucket.start, bucket.stop)] * self._shares.hosts if bucket.is_whole else bucket.segments
            self._shares.send([[*first, self._own[start:stop]] for start, stop in cuts])

    def _wait_for(self, bucket: int) -> None:
        ready = self._layout.ready
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or (self._put > 0 and ready[self._put - 1] > bucket))
            if self._is_over:
                raise AttemptOver("a step must be trained to its end")

    def _add_all(self) -> None:
        """Add what the hosts send of this host's segments, and send the sums."""
        hosts, rank = self._shares.hosts, self._shares.rank
        for number, bucket in enumerate(self._layout.buckets):
            received = self._shares.receive()
            if number == 0:
                self._weights = _weights_of([_rows_of(sender, arrays) for sender, arrays in enumerate(received)])
            start, stop = _added(bucket, rank)
            parts = [floats_of(sender, arrays[-1:], stop - start) for sender, arrays in enumerate(received)]
            self._add(parts, self._total[start:stop])
            notes = [] if self._updates is None else [self._updates.update(number, self._total[start:stop])]
            if not bucket.is_whole:
                self._sums.send([[self._total[start:stop], *notes]] * hosts)

    def _add(self, parts: Sequence[Array], total: Array) -> None:
        """Write the weighted sum of the hosts' parts, in the order of ranks, to ``total``."""
        scaled = self._scaled[: len(total)]
        for rank, part in enumerate(parts):
            np.multiply(part, self._weights[rank], out=scaled if rank else total)
            if rank:
                np.add(total, scaled, out=total)

    def _receive_all(self) -> None:
        """Take the sums of the other hosts, or their weights."""
        for number, bucket in enumerate(self._layout.buckets):
            if not bucket.is_whole:
                for sender, arrays in enumerate(self._sums.receive()):
                    self._take(number, sender, bucket.segments[sender], arrays)

    def _take(self, bucket: int, sender: int, segment: tuple[int, int], arrays: Sequence[Array]) -> None:
        start, stop = segment
        floats = arrays if self._updates is None else arrays[:-1]
        if sender != self._sums.rank:
            self._total[start:stop] = floats_of(sender, floats, stop - start)
        if self._updates is not None:
            self._updates.take(bucket, sender, arrays[-1])


def _added(bucket: Bucket, rank: int) -> tuple[int, int]:
    """The floats of a bucket that a host adds."""
    return (bucket.start, bucket.stop) if bucket.is_whole else bucket.segments[rank]


def floats_of(sender: int, arrays: Sequence[Array], size: int) -> Array:
    """The only one of some arrays. Raises :class:`DataError` unless it has so many floats."""
    if len(arrays) != 1 or arrays[0].dtype != np.float32 or arrays[0].shape != (size,):
        raise DataError("a message of gradients must have the floats of its bucket", where=f"host of rank {sender}",
                        value=[f"{one.dtype} {one.shape}" for one in arrays[:4]], allowed=f"float32 ({size},)")  # fmt: skip
    return arrays[0]


def _rows_of(sender: int, arrays: Sequence[Array]) -> int:
    """The number of a host's events, before its first gradients. Raises :class:`DataError` for anything else."""
    if len(arrays) != 2 or arrays[0].dtype != np.int64 or arrays[0].shape != (1,) or arrays[0][0] < 0:
        raise DataError("the first gradients of a step must have a number of events before them",
                        where=f"host of rank {sender}", value=[f"{one.dtype} {one.shape}" for one in arrays[:4]])  # fmt: skip
    return int(arrays[0][0])


def _weights_of(rows: Sequence[int]) -> list[np.float32]:
    """The share of each host's events: one event counts as much as another."""
    total = max(sum(rows), 1)
    return [np.float32(one / total) for one in rows]
