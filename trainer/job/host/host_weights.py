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
from trainer.tables.engine import EmbeddingEngine
from transforms.arrays import Array

if TYPE_CHECKING:
    from trainer.model.dense_model import DenseModel


class HostWeights(Weights):
    """One host's part of the model. A step is one step of all hosts, by the mean loss over all their events.

    All hosts make the same calls in the same order; a host without events trains an :func:`~trainer.job.host.sharded_weights.empty_batch`.
    ``dense``: the dense part; None: that of the options.
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
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        dense = dense or build_dense(layout, config, head, rows=config.rows_of_host(channels.tables.hosts))
        dense.check_replicable()
        super().__init__(layout, engine, dense, head, linear)
        buckets = GradientBuckets.of(dense.sizes, channels.tables.hosts, bucket_bytes)
        self._sums = DenseAllReduce(buckets, channels.shares, channels.sums)
        self._staged = dense.gradients_in_stages(buckets.groups, self._sums.put) if len(buckets.groups) > 1 else None

    def differentiate(self, batch: Batch, looked_up: LookedUp) -> DenseStep:
        """This host's gradients, of which the dense ones are sent to the other hosts meanwhile; no weight changes yet."""
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
        logits, deep, linear, dense = self.dense.gradients(*inputs)
        self._sums.put_all(dense)
        return logits, deep, linear

    def apply_dense(self, batch: Batch, step: DenseStep) -> TableGradients:
        """One update of the dense weights by the gradients of all hosts; a host's events count as much as another's."""
        total = self._sums.finish()
        self.dense.apply(total.gradients)
        return TableGradients(step.gradients.deep * total.share, step.gradients.linear * total.share)

    def abandon_step(self) -> None:
        """See :meth:`ModelWeights.abandon_step <trainer.run.weights.run_state.ModelWeights.abandon_step>`."""
        self._sums.abandon()
