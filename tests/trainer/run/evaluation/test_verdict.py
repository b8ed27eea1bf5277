"""The verdict on a trained model."""

from __future__ import annotations

import numpy as np
import pytest

from trainer.model.idle_units import IdleUnits
from trainer.model.metrics import Collector, RegressionCollector
from trainer.model.scores import TasksScores
from trainer.options.trial_record import TrialRow
from trainer.run.evaluation.verdict import Evidence, first_pass_labels, verdict_of
from trainer.run.weights.run_state import EpochScores


def scores(size=4000, rate=0.2, signal=1.5, bias=0.0, seed=0):
    """Figures of predictions whose log odds are right but for ``bias``, on labels of about this rate."""
    source = np.random.default_rng(seed)
    logits = np.log(rate / (1 - rate)) + signal * source.normal(size=size)
    collector = Collector()
    collector.add((source.random(size) < 1 / (1 + np.exp(-logits))).astype(np.int8), logits + bias)
    return collector.scores()


def kinds(evidence):
    return {one.kind: one for one in verdict_of(evidence)}


def test_a_good_model_is_better_than_the_base_rate_with_its_uncertainty():
    found = kinds(Evidence(scores(), "test events"))
    assert set(found) == {"base_rate"}
    assert found["base_rate"].is_good
    assert "better than the base rate by" in found["base_rate"].text
    assert "±" in found["base_rate"].text
    assert "4,000 test events" in found["base_rate"].text


def test_a_model_without_signal_is_not_clearly_better():
    found = kinds(Evidence(scores(size=300, signal=0.01), "test events"))["base_rate"]
    assert not found.is_good
    assert "not clearly better" in found.text
    assert found.next_step


def test_predictions_far_off_are_worse_and_not_calibrated():
    found = kinds(Evidence(scores(bias=2.0), "test events"))
    assert "worse than the base rate" in found["base_rate"].text
    assert "times the positive labels" in found["calibration"].text
    assert '"calibration": "platt"' in found["calibration"].next_step
    assert "calibration" not in kinds(Evidence(scores(size=30, bias=0.3), "test events")), "few positives tell little"


def test_one_label_only_says_nothing_else():
    collector = Collector()
    collector.add(np.ones(50, np.int8), np.full(50, 3.0))
    found = verdict_of(Evidence(collector.scores(), "test events", trained=scores()))
    assert [one.kind for one in found] == ["one_class"]
    assert "every label of the 50 test events is 1" in found[0].text


def test_a_rate_that_moved_is_named():
    found = kinds(Evidence(scores(rate=0.4), "test events", trained=scores(rate=0.1)))
    assert "was 1" in found["rate_moved"].text
    assert "rate_moved" not in kinds(Evidence(scores(), "test events", trained=scores(seed=1)))


def row(name, loss, behind, error, *, is_linear=False, is_chosen=False):
    return TrialRow(name, 1, 3, 900, loss, 0.01, behind, error, is_linear, is_chosen)


CHOSEN = row("network", 0.8, 0.0, 0.0, is_chosen=True)


@pytest.mark.parametrize(("behind", "error", "good"), [(0.05, 0.01, True), (0.005, 0.01, False)])
def test_the_best_linear_model_of_the_trial_is_compared(behind, error, good):
    trial = (
        row("cautious", 0.9, 0.1, 0.01, is_linear=True),
        row("linear", 0.85, behind, error, is_linear=True),
        CHOSEN,
    )
    found = kinds(Evidence(scores(), "test events", trial=trial))["linear"]
    assert found.is_good is good
    assert "than the best linear model by" in found.text
    assert "linear" not in kinds(Evidence(scores(), "test events", trial=trial, is_linear=True))
    assert "linear" not in kinds(Evidence(scores(), "test events"))


def test_units_that_are_off_and_tables_that_did_not_move_are_named_above_one_half():
    found = kinds(Evidence(None, "", idle=IdleUnits(96, 49, 1000), tables=3, unmoved=("a", "b")))
    assert "49 of 96 hidden units were off for all events of the last 1,000 steps" in found["units_off"].text
    assert "2 of 3 embedding tables never left the range of their first values: a, b" in found["tables_unmoved"].text
    assert verdict_of(Evidence(None, "", idle=IdleUnits(96, 48, 1000), tables=2, unmoved=("a",))) == ()


def test_labels_of_several_tasks_have_findings_of_their_own():
    regression = RegressionCollector(0.0, 1.0)
    regression.add(np.arange(10.0), np.arange(10.0))
    both = TasksScores(4000, {"click": scores(), "amount": regression.scores()})
    found = verdict_of(Evidence(both, "test events"))
    assert [(one.kind, one.label) for one in found] == [("base_rate", "click"), ("base_rate", "amount")]
    assert "best constant" in found[1].text


def test_the_labels_of_the_first_pass_are_added_up():
    one = scores()
    history = [EpochScores(0, 0, ("a",), one), EpochScores(1, 0, ("b",), one), EpochScores(2, 1, ("a",), one)]
    found = first_pass_labels(history)
    assert (found.events, found.positives) == (8000, 2 * one.positives)
    assert first_pass_labels([]) is None
