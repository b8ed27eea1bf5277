from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trainer.errors import BadLabel
from trainer.model.metrics import Collector, auc, calibration, log_loss, normalized_entropy, sigmoid
from trainer.model.scores import read_scores
from trainer.options.document_field import DocumentField
from transforms.derived_documents import document_of

events = st.lists(st.tuples(st.integers(0, 1), st.integers(-6, 6)), min_size=1, max_size=60)


@given(events)
def test_auc_is_the_chance_that_a_positive_outranks_a_negative(pairs):
    labels, scores = (np.array(column) for column in zip(*pairs, strict=True))
    positives, negatives = scores[labels == 1], scores[labels == 0]
    if not len(positives) or not len(negatives):
        assert math.isnan(auc(labels, scores))
        return
    wins = (positives[:, None] > negatives).mean() + 0.5 * (positives[:, None] == negatives).mean()
    assert auc(labels, scores) == pytest.approx(wins, abs=1e-12)


@given(events)
def test_figures_equal_scikit_learn(pairs):
    metrics = pytest.importorskip("sklearn.metrics")
    labels, logits = (np.array(column) for column in zip(*pairs, strict=True))
    assume(0 < labels.sum() < len(labels))
    probabilities = sigmoid(logits)
    assert auc(labels, logits) == pytest.approx(metrics.roc_auc_score(labels, logits), abs=1e-12)
    assert log_loss(labels, probabilities) == pytest.approx(metrics.log_loss(labels, probabilities), rel=1e-9)
    constant = np.full(len(labels), labels.mean())
    expected = metrics.log_loss(labels, probabilities) / metrics.log_loss(labels, constant)
    assert normalized_entropy(labels, probabilities) == pytest.approx(expected, rel=1e-9)


@given(events, st.lists(st.integers(0, 60), max_size=5))
def test_cutting_into_batches_changes_nothing(pairs, cuts):
    labels, logits = (np.array(column) for column in zip(*pairs, strict=True))
    whole, parts = Collector(), Collector()
    whole.add(labels, logits)
    for piece in np.split(np.arange(len(labels)), sorted(min(cut, len(labels)) for cut in cuts)):
        other = Collector()
        other.add(labels[piece], logits[piece])
        parts.merge(other)
    assert parts.scores() == whole.scores()


def test_knowing_only_the_rate_scores_one():
    labels = np.array([0, 0, 0, 1])
    assert normalized_entropy(labels, np.full(4, 0.25)) == pytest.approx(1.0)


@given(events)
def test_calibration_is_what_is_predicted_over_what_is_observed(pairs):
    labels, logits = (np.array(column) for column in zip(*pairs, strict=True))
    probabilities = sigmoid(logits)
    found = calibration(labels, probabilities)
    if not labels.sum():
        assert math.isnan(found)
        return
    assert found == pytest.approx(sum(probabilities.tolist()) / labels.sum(), rel=1e-12)
    assert calibration(labels, np.full(len(labels), labels.mean())) == pytest.approx(1.0)


def test_scores_of_an_earlier_release_have_no_calibration():
    collector = Collector()
    collector.add(np.array([0, 1, 1]), np.array([-1.0, 0.5, 2.0]))
    document = document_of(collector.scores())
    assert read_scores(DocumentField(document, "scores")) == collector.scores()
    del document["calibration"]
    assert read_scores(DocumentField(document, "scores")).calibration is None


def test_certainty_that_is_wrong_is_finite():
    assert log_loss(np.array([1, 0]), np.array([0.0, 1.0])) == pytest.approx(-math.log(1e-15), rel=1e-3)
    np.testing.assert_allclose(sigmoid(np.array([-1000.0, 0.0, 1000.0])), [0.0, 0.5, 1.0])


def test_undefined_figures_are_none_and_bad_labels_refused():
    empty = Collector().scores()
    assert (empty.events, empty.auc, empty.log_loss, empty.normalized_entropy, empty.calibration) == (0, *[None] * 4)
    single = Collector()
    single.add(np.array([1.0]), np.array([0.0]))
    assert single.scores().auc is None
    assert single.scores().log_loss == pytest.approx(math.log(2))
    with pytest.raises(BadLabel) as caught:
        auc(np.array([0, 2]), np.array([0.1, 0.2]))
    assert caught.value.value == 2
