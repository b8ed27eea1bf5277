"""Updates of the dense weights that are spread over the hosts of a job: each updates its segments, and has the slots of these alone.

A host adds its segment of a bucket of gradients, replaces the sums by the weights after the update, and sends these: as many bytes as sums have, while
the backward pass goes on. All weights are taken over once it has ended. So slots and the time of an update are shared, and all bits are those of an
update of all weights on each host. Weight-update sharding: Xu et al., arXiv:2004.13336.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trainer.job.host.channels import Channels
from trainer.job.host.dense.all_reduce import DenseSum, floats_of
from trainer.job.host.dense.dense_sums import StagedSums
from trainer.job.host.dense.gradient_buckets import BUCKET_BYTES, GradientBuckets
from trainer.model.optimizers.segments import ALIGNED_FLOATS, BY_ELEMENT
from trainer.planning.host_grid import HostGrid
from trainer.run.reading.batches import Batch
from trainer.run.weights.dense_step import DenseStep, HostDense, LookedUp
from transforms.arrays import Array
from transforms.errors import DataError

if TYPE_CHECKING:
    from trainer.model.dense_model import DenseModel

#: Dense weights of so many bytes are updated in segments. Below, a second round of messages and more calls of TensorFlow take what an update saves:
#: benchmarks/update_sharding.py has 0.84 to 1.02 of the steps a second for 1 to 11 MB, and 0.99 to 1.17 for 51 MB; sizes between were not measured.
SHARDED_BYTES = 32 << 20
#: The least hosts by optimizer. The update of a segment is one operation of TensorFlow for Adam, and several for the others, which take about twice
#: as long for a float as the compiled update of all weights, or longer.
_LEAST_HOSTS = {"adam": 2, "adagrad": 4, "newton": 4}
_FLOAT_BYTES = 4


def pays(optimizer: str, dense: HostDense, hosts: int, sharded_bytes: int = SHARDED_BYTES) -> bool:
    """Whether hosts update their segments of the dense weights in place of all of them. It is the same on all hosts.

    Optimizers that are not in :data:`~trainer.model.optimizers.segments.BY_ELEMENT` cannot. Weights on a GPU are updated there, in less time than they take to leave it.
    """
    is_large = _FLOAT_BYTES * sum(dense.sizes) >= max(sharded_bytes, 1)
    has_hosts = optimizer in BY_ELEMENT and hosts >= _LEAST_HOSTS[optimizer]
    return has_hosts and is_large and not dense.is_on_gpu


class ShardedUpdates(StagedSums):
    """The dense part in this process, of which this host updates its segments."""

    def __init__(
        self,
        dense: DenseModel,
        channels: Channels,
        bucket_bytes: int = BUCKET_BYTES,
        *,
        grid: HostGrid | None = None,
        values: str = "float32",
    ) -> None:
        rank, hosts = channels.shares.rank, channels.shares.hosts
        self._model, self._exchange = dense, channels.tables
        self._buckets = GradientBuckets.of(dense.sizes, hosts, bucket_bytes, aligned=ALIGNED_FLOATS, grid=grid)
        self._optimizer = dense.update_in_segments([one.segments[rank] for one in self._buckets.buckets])
        self._rank = rank
        floats = dense.unit_floats
        self._units_on = np.zeros(len(floats), np.bool_)
        self._order = np.argsort(floats, kind="stable")
        self._floats = floats[self._order]
        super().__init__(dense, channels, self._buckets, updates=self, values=values)

    @property
    def slot_bytes(self) -> int:
        """The memory of this host's slots."""
        return self._optimizer.slot_bytes

    def begin(self, batch: Batch, looked_up: LookedUp) -> DenseStep:
        """See :meth:`DenseSums.begin`."""
        self._model.begin_update()
        self._optimizer.begin()
        return super().begin(batch, looked_up)

    def update(self, bucket: int, floats: Array) -> Array:
        """See :class:`~trainer.job.host.dense.all_reduce.SegmentUpdates`: other hosts need to know which hidden units are on, see :mod:`trainer.model.idle_units`."""
        own = self._units_of(bucket, self._rank)
        start, _ = self._buckets.buckets[bucket].segments[self._rank]
        units_on: Array = (floats[self._floats[own] - start] != 0).view(np.uint8)
        self._optimizer.update(bucket, floats)
        return units_on

    def take(self, bucket: int, sender: int, notes: Array) -> None:
        """See :class:`~trainer.job.host.dense.all_reduce.SegmentUpdates`."""
        places = self._order[self._units_of(bucket, sender)]
        if notes.dtype != np.uint8 or notes.shape != places.shape:
            raise DataError("weights of a segment must have its hidden units after them", where=f"host of rank {sender}",
                            value=f"{notes.dtype} {notes.shape}", allowed=f"uint8 {places.shape}")  # fmt: skip
        self._units_on[places] = notes != 0

    def _units_of(self, bucket: int, rank: int) -> slice:
        """The counted units of a segment, in the order of their floats."""
        first, last = np.searchsorted(self._floats, self._buckets.buckets[bucket].segments[rank]).tolist()
        return slice(first, last)

    def _update(self, total: DenseSum) -> None:
        self._model.finish_update(total.vector, self._units_on)

    def gather(self, *, to_all: bool) -> None:
        """See :meth:`DenseSums.gather`: the slots, a bucket at a time."""
        takes = to_all or self._rank == 0
        whole: list[Array] = []
        for number, bucket in enumerate(self._buckets.buckets):
            own = self._optimizer.segment_slots(number)
            sent = [own if to_all or rank == 0 else [] for rank in range(self._exchange.hosts)]
            for sender, slots in enumerate(self._exchange.all_to_all(sent)):
                start, stop = bucket.segments[sender]
                if takes and start < stop:
                    whole = whole or [np.zeros(self._buckets.size, np.float32) for _ in slots]
                    for vector, part in zip(whole, slots, strict=True):
                        vector[start:stop] = floats_of(sender, [part], stop - start)
        if takes:
            self._optimizer.take_slots(whole)
