"""Steps with a bounded staleness: which effects a lookup misses, and that timing changes no bit."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from tests.support.processes import PATIENCE_SECS
from tests.trainer.synthetic import Synthetic, config
from trainer.checkpoints.checkpoint import read_newest
from trainer.errors import ConfigError, NonFiniteLoss
from trainer.options.slice_tables import check_slice_tables
from trainer.run.loop import train
from trainer.run.preparation.preparation import prepare_run
from trainer.run.reading.batches import make_batches
from trainer.run.reading.stream import fragment_stream
from trainer.run.weights.run_state import Weights, build_weights
from trainer.run.weights.staleness import StalenessCounts
from trainer.run.weights.step_pipeline import StepPipeline

pytest.importorskip("tensorflow")


#: A wait that is meant to run out.
_LOOK_SECS = 0.1


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

    def train(self, batch):
        step = self.differentiate(batch, self.look_up(batch))
        self.update_tables(batch, self.apply_dense(batch, step))
        return step.logits

    def look_up(self, batch):
        self._note("L", batch)
        return self._weights.look_up(batch)

    def begin_look_up(self, batch):
        found = self.look_up(batch)

        def end():
            self._note("E", batch)
            return found

        return end

    def send(self, batch, looked_up):
        self._weights.send(batch, looked_up)

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


@pytest.mark.medium
@pytest.mark.parametrize("slow", ["", "L", "D", "U"])
def test_a_lookup_misses_the_update_of_exactly_one_step(scene, slow):
    batches = scene[2]
    expected = weights_of(scene)
    # The effects one after the other, as TensorFlow's pipelining pass orders them: before the loop L0 D0 L1, in its pass i
    # U(i-2) D(i-1) L(i), after it U D U. See tests/trainer/tables/tpu/test_training_loop.py for the pass itself.
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


def train_all(steps, batches):
    """Train batches, and finish them."""
    for batch in batches:
        steps.train(batch)
    steps.drain()


def train_late(weights, batches, staleness):
    """The logits of batches whose updates are applied ``staleness`` steps late, one effect after the other."""
    logits, late = [], []
    for batch in batches:
        looked_up = weights.look_up(batch)
        step = weights.differentiate(batch, looked_up)
        logits.append(step.logits)
        late.append((batch, weights.apply_dense(batch, step)))
        if len(late) > staleness:
            weights.update_tables(*late.pop(0))
    for one in late:
        weights.update_tables(*one)
    return logits


@pytest.mark.medium
@pytest.mark.parametrize(
    ("staleness", "slow"), [(0, ""), (1, "L"), (1, "D"), (1, "U"), (2, ""), (3, "L"), (3, "D"), (3, "U"), (4, "")]
)
def test_a_lookup_misses_exactly_so_many_updates(scene, staleness, slow):
    batches = scene[2]
    expected, weights = weights_of(scene), weights_of(scene)
    logits = train_late(expected, batches, staleness)
    recorded = Recorded(weights, batches, slow)
    with StepPipeline(recorded, staleness) as steps:
        found = [one for batch in batches for one in steps.train(batch)]
        assert len(found) == len(batches) - staleness
        found += steps.drain()
        assert not steps.is_ahead
    assert [one.batch for one in found] == batches
    for one, other in zip(found, logits, strict=True):
        np.testing.assert_array_equal(one.logits, other)
    equal_state(weights, expected)
    at = {effect: place for place, effect in enumerate(recorded.effects)}
    for k in range(len(batches)):
        assert at[f"L{k}"] < at[f"D{k}"] < at[f"U{k}"]
        if k + staleness + 1 < len(batches):
            assert at[f"U{k}"] < at[f"L{k + staleness + 1}"], "a lookup sees all earlier updates"
        for later in range(k + 1, min(k + staleness + 1, len(batches))):
            assert at[f"L{later}"] < at[f"U{k}"], "and misses those of the last steps"
    ends = [at[f"E{k}"] for k in range(len(batches))] if staleness else []
    assert ends == sorted(ends)
    for k in range(staleness, len(ends)):
        assert at[f"L{k}"] < ends[k - staleness + 1], "a lookup ends when the last one of the bound has begun"
    missed = [min(k, staleness) for k in range(len(batches))]
    assert steps.staleness.lookups == tuple(missed.count(k) for k in range(staleness + 1))


@pytest.mark.medium
def test_a_drain_begins_the_pipeline_again(scene):
    batches = scene[2]
    expected, weights = weights_of(scene), weights_of(scene)
    for part in (batches[:4], batches[4:]):
        train_late(expected, part, 2)
    with StepPipeline(weights, 2) as steps:
        for number, batch in enumerate(batches):
            if number == 4:
                assert len(steps.drain()) == 2
                assert not steps.drain()
            steps.train(batch)
        steps.drain()
    equal_state(weights, expected)
    assert steps.staleness == StalenessCounts((2, 2, 6))
    assert (steps.staleness.total, steps.staleness.most, steps.staleness.mean) == (10, 2, 1.4)


def test_more_staleness_than_batches_is_a_drain_at_the_end(scene):
    batches = scene[2][:3]
    expected, weights = weights_of(scene), weights_of(scene)
    train_late(expected, batches, 64)
    with StepPipeline(weights, 64) as steps:
        assert not [one for batch in batches for one in steps.train(batch)]
        assert len(steps.drain()) == 3
    equal_state(weights, expected)


def test_batches_in_memory_are_bounded(scene):
    """Tables that are slow hold back the dense part: no more than twice the staleness and two batches are held."""
    batches, staleness = scene[2], 3
    released = threading.Event()

    class Slow(Recorded):
        def look_up(self, batch):
            released.wait(PATIENCE_SECS)
            return super().look_up(batch)

    recorded = Slow(weights_of(scene), batches)
    with StepPipeline(recorded, staleness) as steps:
        for batch in batches[:staleness]:
            steps.train(batch)
        training = threading.Thread(target=steps.train, args=(batches[staleness],))
        training.start()
        training.join(_LOOK_SECS)
        assert training.is_alive(), "the dense part of the first step waits for its lookup"
        assert len(steps._ahead) <= staleness + 1
        released.set()
        training.join(PATIENCE_SECS)
        steps.drain()
    assert recorded.effects[0] == "L0"


def test_a_failed_update_ends_the_work_on_tables_and_names_its_batch(scene):
    batches = scene[2][:6]

    class Failing(Recorded):
        def update_tables(self, batch, gradients):
            if batch is batches[0]:
                raise NonFiniteLoss("a gradient is NaN")
            super().update_tables(batch, gradients)

    recorded = Failing(weights_of(scene), batches)
    with StepPipeline(recorded, 2) as steps:
        with pytest.raises(NonFiniteLoss, match="a gradient is NaN"):
            train_all(steps, batches)
        assert steps.latest is batches[0]
        with pytest.raises(NonFiniteLoss, match="a gradient is NaN"):
            steps.drain()
    assert not [effect for effect in recorded.effects if effect[0] == "U"]
    assert recorded.effects.count("L3") == 0, "the lookup after the failed update is not made"


@pytest.mark.parametrize("staleness", [1, 3])
def test_what_a_step_needs_is_sent_while_the_step_before_runs(scene, staleness):
    """Each dense part waits until the inputs of the next one were sent."""
    batches, sent = scene[2], {}

    class Waiting(Recorded):
        def send(self, batch, looked_up):
            super().send(batch, looked_up)
            sent[self._numbers[id(batch)]].set()

        def differentiate(self, batch, looked_up):
            number = self._numbers[id(batch)]
            assert sent[number].is_set()
            if number + 1 < len(batches):
                assert sent[number + 1].wait(PATIENCE_SECS)
            return super().differentiate(batch, looked_up)

    sent.update({k: threading.Event() for k in range(len(batches))})
    with StepPipeline(Waiting(weights_of(scene), batches), staleness) as steps:
        for one in batches:
            steps.train(one)
        steps.drain()
    assert all(one.is_set() for one in sent.values())


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


@pytest.mark.slow
@pytest.mark.parametrize("staleness", [1, 3])
def test_a_run_with_staleness_learns_and_repeats_bit_for_bit(tmp_path, staleness):
    data = Synthetic(4, 300)
    reports = [
        train(
            data.solution,
            data.read,
            config(tmp_path / name, staleness=late, passes=3, held_out_share=0.0),
            read_labels=data.read_labels,
        )
        for name, late in (("a", staleness), ("b", staleness), ("c", 0))
    ]
    history = [[item.scores for item in report.history] for report in reports]
    assert history[0] == history[1] != history[2]
    assert reports[0].staleness == reports[1].staleness
    assert (reports[0].staleness.most, reports[2].staleness.most) == (staleness, 0)
    assert reports[0].staleness.total == reports[2].staleness.total > 0
    assert reports[0].ledger.exact
    last = [scores[-1].auc for scores in history]
    assert abs(last[0] - last[2]) < 0.05
    assert last[0] > 0.65, "the figure of the third pass, over events that were trained before"


@pytest.mark.slow
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    """A run that is stopped after every epoch, and one that is not."""
    data, options = Synthetic(4, 300), {"staleness": 3, "passes": 2, "linear": True}

    def run(name, stop):
        return train(data.solution, data.read, config(tmp_path / name, **options), read_labels=data.read_labels, stop=stop)  # fmt: skip

    straight = run("a", lambda: False)
    report, commands = run("b", lambda: True), 1
    while not report.finished:
        report, commands = run("b", lambda: True), commands + 1
    assert commands > 2
    assert report.history == straight.history
    one, other = (read_newest(tmp_path / name, on_skip=pytest.fail) for name in "ab")
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name], err_msg=name)


@pytest.mark.parametrize("staleness", [-1, 65, 1.0, True])
def test_a_staleness_out_of_bounds_is_refused(tmp_path, staleness):
    with pytest.raises(ConfigError, match=r"staleness must be an integer in \[0, 64\]"):
        config(tmp_path, staleness=staleness)


def test_tpus_have_a_staleness_of_one_at_most(tmp_path):
    with pytest.raises(ConfigError, match="staleness must be 0 or 1 in a slice"):
        check_slice_tables(config(tmp_path, staleness=2, engine="tpu"))


def test_counts_of_staleness_are_added_and_written():
    counts = StalenessCounts.of({0: 2, 3: 5, 7: 0})
    assert counts.lookups == (2, 0, 0, 5)
    assert counts + StalenessCounts((1,)) == StalenessCounts((3, 0, 0, 5))
    assert counts.to_document() == {"0": 2, "3": 5}
    figures = counts.to_numbers()
    assert StalenessCounts.of_numbers({**figures, "loss": 0.5, "lookups that missed 999": 1.0}) == counts
    empty = StalenessCounts.of({})
    assert (empty.total, empty.most, empty.mean, empty.to_document()) == (0, 0, 0.0, {})
