from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.errors import TornCheckpoint
from trainer.model.heads import BINARY, Head, LabelFigures, head_of
from trainer.model.scores import read_scores
from trainer.options.document_field import DocumentField
from transforms.analysis.target import Target
from transforms.derived_documents import document_of

HEADS = (BINARY, Head("multiclass", 3), Head("regression", center=2.0, scale=0.5))


def test_a_target_gives_its_head():
    assert head_of(Target("clicked")) == BINARY
    assert head_of(Target("grade", None, "multiclass", 5)) == Head("multiclass", 5)
    assert head_of(Target("price", None, "regression")) == Head("regression")


@pytest.mark.parametrize("head", HEADS)
def test_the_document_round_trips(head):
    assert Head.read(DocumentField(json.loads(json.dumps(head.to_document())), "head")) == head


@pytest.mark.parametrize("change", [{"task": "ranking"}, {"classes": 1}, {"scale": 0.0}, {"scale": -1.0}])
def test_a_head_that_no_training_has_is_refused(change):
    with pytest.raises(TornCheckpoint):
        Head.read(DocumentField({**BINARY.to_document(), **change}, "head"))


def test_a_regression_is_fitted_to_its_labels():
    fitted = Head("regression").fitted(LabelFigures(4, 0, 10.0, 2.0))
    labels = np.array([8.0, 10.0, 14.0], np.float32)
    assert fitted.targets(labels).tolist() == [-1.0, 0.0, 2.0]
    assert fitted.predictions(fitted.targets(labels)).tolist() == [8.0, 10.0, 14.0]
    assert Head("regression").fitted(LabelFigures(4, 0, 10.0, 0.0)).scale == 1.0  # one label only
    assert BINARY.fitted(LabelFigures(4, 0, 0.5, 0.5)) == BINARY


def test_predictions_are_probabilities():
    logits = np.array([[0.0, 0.0, 0.0], [1000.0, 0.0, -1000.0]], np.float32)
    assert np.allclose(HEADS[1].predictions(logits), [[1 / 3] * 3, [1, 0, 0]])
    assert HEADS[1].predictions(np.zeros((0, 3), np.float32)).shape == (0, 3)
    assert BINARY.predictions(np.array([0.0])).tolist() == [0.5]


@given(st.lists(st.integers(0, 2), max_size=30), st.integers(1, 7), st.integers(0, 2**32 - 1))
def test_figures_do_not_depend_on_batches(labels, size, seed):
    own = np.array(labels, np.float32)
    for head in HEADS:
        values = own if head.task == "multiclass" else (own > 0).astype(np.float32)
        logits = np.random.default_rng(seed).normal(size=(len(own), head.width)).astype(np.float32)
        logits = logits if head.width > 1 else logits[:, 0]
        whole, parts = head.collector(), head.collector()
        whole.add(values, logits)
        for start in range(0, len(own), size):
            parts.add(values[start : start + size], logits[start : start + size])
        scores = whole.scores()
        assert parts.scores() == scores
        assert read_scores(DocumentField(json.loads(json.dumps(document_of(scores))), "scores")) == scores


def test_figures_against_the_slow_way():
    collector = HEADS[1].collector()
    labels, logits = [0, 1, 2, 2], [[2.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 3.0], [1.0, 1.0, 1.0]]
    collector.add(np.array(labels), np.array(logits))
    losses = [-math.log(math.exp(row[k]) / sum(map(math.exp, row))) for k, row in zip(labels, logits, strict=True)]
    scores = collector.scores()
    assert scores.accuracy == 0.5  # of three equal logits the lowest class counts
    assert scores.log_loss == pytest.approx(sum(losses) / 4)
    assert scores.normalized_loss == pytest.approx(sum(losses) / 4 / (2 * 0.25 * math.log(4) + 0.5 * math.log(2)))
    numbers = HEADS[2].collector()
    numbers.add(np.array([1.0, 2.0, 4.0]), np.array([0.0, 0.0, 2.0]))  # predicts 2, 2 and 3
    found = numbers.scores()
    assert (found.mean_absolute_error, found.mean_squared_error) == pytest.approx((2 / 3, 2 / 3))
    assert found.normalized_loss == pytest.approx((2 / 3) / np.var([1.0, 2.0, 4.0]))
    constant = HEADS[2].collector()
    constant.add(np.ones(3), np.zeros(3))
    assert constant.scores().normalized_loss is None
