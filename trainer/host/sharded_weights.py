"""The model of a job with several hosts: tables are spread over them, by rows or by a plan; dense weights are equal on all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trainer.checkpoints.parted_arrays import PartedArrays
from trainer.config import TrainConfig
from trainer.embedding.batches import IdBatch, id_dtype
from trainer.embedding.partitioned.sharded_tables import ShardedTables
from trainer.embedding.partitioned.table_parts import TableParts
from trainer.embedding.spec import tables_of
from trainer.host.channels import Channels
from trainer.host.dense_all_reduce import DenseAllReduce
from trainer.host.gradient_buckets import BUCKET_BYTES, GradientBuckets
from trainer.host.shard_arrays import parted_shards, shard_arrays, shard_states
from trainer.model.heads import BINARY
from trainer.model.inputs import InputLayout
from trainer.model.task_heads import AnyHead
from trainer.planning.plan import PartitionPlan
from trainer.reading.batches import Batch
from trainer.training.run_state import (
    DenseStep,
    LookedUp,
    TableGradients,
    Weights,
    build_weights,
    linear_features,
    under,
)

Array = np.ndarray[Any, np.dtype[Any]]


class ShardedWeights(Weights):
    """One host's part of the model. A step is one step of all hosts, by the mean loss over all their events.

    All hosts make the same calls in the same order; a host without events trains an :func:`empty_batch`. Arrays of tables are those of
    this host's shards.

    ``plan``: where the tables of the towers stand, a core for each host; None: rows are spread over the hosts, as those of the linear part.
    """

    def __init__(
        self,
        layout: InputLayout,
        config: TrainConfig,
        head: AnyHead,
        channels: Channels,
        plan: PartitionPlan | None = None,
        *,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        # The dense part alone, with its tables elsewhere.
        dense = build_weights(layout, config, head, with_tables=False).dense
        dense.check_replicable()
        exchange, held = channels.tables, config.batches_held
        engine = linear = None
        if layout.features and config.deep:
            parts = None if plan is None else TableParts(tables_of(layout.features), exchange.hosts, plan)
            engine = ShardedTables(layout.features, seed=config.seed, exchange=exchange, parts=parts, held=held)
        if layout.features and config.linear:
            features = linear_features(layout, config, head)
            linear = ShardedTables(features, seed=config.seed, exchange=exchange, held=held)
        super().__init__(layout, engine, dense, head, linear)
        buckets = GradientBuckets.of(dense.sizes, exchange.hosts, bucket_bytes)
        self._sums = DenseAllReduce(buckets, channels.shares, channels.sums)
        self._staged = dense.gradients_in_stages(buckets.groups, self._sums.put) if len(buckets.groups) > 1 else None
        self._tables = [(kind, one) for kind, one in (("embedding", engine), ("linear", linear)) if one is not None]

    def arrays(self) -> dict[str, Array]:
        """See :meth:`Weights.arrays`."""
        shards = (shard_arrays(kind, tables) for kind, tables in self._tables)
        return {**self.dense_arrays(), **{name: array for own in shards for name, array in own.items()}}

    def begin_tables(self, most_bytes: int) -> tuple[PartedArrays, ...]:
        """See :meth:`Weights.begin_tables`."""
        return tuple(one for kind, tables in self._tables for one in parted_shards(kind, tables, most_bytes))

    def load(self, arrays: Mapping[str, Array]) -> None:
        """See :meth:`Weights.load`."""
        self.dense.load_state(under(arrays, "dense/"))
        for kind, tables in self._tables:
            tables.load_parts(shard_states(arrays, kind, tables))

    def differentiate(self, batch: Batch, looked_up: LookedUp) -> DenseStep:
        """This host's gradients, of which the dense ones are sent to the other hosts meanwhile; no weight changes yet."""
        weights = batch.weights
        if not batch.rows:
            # The loss of one event without features, times 0: the random state goes on as on the other hosts.
            weights = weights.copy()
            weights[0] = 1.0
        inputs = looked_up.towers, looked_up.linear, batch.dense, batch.labels, weights
        self._sums.begin(batch.rows)
        logits, towers, linear = self._handed_on(*inputs) if self._staged is None else self._staged(*inputs)
        return DenseStep(logits[: batch.rows], TableGradients(towers, linear))

    def _handed_on(self, *inputs: Array) -> tuple[Array, Array, Array]:
        """The gradients of a model with one group of variables."""
        logits, towers, linear, dense = self.dense.gradients(*inputs)
        self._sums.put_all(dense)
        return logits, towers, linear

    def apply_dense(self, batch: Batch, step: DenseStep) -> TableGradients:
        """One update of the dense weights by the gradients of all hosts; a host's events count as much as another's."""
        total = self._sums.finish()
        self.dense.apply(total.gradients)
        return TableGradients(step.gradients.towers * total.share, step.gradients.linear * total.share)

    def abandon_step(self) -> None:
        """Give up a step that was begun, if there is one; the channels must be closed."""
        self._sums.abandon()


def empty_batch(layout: InputLayout, batch_rows: int, head: AnyHead = BINARY) -> Batch:
    """A batch without events."""
    ids = IdBatch(
        np.zeros(0, id_dtype(layout.bounds)),
        np.zeros((len(layout.embedded), batch_rows + 1), np.int64),
        np.zeros(0, np.float32) if layout.is_weighted else None,
        layout.bounds,
    )
    dense = np.zeros((batch_rows, layout.dense_width), np.float32)
    return Batch(
        0, ids, dense, np.zeros(head.label_shape(batch_rows), np.float32), np.zeros(batch_rows, np.float32), ()
    )
