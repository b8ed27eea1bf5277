"""The dense part of a host in training: its gradients are summed over all hosts while the backward pass runs."""

from __future__ import annotations

from trainer.job.host.channels import Channels
from trainer.job.host.dense.all_reduce import AllReduce, DenseSum, SegmentUpdates
from trainer.job.host.dense.flat_all_reduce import FlatAllReduce
from trainer.job.host.dense.gradient_buckets import GradientBuckets
from trainer.job.host.dense.grid_all_reduce import GridAllReduce
from trainer.job.host.dense.part_encoding import encoding_of
from trainer.planning.host_grid import FLOAT_BYTES, SumFigures, flat_bytes, grid_bytes
from trainer.run.reading.batches import Batch
from trainer.run.weights.dense_step import DenseStep, HostDense, LookedUp, SummedDense, TableGradients
from transforms.arrays import Array


def all_reduce_of(
    channels: Channels, buckets: GradientBuckets, updates: SegmentUpdates | None = None, values: str = "float32"
) -> AllReduce:
    """The sums of these buckets; ``values``: one of :data:`~trainer.tables.wire.settings.DENSE_VALUES`."""
    encoding = encoding_of(values)
    if buckets.grid is None or channels.legs is None:
        return FlatAllReduce(buckets, channels.shares, channels.sums, updates, encoding)
    return GridAllReduce(buckets, channels.shares, channels.legs, updates, encoding)


def figures_of(
    channels: Channels, buckets: GradientBuckets, *, sends_weights: bool, values: str = "float32"
) -> SumFigures:
    """What all hosts send in a step, see :func:`all_reduce_of`; ``sends_weights``: hosts update segments, and return weights as they are."""
    hosts = channels.shares.hosts
    places = 1 if channels.legs is None else channels.legs.grid.places
    part_bytes = encoding_of(values).value_bytes
    value_bytes = part_bytes + (FLOAT_BYTES if sends_weights else part_bytes)
    if buckets.grid is not None:
        sent = grid_bytes(buckets.size, buckets.grid, value_bytes)
    else:
        sent = flat_bytes(buckets.size, hosts, places, value_bytes, buckets.whole_floats)
    return SumFigures(
        hosts // places,
        places,
        int(buckets.grid is not None),
        int(part_bytes != FLOAT_BYTES),
        sent.near,
        sent.far,
    )


class DenseSums:
    """The dense part of a host, whose gradients are summed over all hosts once all of them are there.

    ``values``: how gradients are sent, see :func:`all_reduce_of`.

    Attributes:
        figures: how they are summed.
    """

    def __init__(
        self,
        dense: SummedDense,
        channels: Channels,
        buckets: GradientBuckets,
        updates: SegmentUpdates | None = None,
        *,
        values: str = "float32",
    ) -> None:
        self._dense = dense
        self._sums = all_reduce_of(channels, buckets, updates, values)
        self.figures = figures_of(channels, buckets, sends_weights=updates is not None, values=values)

    def begin(self, batch: Batch, looked_up: LookedUp) -> DenseStep:
        """This host's gradients, of which the dense ones are sent to the other hosts meanwhile."""
        weights = batch.weights
        if not batch.rows:
            # The loss of one event without features, times 0: the random state goes on as on the other hosts.
            weights = weights.copy()
            weights[0] = 1.0
        inputs = looked_up.deep, looked_up.linear, batch.dense, batch.labels, weights
        self._sums.begin(batch.rows)
        logits, deep, linear = self._handed_on(*inputs)
        return DenseStep(logits[: batch.rows], TableGradients(deep, linear))

    def _handed_on(self, *inputs: Array) -> tuple[Array, ...]:
        """Logits and the gradients of activations; those of dense weights are handed on."""
        logits, deep, linear, dense = self._dense.gradients(*inputs)
        self._sums.put_all(dense)
        return logits, deep, linear

    def finish(self, step: DenseStep) -> TableGradients:
        """Update the dense weights by the gradients of all hosts; the gradients of the tables by the loss of all hosts."""
        total = self._sums.finish()
        self._update(total)
        return TableGradients(step.gradients.deep * total.share, step.gradients.linear * total.share)

    def _update(self, total: DenseSum) -> None:
        self._dense.apply(total.vector)

    def gather(self, *, to_all: bool) -> None:
        """Gather what hosts have of the state of the dense part, at rank 0 or on all hosts, which call it at once: nothing here."""

    def abandon(self) -> None:
        """Give up the step that was begun, if there is one; see :meth:`AllReduce.abandon <trainer.job.host.dense.all_reduce.AllReduce.abandon>`."""
        self._sums.abandon()


class StagedSums(DenseSums):
    """The dense part in this process: gradients are sent while the backward pass goes on, if they have several groups."""

    def __init__(
        self,
        dense: HostDense,
        channels: Channels,
        buckets: GradientBuckets,
        updates: SegmentUpdates | None = None,
        *,
        values: str = "float32",
    ) -> None:
        super().__init__(dense, channels, buckets, updates, values=values)
        self._staged = dense.gradients_in_stages(buckets.groups, self._sums.put) if len(buckets.groups) > 1 else None

    def _handed_on(self, *inputs: Array) -> tuple[Array, ...]:
        return super()._handed_on(*inputs) if self._staged is None else self._staged(*inputs)
