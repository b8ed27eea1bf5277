"""Hosts train the same dense weights bit for bit, however their gradients are sent and however late updates are."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainer.synthetic import Synthetic, config
from tests.trainer.thread_channels import on_channels
from trainer.embedding.exchange import all_gather, summed
from trainer.host.sharded_weights import ShardedWeights, empty_batch
from trainer.reading.batches import make_batches
from trainer.reading.stream import fragment_stream
from trainer.training.preparation import prepare_run
from trainer.training.run_state import DenseStep, TableGradients
from trainer.training.step_pipeline import StepPipeline

pytest.importorskip("tensorflow")

ROWS = 64
NETWORKS = {
    "dlrm": {"network": "dlrm", "top_mlp": (16, 12, 8), "bottom_mlp": (8,), "linear": True},
    "dropout": {"network": "dlrm", "top_mlp": (16, 8), "dropout": 0.3, "dense_optimizer": "adagrad"},
    "dcn": {"network": "dcn", "cross_layers": 2, "top_mlp": (16, 8), "cross_structure": "parallel"},
}


class Gathered(ShardedWeights):
    """The sum as it was before: all hosts send their whole gradients to all, after the backward pass."""

    def connect(self, exchange):
        self._all, self._flat = exchange, None
        return self

    def differentiate(self, batch, looked_up):
        weights = batch.weights
        if not batch.rows:
            weights = weights.copy()
            weights[0] = 1.0
        inputs = looked_up.towers, looked_up.linear, batch.dense, batch.labels, weights
        logits, towers, linear, self._flat = self.dense.gradients(*inputs)
        return DenseStep(logits[: batch.rows], TableGradients(towers, linear))

    def apply_dense(self, batch, step):
        counts = [int(arrays[0][0]) for arrays in all_gather(self._all, [np.array([batch.rows], np.int64)])]
        share = np.float32(batch.rows / max(sum(counts), 1))
        self.dense.apply(summed(self._all, self._flat * share))
        return TableGradients(step.gradients.towers * share, step.gradients.linear * share)


@pytest.fixture(scope="module")
def prepared_of(tmp_path_factory):
    """By name of a network: its options, and what a run has prepared, with seven batches."""

    def prepare(name, **options):
        data = Synthetic(2, 100)
        chosen = config(tmp_path_factory.mktemp("run"), batch_rows=ROWS, seed=4, **{**NETWORKS[name], **options})
        prepared = prepare_run(data.solution, chosen, data.read_labels, on_skip=pytest.fail)
        refs = prepared.refs(prepared.remaining)
        stream = fragment_stream(refs, data.read, prepared.layout, ahead=1, head=prepared.head)
        return chosen, prepared, list(make_batches(stream, prepared.layout, batch_rows=ROWS))

    return prepare


def trained(scene, hosts, make, train, delays=0.0):
    """The arrays of all hosts after ``train`` has trained their weights on batches in turn, and their logits."""
    options, prepared, batches = scene
    steps = -(-len(batches) // hosts)
    none = empty_batch(prepared.layout, ROWS, prepared.head)
    padded = [*batches, *[none] * (steps * hosts - len(batches))]

    def work(channels):
        weights = make(prepared, options, channels)
        own = padded[channels.steps.rank :: hosts]
        return train(weights, own), weights.arrays()

    return on_channels(hosts, work, delays=delays)


def in_turn(weights, batches):
    return [weights.train(batch) for batch in batches]


def bucketed(bucket_bytes):
    def make(prepared, options, channels):
        weights = ShardedWeights(prepared.layout, options, prepared.head, channels, bucket_bytes=bucket_bytes)
        assert (weights._staged is not None) == (bucket_bytes < 1000 and channels.steps.hosts > 1)
        return weights

    return make


def gathered(prepared, options, channels):
    return Gathered(prepared.layout, options, prepared.head, channels).connect(channels.steps)


def assert_equal(one, other):
    assert len(one) == len(other)
    for (first, arrays), (second, expected) in zip(one, other, strict=True):
        assert [a.tobytes() for a in first] == [b.tobytes() for b in second]
        assert arrays.keys() == expected.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, expected[name], err_msg=name)


@pytest.mark.parametrize(("name", "hosts"), [("dlrm", 1), ("dlrm", 2), ("dlrm", 3), ("dropout", 2), ("dcn", 3)])
def test_buckets_and_overlap_change_no_bit(prepared_of, name, hosts):
    scene = prepared_of(name)
    expected = trained(scene, hosts, gathered, in_turn)
    dense = [{name: array for name, array in arrays.items() if name.startswith("dense/")} for _, arrays in expected]
    for other in dense[1:]:
        assert all(array.tobytes() == dense[0][name].tobytes() for name, array in other.items())
    assert_equal(trained(scene, hosts, bucketed(1 << 20), in_turn), expected)
    for bucket_bytes in (64, 600):
        assert_equal(trained(scene, hosts, bucketed(bucket_bytes), in_turn, delays=0.001), expected)


def in_pipeline(staleness):
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


@pytest.mark.parametrize("staleness", [1, 3])
def test_hosts_with_late_updates_train_the_same_bits(prepared_of, staleness):
    scene = prepared_of("dlrm", staleness=staleness)
    expected = trained(scene, 2, gathered, one_after_the_other(staleness))
    for delays in (0.0, 0.002):
        assert_equal(trained(scene, 2, bucketed(600), in_pipeline(staleness), delays=delays), expected)
