"""The dense part of a job's model, equal on all hosts: its gradients are summed over them while the backward pass runs."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.job.host.channels import Channels
from trainer.job.host.dense.dense_sums import DenseSums, StagedSums
from trainer.job.host.dense.gradient_buckets import BUCKET_BYTES, GradientBuckets
from trainer.job.host.dense.sharded_updates import SHARDED_BYTES, ShardedUpdates, pays
from trainer.model.inputs import InputLayout
from trainer.model.task_heads import AnyHead
from trainer.options.config import TrainConfig
from trainer.planning import host_grid
from trainer.planning.host_grid import GRID_BYTES, HostGrid, SumFigures
from trainer.run.reading.batches import Batch
from trainer.run.weights.dense_step import DenseStep, HostDense, LookedUp, TableGradients
from trainer.run.weights.run_state import Weights, build_dense
from trainer.run.weights.slice_dense import SliceDense
from trainer.tables.engine import EmbeddingEngine
from trainer.tables.tpu.slices import TpuSlice


class HostWeights(Weights):
    """One host's part of the model. A step is one step of all hosts, by the mean loss over all their events.

    All hosts make the same calls in the same order; a host without events trains an :func:`~trainer.job.host.sharded_weights.empty_batch`.
    ``dense``: the dense part; None: that of the options, on the TPUs of ``slice_`` if there are any. Each host then has a slice of its own.
    ``dense_values``: how dense gradients are sent, see :data:`~trainer.tables.wire.settings.DENSE_VALUES`.
    ``sharded_bytes``: hosts update their segments of dense weights of so many bytes or more, see :func:`~trainer.job.host.dense.sharded_updates.pays`.
    ``grid_bytes``: hosts on a grid add gradients of dense weights of so many bytes or more in two legs.
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
        dense: HostDense | None = None,
        slice_: TpuSlice | None = None,
        dense_values: str = "float32",
        bucket_bytes: int = BUCKET_BYTES,
        sharded_bytes: int = SHARDED_BYTES,
        grid_bytes: int = GRID_BYTES,
    ) -> None:
        self._sums: DenseSums | None = None
        hosts = channels.tables.hosts

        def grid_for(sizes: Sequence[int]) -> HostGrid | None:
            grid = None if channels.legs is None else channels.legs.grid
            return grid if host_grid.pays(grid, sum(sizes), grid_bytes) else None

        if slice_ is not None:
            on_slice = SliceDense(layout, config, head, slice_, hosts=hosts)
            super().__init__(layout, engine, on_slice, head, linear)
            if hosts > 1:
                buckets = GradientBuckets.of(on_slice.sizes, hosts, bucket_bytes, grid=grid_for(on_slice.sizes))
                self._sums = DenseSums(on_slice, channels, buckets, values=dense_values)
            return
        dense = dense or build_dense(layout, config, head, rows=config.rows_of_host(hosts))
        dense.check_replicable()
        grid = grid_for(dense.sizes)
        if pays(config.dense_optimizer, dense, hosts, sharded_bytes):
            in_segments = dense.in_tensorflow()
            super().__init__(layout, engine, in_segments, head, linear)
            self._sums = ShardedUpdates(in_segments, channels, bucket_bytes, grid=grid, values=dense_values)
        else:
            super().__init__(layout, engine, dense, head, linear)
            buckets = GradientBuckets.of(dense.sizes, hosts, bucket_bytes, grid=grid)
            self._sums = StagedSums(dense, channels, buckets, values=dense_values)

    def differentiate(self, batch: Batch, looked_up: LookedUp) -> DenseStep:
        """This host's gradients, of which the dense ones are sent to the other hosts meanwhile; no weight of this process changes yet.

        A step of a single host on TPUs changes their weights, too.
        """
        return super().differentiate(batch, looked_up) if self._sums is None else self._sums.begin(batch, looked_up)

    def apply_dense(self, batch: Batch, step: DenseStep) -> TableGradients:
        """One update of the dense weights by the gradients of all hosts; a host's events count as much as another's."""
        return step.gradients if self._sums is None else self._sums.finish(step)

    @property
    def sum_figures(self) -> SumFigures | None:
        """See :attr:`Weights.sum_figures`."""
        return None if self._sums is None or self._sums.figures.hosts == 1 else self._sums.figures

    def abandon_step(self) -> None:
        """See :meth:`ModelWeights.abandon_step <trainer.run.weights.run_state.ModelWeights.abandon_step>`."""
        if self._sums is not None:
            self._sums.abandon()

    def _gather_dense(self, *, to_all: bool = False) -> None:
        """Gather what hosts have of the dense part, so that :meth:`dense_arrays` of rank 0, or of all hosts, has it. All hosts call it at once."""
        if self._sums is not None:
            self._sums.gather(to_all=to_all)
