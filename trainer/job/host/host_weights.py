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
from trainer.run.weights.dense_step import DenseStep, LookedUp, TableGradients
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
    ``dense``: the dense part; None: that of the options, on the TPUs of ``slice_`` if there are any: then this host is the only one.
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
        self._here: _DenseHere | None = None
        if slice_ is not None:
            super().__init__(layout, engine, SliceDense(layout, config, head, slice_), head, linear)
            return
        dense = dense or build_dense(layout, config, head, rows=config.rows_of_host(channels.tables.hosts))
        dense.check_replicable()
        super().__init__(layout, engine, dense, head, linear)
        self._here = _DenseHere(dense, channels, bucket_bytes)

    def differentiate(self, batch: Batch, looked_up: LookedUp) -> DenseStep:
        """This host's gradients, of which the dense ones are sent to the other hosts meanwhile; no weight of this process changes yet.

        A step on TPUs changes their weights, too: no other host has any.
        """
        return super().differentiate(batch, looked_up) if self._here is None else self._here.begin(batch, looked_up)

    def apply_dense(self, batch: Batch, step: DenseStep) -> TableGradients:
        """One update of the dense weights by the gradients of all hosts; a host's events count as much as another's."""
        return step.gradients if self._here is None else self._here.finish(step)

    def abandon_step(self) -> None:
        """See :meth:`ModelWeights.abandon_step <trainer.run.weights.run_state.ModelWeights.abandon_step>`."""
        if self._here is not None:
            self._here.abandon()


class _DenseHere:
    """The dense part in this process, whose gradients are summed over all hosts."""

    def __init__(self, dense: DenseModel, channels: Channels, bucket_bytes: int) -> None:
        self._dense = dense
        buckets = GradientBuckets.of(dense.sizes, channels.tables.hosts, bucket_bytes)
        self._sums = DenseAllReduce(buckets, channels.shares, channels.sums)
        self._staged = dense.gradients_in_stages(buckets.groups, self._sums.put) if len(buckets.groups) > 1 else None

    def begin(self, batch: Batch, looked_up: LookedUp) -> DenseStep:
        weights = batch.weights
        if not batch.rows:
            # The loss of one event without features, times 0: the random state goes on as on the other hosts.
            weights = weights.copy()
            weights[0] = 1.0
        inputs = looked_up.deep, looked_up.linear, batch.dense, batch.labels, weights
        self._sums.begin(batch.rows)
        logits, deep, linear = self._handed_on(*inputs) if self._staged is None else self._staged(*inputs)
        return DenseStep(logits[: batch.rows], TableGradients(deep, linear))

    def _handed_on(self, *inputs: Array) -> tuple[Array, Array, Array]:
        """The gradients of a model with one group of variables."""
        logits, deep, linear, dense = self._dense.gradients(*inputs)
        self._sums.put_all(dense)
        return logits, deep, linear

    def finish(self, step: DenseStep) -> TableGradients:
        total = self._sums.finish()
        self._dense.apply(total.gradients)
        return TableGradients(step.gradients.deep * total.share, step.gradients.linear * total.share)

    def abandon(self) -> None:
        self._sums.abandon()
