from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.synthetic import config
from trainer.errors import ConfigError, TornCheckpoint
from trainer.model.heads import BINARY, Head, LabelFigures
from trainer.model.scores import read_scores
from trainer.model.task_heads import TaskHeads, check_task_options, heads_of, initial_logits, read_head
from trainer.options.document_field import DocumentField
from transforms.analysis.target import Target
from transforms.derived_documents import document_of

NAN = float("nan")
HEADS = TaskHeads(
    (("click", BINARY), ("grade", Head("multiclass", 3)), ("price", Head("regression", center=2.0, scale=0.5)))
)
CLASSES = TaskHeads((("click", BINARY), ("buy", BINARY), ("grade", Head("multiclass", 3))))


def test_a_target_of_several_labels_gives_their_heads():
    target = Target.of_tasks([("click", Target("clicked")), ("grade", Target("stars", None, "multiclass", 3))])
    assert heads_of(target) == TaskHeads((("click", BINARY), ("grade", Head("multiclass", 3))))
    assert heads_of(Target("clicked")) == BINARY


@pytest.mark.parametrize("head", [BINARY, HEADS])
def test_the_document_round_trips(head):
    assert read_head(DocumentField(json.loads(json.dumps(head.to_document())), "head")) == head


@pytest.mark.parametrize("tasks", [[["a", BINARY.to_document()]], [["a", BINARY.to_document()]] * 2, [["a"], ["b"]]])
def test_heads_that_no_model_has_are_refused(tasks):
    with pytest.raises(TornCheckpoint):
        read_head(DocumentField({"tasks": tasks}, "head"))


labels_of_events = st.lists(
    st.tuples(st.sampled_from([NAN, 0.0, 1.0]), st.sampled_from([NAN, 0.0, 1.0]), st.sampled_from([NAN, 0.0, 1.0, 2.0])),
    min_size=1, max_size=20,
)  # fmt: skip


@given(labels_of_events)
def test_codes_of_classes_are_equal_exactly_for_equal_labels(events):
    codes = CLASSES.codes(np.array(events, np.float32))
    texts = [str(event) for event in events]
    for i, one in enumerate(texts):
        for j, other in enumerate(texts):
            assert (codes[i] == codes[j]) == (one == other)


def test_codes_of_numbers_are_hashes():
    rng = np.random.default_rng(0)
    labels = np.stack([(rng.random(1000) < 0.5), rng.integers(0, 3, 1000), rng.normal(size=1000)], axis=1).astype(
        np.float32
    )
    labels[::7, 2] = NAN
    codes = HEADS.codes(labels)
    assert codes.dtype == np.float32
    assert np.isfinite(codes).all()
    np.testing.assert_array_equal(codes, HEADS.codes(labels.copy()))
    moved = labels.copy()
    moved[:, 1] = (moved[:, 1] + 1) % 3
    assert (HEADS.codes(moved) != codes).all()


@given(labels_of_events, st.integers(1, 7))
def test_figures_are_over_the_events_that_have_a_label(events, size):
    labels = np.array(events, np.float32)
    logits = np.random.default_rng(1).normal(size=(len(labels), CLASSES.width)).astype(np.float32)
    whole = CLASSES.collector()
    for start in range(0, len(labels), size):
        whole.add(labels[start : start + size], logits[start : start + size])
    scores = whole.scores()
    assert scores.events == len(labels)
    for t, (name, head) in enumerate(CLASSES.each):
        known = ~np.isnan(labels[:, t])
        alone = head.collector()
        alone.add(labels[known, t], CLASSES.logits_of(name, logits)[known])
        assert scores.tasks[name] == alone.scores()
    restored = CLASSES.collector()
    restored.load(whole.arrays())
    assert restored.scores() == scores
    assert read_scores(DocumentField(json.loads(json.dumps(document_of(scores))), "scores")) == scores


def test_predictions_of_other_tasks_are_refused():
    arrays = CLASSES.collector().arrays()
    for damaged in (
        {**arrays, "other/labels": arrays["click/labels"]},
        {k: v for k, v in arrays.items() if k != "events"},
    ):
        with pytest.raises(TornCheckpoint):
            CLASSES.collector().load(damaged)


def test_each_regression_is_fitted_to_its_own_labels():
    figures = LabelFigures(4, tasks=(LabelFigures(4), LabelFigures(3), LabelFigures(2, 0, 10.0, 2.0)))
    fitted = HEADS.fitted(figures)
    assert fitted.each[2][1] == Head("regression", center=10.0, scale=2.0)
    labels = np.array([[1.0, 2.0, 14.0], [NAN, NAN, NAN]], np.float32)
    np.testing.assert_array_equal(fitted.targets(labels), np.array([[1.0, 2.0, 2.0], [NAN, NAN, NAN]], np.float32))


def test_options_of_tasks_name_labels_of_the_model():
    good = config("run", task_weights={"click": 2.0}, initial_biases={"buy": -1.0}, task_mlp=(4,))
    check_task_options(good, CLASSES)
    assert initial_logits(good, CLASSES) == (0.0, -1.0, 0.0, 0.0, 0.0)
    for options in ({"task_weights": {"clik": 1.0}}, {"initial_biases": {"sale": 1.0}}):
        with pytest.raises(ConfigError, match="must name a label"):
            check_task_options(config("run", **options), CLASSES)
    for options in ({"task_weights": {"click": 1.0}}, {"task_mlp": (4,)}):
        with pytest.raises(ConfigError):
            check_task_options(config("run", **options), BINARY)
    assert initial_logits(replace(good, initial_bias=0.5), BINARY) == (0.5,)
