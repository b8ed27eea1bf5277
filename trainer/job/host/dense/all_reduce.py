"""The sum of the dense gradients of all hosts, which each host sends in buckets while its backward pass goes on: what its two ways share.

A way is a chain of stages, each of which works on one bucket after the other. A stage takes what the stage before it has sent, so each has a
thread. Floats are added in one order, so sums are equal on all hosts, bit for bit, and do not depend on buckets or timing.

Hosts may also update the dense weights by segments: each replaces the sums of its segment by the weights after the update, and sends these.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trainer.errors import AttemptOver
from trainer.job.host.dense.gradient_buckets import GradientBuckets
from trainer.model.optimizers.segments import aligned_zeros
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
        """Replace the sums of a segment by its weights after the update; return what all hosts take with them, uint8 of one dimension."""

    def take(self, bucket: int, sender: int, notes: Array) -> None:
        """What :meth:`update` has returned on a host, this one included. Raises :class:`DataError` for another array."""


class AllReduce(ABC):
    """One host's part in the sums. All hosts make the same calls.

    A step is :meth:`begin`, :meth:`put` for each group of variables in order, and :meth:`finish`.

    Args:
        buckets: of the model, equal on all hosts.
        rank: of this host.
        updates: updates this host's segments, which all buckets must have; None: hosts need the sums themselves.
    """

    def __init__(self, buckets: GradientBuckets, rank: int, updates: SegmentUpdates | None = None) -> None:
        self._layout, self._rank, self._updates = buckets, rank, updates
        self._own = np.zeros(buckets.size, np.float32)
        self._total = aligned_zeros(buckets.size)
        # Weights stay as they are until the next ones have been taken: they may be in use without a copy.
        self._next = self._total if updates is None else aligned_zeros(buckets.size)
        self._weights: list[np.float32] = []
        self._changed = threading.Condition()
        self._rows = self._put = 0
        self._is_over = True
        # A single bucket is sent by the thread that trains: there is nothing to send beside it.
        self._pool = ThreadPoolExecutor(len(self._stages()), "all-reduce") if len(buckets.buckets) > 1 else None
        self._running: list[Future[None]] = []

    @abstractmethod
    def _stages(self) -> Sequence[Callable[[], None]]:
        """The stages of a step, in the order in which a bucket passes them."""

    def begin(self, rows: int) -> None:
        """Begin a step, in which this host has ``rows`` events."""
        self._rows, self._put, self._is_over = rows, 0, False
        if self._pool is not None:
            self._running = [self._pool.submit(stage) for stage in self._stages()]

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
            for stage in self._stages():
                stage()
        else:
            done, _ = wait(self._running, return_when=FIRST_EXCEPTION)
            for one in done:
                one.result()
        self._is_over = True
        found = DenseSum(self._total, self._weights[self._rank])
        self._total, self._next = self._next, self._total
        return found

    def abandon(self) -> None:
        """Give up the step that was begun, if there is one; the channels must be closed. Returns when no thread works for it."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        wait(self._running)

    def _wait_for(self, bucket: int) -> None:
        """Wait until the gradients of a bucket are complete."""
        ready = self._layout.ready
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or (self._put > 0 and ready[self._put - 1] > bucket))
            if self._is_over:
                raise AttemptOver("a step must be trained to its end")

    def _update(self, bucket: int, floats: Array) -> list[Array]:
        """Update the weights of this host's segment, if hosts do; what is sent beside them."""
        return [] if self._updates is None else [self._updates.update(bucket, floats)]

    def _take_notes(self, bucket: int, sender: int, notes: Array) -> None:
        """Hand on what a host has sent beside its weights."""
        assert self._updates is not None, "notes are those of updates"
        self._updates.take(bucket, sender, notes)


def add_weighted(parts: Sequence[Array], weights: Sequence[np.float32], total: Array, scaled: Array) -> None:
    """Write the weighted sum of parts, in their order, to ``total``; ``scaled`` is memory for at least as many floats."""
    scaled = scaled[: len(total)]
    for number, (part, weight) in enumerate(zip(parts, weights, strict=True)):
        np.multiply(part, weight, out=scaled if number else total)
        if number:
            np.add(total, scaled, out=total)


def add_up(parts: Sequence[Array], total: Array) -> None:
    """Write the sum of two parts or more, in their order, to ``total``."""
    np.add(parts[0], parts[1], out=total)
    for part in parts[2:]:
        np.add(total, part, out=total)


def floats_of(sender: int, arrays: Sequence[Array], size: int) -> Array:
    """The only one of some arrays. Raises :class:`DataError` unless it has so many floats."""
    if len(arrays) != 1 or arrays[0].dtype != np.float32 or arrays[0].shape != (size,):
        raise DataError("a message of gradients must have the floats of its bucket", where=f"host of rank {sender}",
                        value=[f"{one.dtype} {one.shape}" for one in arrays[:4]], allowed=f"float32 ({size},)")  # fmt: skip
    return arrays[0]


def rows_of(sender: int, arrays: Sequence[Array]) -> int:
    """The number of a host's events. Raises :class:`DataError` for anything else."""
    if len(arrays) != 1 or arrays[0].dtype != np.int64 or arrays[0].shape != (1,) or arrays[0][0] < 0:
        raise DataError("the first gradients of a step must have a number of events before them",
                        where=f"host of rank {sender}", value=[f"{one.dtype} {one.shape}" for one in arrays[:4]])  # fmt: skip
    return int(arrays[0][0])


def shares_of(rows: Sequence[int]) -> list[np.float32]:
    """The share of each host's events: one event counts as much as another."""
    total = max(sum(rows), 1)
    return [np.float32(one / total) for one in rows]
