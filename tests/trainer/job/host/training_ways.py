"""Ways in which hosts train the same bits: how gradients are sent, and which thread works on tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.support.whole_vectors import all_gather, summed
from tests.trainer.synthetic import Synthetic, config
from trainer.job.host.dense.sharded_updates import ShardedUpdates
from trainer.job.host.sharded_weights import ShardedWeights
from trainer.options.towers import HostTowers
from trainer.run.preparation.preparation import prepare_run
from trainer.run.reading.batches import make_batches
from trainer.run.reading.stream import fragment_stream
from trainer.run.weights.dense_step import DenseStep, TableGradients
from trainer.run.weights.step_pipeline import StepPipeline
from trainer.tables.routes.towers.placement import TowerPlacement, tower_partition

ROWS = 64
NETWORKS: dict[str, dict[str, Any]] = {
    "dlrm": {"network": "dlrm", "top_mlp": (16, 12, 8), "bottom_mlp": (8,), "linear": True},
    "dropout": {"network": "dlrm", "top_mlp": (16, 8), "dropout": 0.3, "dense_optimizer": "adagrad"},
    "dcn": {"network": "dcn", "cross_layers": 2, "top_mlp": (16, 8), "cross_structure": "parallel"},
}


def config_of(run_dir, name, **options):
    """The options of a network."""
    return config(run_dir, batch_rows=ROWS, batch_rows_per_host=True, seed=4, **{**NETWORKS[name], **options})


def batches_of(options):
    """What a run has prepared, and its seven batches."""
    data = Synthetic(2, 100)
    prepared = prepare_run(data.solution, options, data.read_labels, on_skip=_refuse)
    refs = prepared.refs(prepared.remaining)
    stream = fragment_stream(refs, data.read, prepared.layout, ahead=1, head=prepared.head)
    return prepared, list(make_batches(stream, prepared.layout, batch_rows=ROWS))


def _refuse(reason):
    raise AssertionError(reason)


class Gathered(ShardedWeights):
    """The sum as it was before: all hosts send their whole gradients to all, after the backward pass."""

    def connect(self, exchange):
        """Send on this exchange."""
        self._all, self._flat = exchange, None
        return self

    def differentiate(self, batch, looked_up):
        """This host's gradients."""
        weights = batch.weights
        if not batch.rows:
            weights = weights.copy()
            weights[0] = 1.0
        inputs = looked_up.deep, looked_up.linear, batch.dense, batch.labels, weights
        logits, deep, linear, self._flat = self.dense.gradients(*inputs)
        return DenseStep(logits[: batch.rows], TableGradients(deep, linear))

    def apply_dense(self, batch, step):
        """The update of the dense weights."""
        counts = [int(arrays[0][0]) for arrays in all_gather(self._all, [np.array([batch.rows], np.int64)])]
        share = np.float32(batch.rows / max(sum(counts), 1))
        self.dense.apply(summed(self._all, self._flat * share))
        return TableGradients(step.gradients.deep * share, step.gradients.linear * share)


def gathered(prepared, options, channels):
    """Weights whose gradients are sent whole."""
    return Gathered(prepared.layout, options, prepared.head, channels).connect(channels.steps)


def bucketed(bucket_bytes, **given):
    """Makes weights whose gradients are sent in buckets; in several while the backward pass runs. ``given``: options of :class:`ShardedWeights`."""

    def make(prepared, options, channels):
        weights = ShardedWeights(
            prepared.layout, options, prepared.head, channels, bucket_bytes=bucket_bytes, grid_bytes=0, **given
        )
        assert (weights._sums._staged is not None) == (bucket_bytes < 1000 and channels.steps.hosts > 1)
        return weights

    return make


def in_segments(bucket_bytes, **given):
    """Makes weights whose hosts update their segments of the dense part. ``given``: options of :class:`ShardedWeights`."""

    def make(prepared, options, channels):
        weights = ShardedWeights(
            prepared.layout,
            options,
            prepared.head,
            channels,
            bucket_bytes=bucket_bytes,
            sharded_bytes=0,
            grid_bytes=0,
            **given,
        )
        assert isinstance(weights._sums, ShardedUpdates)
        return weights

    return make


def by_towers(towers, machine_hosts=1, sends_sums=False, **options):
    """Makes weights of hosts that exchange by towers; none: flat, by the plan of two towers. ``options``: of :class:`ShardedWeights`."""
    way = HostTowers(towers, machine_hosts, sends_sums)

    def make(prepared, chosen, channels):
        plan = _plan_of(prepared, channels, towers or halves(prepared))
        return ShardedWeights(prepared.layout, chosen, prepared.head, channels, plan, way, **options)

    return make


def flat_by(towers):
    """Makes weights of hosts that exchange flat, by the plan of towers."""

    def make(prepared, options, channels):
        plan = _plan_of(prepared, channels, towers)
        return ShardedWeights(prepared.layout, options, prepared.head, channels, plan)

    return make


def _plan_of(prepared, channels, towers):
    return tower_partition(prepared.layout.features, TowerPlacement(channels.tables.hosts, 1, towers))


def halves(prepared):
    """Two towers of the inputs."""
    names = [one.name for one in prepared.layout.features]
    return tuple(names[:1]), tuple(names[1:])


def in_turn(weights, batches):
    """Train batches without staleness; returns the logits."""
    return [weights.train(batch) for batch in batches]


def in_pipeline(staleness):
    """Train batches in a pipeline."""

    def train(weights, batches):
        with StepPipeline(weights, staleness) as steps:
            found = [one for batch in batches for one in steps.train(batch)]
            found += steps.drain()
        assert [one.batch for one in found] == batches
        return [one.logits for one in found]

    return train


def one_after_the_other(staleness):
    """The effects of a pipeline in one thread: a step's update is applied before the lookup that is so many steps later."""

    def train(weights, batches):
        looked_up, due, logits = {}, {}, []
        for n in range(len(batches) + 2 * staleness + 1):
            updated, dense = n - staleness - 1, n - staleness
            if updated in due:
                weights.update_tables(batches[updated], due.pop(updated))
            if n < len(batches):
                looked_up[n] = weights.look_up(batches[n])
            if 0 <= dense < len(batches):
                step = weights.differentiate(batches[dense], looked_up.pop(dense))
                logits.append(step.logits)
                due[dense] = weights.apply_dense(batches[dense], step)
        assert not due
        return logits

    return train


#: With a staleness of 2.
WAYS = {
    "gathered": (gathered, one_after_the_other(2)),
    "one bucket": (bucketed(1 << 20), in_pipeline(2)),
    "overlapped": (bucketed(900), in_pipeline(2)),
    "segments": (in_segments(900), in_pipeline(2)),
}
