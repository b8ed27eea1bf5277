"""Steps with staleness 0 and 1: which effects a lookup misses, and that timing changes no bit."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from tests.trainer.synthetic import Synthetic, config
from trainer.errors import ConfigError, NonFiniteLoss
from trainer.reading.batches import make_batches
from trainer.reading.stream import fragment_stream
from trainer.training.loop import train
from trainer.training.preparation import prepare_run
from trainer.training.run_state import Weights, build_weights
from trainer.training.step_pipeline import StepPipeline

pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A configuration, a layout with its head, and nine batches."""
    data, options = Synthetic(2, 300), config(tmp_path_factory.mktemp("run"), batch_rows=128, linear=True, seed=4)
    prepared = prepare_run(data.solution, options, data.read_labels, on_skip=pytest.fail)
    stream = fragment_stream(prepared.refs(prepared.remaining), data.read, prepared.layout, ahead=1, head=prepared.head)
    batches = list(make_batches(stream, prepared.layout, batch_rows=128))
    assert len(batches) == 10
    return options, prepared, batches


def weights_of(scene):
    options, prepared, _ = scene
    return build_weights(prepared.layout, options, prepared.head)


class Recorded:
    """Weights that note the effects of each step; ``slow`` effects take longer, to change which thread is ahead."""

    def __init__(self, weights: Weights, batches, slow=""):
        self._weights, self._slow = weights, slow
        self._numbers = {id(batch): number for number, batch in enumerate(batches)}
        self.effects = []

    def _note(self, effect, batch):
        if effect in self._slow:
            time.sleep(0.02)
        self.effects.append(f"{effect}{self._numbers[id(batch)]}")

    def look_up(self, batch):
        self._note("L", batch)
        return self._weights.look_up(batch)

    def differentiate(self, batch, looked_up):
        step = self._weights.differentiate(batch, looked_up)
        self._note("D", batch)
        return step

    def apply_dense(self, batch, step):
        return self._weights.apply_dense(batch, step)

    def update_tables(self, batch, gradients):
        self._note("U", batch)
        self._weights.update_tables(batch, gradients)


def equal_state(one, other):
    first, second = one.arrays(), other.arrays()
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)


@pytest.mark.parametrize("slow", ["", "L", "D", "U"])
def test_a_lookup_misses_the_update_of_exactly_one_step(scene, slow):
    batches = scene[2]
    expected = weights_of(scene)
    # The effects one after the other, as TensorFlow's pipelining pass orders them: before the loop L0 D0 L1, in its pass i
    # U(i-2) D(i-1) L(i), after it U D U. See tests/trainer/embedding/tpu/test_training_loop.py for the pass itself.
    looked_up = {0: expected.look_up(batches[0])}
    logits, gradients = [], {}
    for k, batch in enumerate(batches):
        if k + 1 < len(batches):
            looked_up[k + 1] = expected.look_up(batches[k + 1])
        step = expected.differentiate(batch, looked_up.pop(k))
        logits.append(step.logits)
        gradients[k] = expected.apply_dense(batch, step)
        expected.update_tables(batch, gradients.pop(k))
    weights = weights_of(scene)
    recorded = Recorded(weights, batches, slow)
    with StepPipeline(recorded, 1) as steps:
        begun = steps.train(batches[0])
        found = [one for batch in batches[1:] for one in steps.train(batch)]
        assert steps.is_ahead
        found += steps.drain()
        assert not steps.is_ahead
    assert not begun
    assert [one.batch for one in found] == batches
    for one, other in zip(found, logits, strict=True):
        np.testing.assert_array_equal(one.logits, other)
    equal_state(weights, expected)
    at = {effect: place for place, effect in enumerate(recorded.effects)}
    for k in range(len(batches)):
        assert at[f"L{k}"] < at[f"D{k}"] < at[f"U{k}"]
        if k + 2 < len(batches):
            assert at[f"U{k}"] < at[f"L{k + 2}"], "a lookup sees the update of the step before the last"
            assert at[f"L{k + 1}"] < at[f"U{k}"], "and misses that of the last"


def test_without_staleness_each_step_is_done_before_the_next(scene):
    batches = scene[2][:4]
    one, other = weights_of(scene), weights_of(scene)
    with StepPipeline(one, 0) as steps:
        for batch in batches:
            (trained,) = steps.train(batch)
            assert trained.batch is batch
            np.testing.assert_array_equal(trained.logits, other.train(batch))
        assert not steps.drain()
    equal_state(one, other)


def test_a_failed_step_ends_its_thread_and_names_its_batch(scene):
    batches = scene[2][:3]
    weights = weights_of(scene)
    with StepPipeline(weights, 1) as steps:
        steps.train(batches[0])
        broken = replace(batches[1], dense=np.full_like(batches[1].dense, np.nan))
        steps.train(broken)
        with pytest.raises(NonFiniteLoss, match="a prediction is NaN"):
            steps.train(batches[2])  # the dense step of the broken batch
        assert steps.latest is broken


def test_a_run_with_staleness_learns_and_repeats_bit_for_bit(tmp_path):
    data = Synthetic(4, 300)
    reports = [
        train(
            data.solution,
            data.read,
            config(tmp_path / name, staleness=staleness, passes=3),
            read_labels=data.read_labels,
        )
        for name, staleness in (("a", 1), ("b", 1), ("c", 0))
    ]
    history = [[item.scores for item in report.history] for report in reports]
    assert history[0] == history[1] != history[2]
    assert reports[0].ledger.exact
    assert abs(reports[0].final.auc - reports[2].final.auc) < 0.05
    assert reports[0].final.auc > 0.65


def test_a_staleness_of_two_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"staleness must be an integer in \[0, 1\]"):
        config(tmp_path, staleness=2)
