"""The sums of predictions agree with the exact metrics of the same events, however they are divided."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.model.heads import BINARY, Head
from trainer.model.task_heads import TaskHeads
from trainer.run.history.columns import HistoryLayout
from trainer.run.history.figures import figures
from trainer.run.history.label_sums import label_sums

CLASSES = Head("multiclass", classes=5)
NUMBERS = Head("regression", center=3.0, scale=2.0)


def figures_of(head, *parts):
    """The figures of the sums of some parts, by name."""
    layout = HistoryLayout.of(head.each)
    rows = layout.no_rows()
    for labels, logits in parts:
        blank = dict.fromkeys((name for label, name in layout.names if label is None), 0.0)
        rows = np.concatenate([rows, layout.row(blank, label_sums(head, labels, logits))])
    found = figures(layout, layout.joined(rows, np.zeros(len(rows))))
    return {name: float(values[0]) for name, values in found.items()}


def exact(head, labels, logits):
    collector = head.collector()
    collector.add(labels, logits)
    return collector.scores()


def binary(seed, events, spread=2.0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(-1.0, spread, events).astype(np.float32)
    return (rng.random(events) < 1 / (1 + np.exp(-logits))).astype(np.float32), logits


def entropy_of(labels):
    """The loss of the base rate."""
    rate = float(labels.mean(dtype=np.float64))
    return -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))


@settings(max_examples=scaled(100))
@example(3303, 9, 13.547170538111576)
@given(st.integers(0, 2**31), st.integers(1, 60_000), st.floats(0.1, 20.0))
def test_binary_figures_are_those_of_the_exact_metrics(seed, events, spread):
    labels, logits = binary(seed, events, spread)
    found, wanted = figures_of(BINARY, (labels, logits)), exact(BINARY, labels, logits)
    assert found["log_loss"] == pytest.approx(wanted.log_loss, rel=1e-5, abs=1e-6)
    entropy, calibration = wanted.normalized_entropy, wanted.calibration
    if entropy is None:
        assert np.isnan(found["normalized_entropy"])
    else:
        base = entropy_of(labels)  # the loss is known to about 1e-6, of which the base rate's loss makes more
        assert found["normalized_entropy"] == pytest.approx(entropy, rel=1e-4, abs=2e-6 / base)
    assert (
        np.isnan(found["calibration"])
        if calibration is None
        else found["calibration"] == pytest.approx(calibration, rel=1e-4)
    )
    if wanted.auc is None:
        assert np.isnan(found["auc"])
    else:
        pairs = wanted.positives * (events - wanted.positives)
        assert found["auc"] == pytest.approx(wanted.auc, abs=2e-3 + 2 / pairs)


def test_logits_beyond_all_steps_count():
    labels, logits = np.array([0, 1, 1, 0], np.float32), np.array([-1e30, 1e30, -400.0, 16.0], np.float32)
    found = figures_of(BINARY, (labels, logits))
    assert found["log_loss"] == pytest.approx((400 + 16) / 4)
    assert found["auc"] == pytest.approx(
        (1 + 0.5 + 0.5 + 0.0) / 4
    )  # 1e30 and 16 are the same step, as are -1e30 and -400


@settings(max_examples=scaled(50))
@given(st.integers(0, 2**31), st.lists(st.integers(0, 3000), min_size=1, max_size=4))
def test_parts_join_to_the_loss_of_all_events(seed, sizes):
    parts = [binary(seed + k, size) for k, size in enumerate(sizes)]
    found = figures_of(BINARY, *parts)
    wanted = exact(BINARY, *(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    if wanted.events:
        assert found["log_loss"] == pytest.approx(wanted.log_loss, rel=1e-5)
    if wanted.normalized_entropy is not None:
        assert found["normalized_entropy"] == pytest.approx(wanted.normalized_entropy, rel=1e-4)
        assert found["calibration"] == pytest.approx(wanted.calibration, rel=1e-4)


def test_the_area_of_joined_parts_is_that_of_pairs_inside_parts():
    first, second = binary(1, 500), binary(2, 900)
    areas, pairs = [], []
    for labels, logits in (first, second):
        positives = int(labels.sum())
        areas.append(exact(BINARY, labels, logits).auc)
        pairs.append(positives * (len(labels) - positives))
    found = figures_of(BINARY, first, second)["auc"]
    assert found == pytest.approx(np.average(areas, weights=pairs), abs=1e-3)


@settings(max_examples=scaled(50))
@given(st.integers(0, 2**31), st.integers(1, 3000))
def test_figures_of_classes_are_those_of_the_exact_metrics(seed, events):
    rng = np.random.default_rng(seed)
    labels, logits = rng.integers(0, 5, events).astype(np.float32), rng.normal(size=(events, 5)).astype(np.float32)
    found, wanted = figures_of(CLASSES, (labels, logits)), exact(CLASSES, labels, logits)
    assert found["log_loss"] == pytest.approx(wanted.log_loss, rel=1e-6)
    assert found["accuracy"] == wanted.accuracy
    if wanted.normalized_entropy is not None:
        assert found["normalized_entropy"] == pytest.approx(wanted.normalized_entropy, rel=1e-6)


@settings(max_examples=scaled(50))
@given(st.integers(0, 2**31), st.integers(1, 3000))
def test_figures_of_numbers_are_those_of_the_exact_metrics(seed, events):
    rng = np.random.default_rng(seed)
    labels, outputs = rng.normal(3, 2, events).astype(np.float32), rng.normal(size=events).astype(np.float32)
    found, wanted = figures_of(NUMBERS, (labels, outputs)), exact(NUMBERS, labels, outputs)
    assert found["mean_squared_error"] == pytest.approx(wanted.mean_squared_error)
    assert found["mean_absolute_error"] == pytest.approx(wanted.mean_absolute_error)
    if wanted.normalized_error is not None:
        assert found["normalized_error"] == pytest.approx(wanted.normalized_error)


def test_each_label_has_its_own_events():
    head = TaskHeads((("click", BINARY), ("price", NUMBERS), ("shelf", CLASSES)))
    nan = np.nan
    labels = np.array([[1, nan, 2], [0, 5.0, nan], [nan, nan, 4]], np.float32)
    logits = np.arange(21, dtype=np.float32).reshape(3, 7) / 7
    found = figures_of(head, (labels, logits))
    click = exact(BINARY, labels[:2, 0], logits[:2, 0])
    assert found["click/log_loss"] == pytest.approx(click.log_loss, rel=1e-6)
    assert found["price/mean_absolute_error"] == pytest.approx(abs(logits[1, 1] * 2.0 + 3.0 - 5.0))
    assert found["shelf/accuracy"] == 0.5
    assert figures_of(head, (labels[:0], logits[:0])).keys() == found.keys()
