"""The dense part of a job's model, equal on all hosts: its gradients are summed over them while the backward pass runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer.job.host.channels import Channels
from trainer.job.host.dense_all_reduce import DenseAllReduce
from trainer.job.host.gradient_buckets import BUCKET_BYTES, GradientBuckets
from trainer.model.inputs import InputLayout
from trainer.model.task_heads import AnyHead
from trainer.options.config import TrainConfig
from trainer.run.reading.batches import Batch
from trainer.run.weights.dense_step import DenseStep, LookedUp, SummedDense, TableGradients
from trainer.run.weights.run_state import Weights, build_dense
from trainer.run.weights.slice_dense import SliceDense
from trainer.tables.engine import EmbeddingEngine
from trainer.tables.tpu.slices import TpuSlice
from transforms.arrays import Array

if TYPE_CHECKING:
    from trainer.model.dense_model import DenseModel


class HostWeights(Weights):
    """One host's part of the model. A step is one step of all hosts, by the mean loss over all their events.

    All hosts make the same calls in the same order; a host without events trains an :func:`~trainer.job.host.sharded_weights.empty_batch`.
    ``dense``: the dense part; None: that of the options, on the TPUs of ``slice_`` if there are any. Each host then has a slice of its own.
    """

    def __init__(
        self,
        layout: InputLayout,
        config: TrainConfig,
        head: AnyHead,
        channels: Channels,
        engine: EmbeddingEngine | None = None,
        linear: EmbeddingEngine | None = None,
        *,
        dense: DenseModel | None = None,
        slice_: TpuSlice | None = None,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        self._sums: _DenseSums | None = None
        hosts = channels.tables.hosts
        if slice_ is not None:
            on_slice = SliceDense(layout, config, head, slice_, hosts=hosts)
            super().__init__(layout, engine, on_slice, head, linear)
            if hosts > 1:
                self._sums = _DenseSums(on_slice, channels, GradientBuckets.of(on_slice.sizes, hosts, bucket_bytes))
            return
        dense = dense or build_dense(layout, config, head, rows=config.rows_of_host(hosts))
        dense.check_replicable()
        super().__init__(layout, engine, dense, head, linear)
        self._sums = _StagedSums(dense, channels, GradientBuckets.of(dense.sizes, hosts, bucket_bytes))

    def differentiate(self, batch: Batch, looked_up: LookedUp) -> DenseStep:
        """This host's gradients, of which the dense ones are sent to the other hosts meanwhile; no weight of this process changes yet.

        A step of a single host on TPUs changes their weights, too.
        """
        return super().differentiate(batch, looked_up) if self._sums is None else self._sums.begin(batch, looked_up)

    def apply_dense(self, batch: Batch, step: DenseStep) -> TableGradients:
        """One update of the dense weights by the gradients of all hosts; a host's events count as much as another's."""
        return step.gradients if self._sums is None else self._sums.finish(step)

    def abandon_step(self) -> None:
        """See :meth:`ModelWeights.abandon_step <trainer.run.weights.run_state.ModelWeights.abandon_step>`."""
        if self._sums is not None:
            self._sums.abandon()


class _DenseSums:
    """The dense part of a host, whose gradients are summed over all hosts once all of them are there."""

    def __init__(self, dense: SummedDense, channels: Channels, buckets: GradientBuckets) -> None:
        self._dense = dense
        self._sums = DenseAllReduce(buckets, channels.shares, channels.sums)

    def begin(self, batch: Batch, looked_up: LookedUp) -> DenseStep:
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
        total = self._sums.finish()
        self._dense.apply(total.gradients)
        return TableGradients(step.gradients.deep * total.share, step.gradients.linear * total.share)

    def abandon(self) -> None:
        self._sums.abandon()


class _StagedSums(_DenseSums):
    """The dense part in this process: gradients are sent while the backward pass goes on, if they have several groups."""

    def __init__(self, dense: DenseModel, channels: Channels, buckets: GradientBuckets) -> None:
        super().__init__(dense, channels, buckets)
        self._staged = dense.gradients_in_stages(buckets.groups, self._sums.put) if len(buckets.groups) > 1 else None

    def _handed_on(self, *inputs: Array) -> tuple[Array, ...]:
        return super()._handed_on(*inputs) if self._staged is None else self._staged(*inputs)
