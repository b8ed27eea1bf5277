from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.errors import BadLabel, ConfigError, NonFiniteLoss, TornCheckpoint
from trainer.model.calibration import (
    LEAST_RARER,
    MOST_POINTS,
    TABLE_ROWS,
    Calibration,
    calibrated,
    fit,
    fit_labels,
    pool_adjacent_violators,
)
from trainer.model.heads import Head
from trainer.model.metrics import calibration, log_loss, sigmoid
from trainer.model.task_heads import TaskHeads
from trainer.options.config import CALIBRATIONS
from trainer.options.document_field import DocumentField

FITTED = CALIBRATIONS[1:]


def overconfident(events=20_000, seed=0):
    """Labels whose true log odds are half of the logits, minus one."""
    draw = np.random.default_rng(seed)
    logits = draw.normal(-2, 2, events).astype(np.float32)
    return (draw.random(events) < sigmoid(0.5 * logits.astype(np.float64) - 1)).astype(np.float32), logits


@pytest.mark.parametrize("kind", FITTED)
def test_overconfident_logits_are_corrected_on_other_events(kind):
    found = fit(kind, *overconfident())
    labels, logits = overconfident(seed=1)
    before, after = sigmoid(logits), sigmoid(found.apply(logits))
    assert calibration(labels, before) > 1.2
    assert calibration(labels, after) == pytest.approx(1, abs=0.04)
    true = log_loss(labels, sigmoid(0.5 * logits.astype(np.float64) - 1))
    assert log_loss(labels, after) < true + 0.002 < log_loss(labels, before)


def test_platt_equals_scikit_learn():
    from sklearn.calibration import _SigmoidCalibration

    labels, logits = overconfident(3_000)
    theirs = _SigmoidCalibration().fit(logits.astype(np.float64), labels).predict(np.linspace(-6, 6, 50))
    assert np.allclose(sigmoid(fit("platt", labels, logits).apply(np.linspace(-6, 6, 50))), theirs, atol=2e-5)


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=60))
def test_pools_equal_scikit_learn(pairs):
    from sklearn.isotonic import IsotonicRegression

    x, y = (np.array(part, np.float64) for part in zip(*sorted(pairs), strict=True))
    distinct, group = np.unique(x, return_inverse=True)
    counts = np.bincount(group).astype(np.float64)
    means, starts = pool_adjacent_violators(np.bincount(group, weights=y) / counts, counts)
    ours = means[np.searchsorted(starts, np.arange(len(distinct)), side="right") - 1]
    assert np.allclose(ours, IsotonicRegression().fit(x, y).predict(distinct))
    assert (np.diff(means) > 0).all()


def test_isotonic_follows_scikit_learn_through_the_middle_of_pools():
    from sklearn.isotonic import IsotonicRegression

    labels, logits = overconfident(50_000)
    middle = np.quantile(logits, np.linspace(0.05, 0.95, 40))
    theirs = IsotonicRegression().fit(logits, labels).predict(middle)
    assert np.abs(sigmoid(fit("isotonic", labels, logits).apply(middle)) - theirs).max() < 0.03


def test_the_table_is_the_map():
    """What exports have: the formula is that of the SavedModel's graph."""
    labels, logits = overconfident(5_000)
    x = np.concatenate([np.linspace(-40, 40, 999), [0.0, 1e30, -1e30]])
    for found in (*(fit(kind, labels, logits) for kind in FITTED), Calibration()):
        starts, images, slopes = found.table().T
        at = np.searchsorted(starts, x, side="right")
        base = np.maximum(at - 1, 0)
        assert (images[base] + slopes[at] * (x - starts[base])).tobytes() == found.apply(x).tobytes()
        assert found.table().shape == (TABLE_ROWS, 3)


def test_each_binary_label_of_several_has_its_map():
    labels, logits = overconfident(3_000)
    head = TaskHeads((("click", Head()), ("price", Head("regression")), ("buy", Head())))
    known = np.arange(3_000) % 3 > 0
    every = np.stack([labels, logits, np.where(known, 1 - labels, np.nan)], axis=1)
    outputs = np.stack([logits, logits, -logits], axis=1)
    found = fit_labels("platt", head, every, outputs)
    assert found == {"click": fit("platt", labels, logits), "buy": fit("platt", 1 - labels[known], -logits[known])}
    applied = calibrated(head, found, outputs)
    assert (applied[:, 0] == found["click"].apply(logits)).all()
    assert (applied[:, 1] == logits).all()
    assert (applied[:, 2] == found["buy"].apply(-logits)).all()
    assert calibrated(head, {}, outputs) is outputs
    assert fit_labels("platt", Head("regression"), labels, logits) == {}


@given(
    st.sampled_from(FITTED),
    st.integers(0, 2**32 - 1),
    st.floats(0.01, 0.99),
    st.sampled_from([1e-6, 1.0, 300.0]),
    st.integers(1, 60),
)
def test_a_map_keeps_the_order_and_is_read_back(kind, seed, rate, width, values):
    draw = np.random.default_rng(seed)
    labels = np.concatenate([np.repeat([0.0, 1.0], LEAST_RARER), draw.random(400) < rate])
    logits = draw.normal(scale=width, size=values)[draw.integers(0, values, len(labels))]
    found = fit(kind, labels, logits)
    assert found.kind == kind
    assert found == fit(kind, labels, logits)
    assert len(found.points) <= MOST_POINTS
    x = np.sort(np.concatenate([logits, draw.normal(scale=3 * width, size=100)]))
    applied = found.apply(x)
    assert np.isfinite(applied).all()
    assert (np.diff(applied) >= -1e-9 * np.abs(applied[1:])).all()
    document = json.loads(json.dumps(found.to_document()))
    assert Calibration.read(DocumentField(document, "calibration")) == found


def test_a_pool_of_few_events_is_no_rate_of_its_own():
    """Labels without any relation: the ascending fit of the ends is noise."""
    draw = np.random.default_rng(2)
    labels, logits = (draw.random(600) < 0.4).astype(np.float64), draw.normal(size=600)
    found = sigmoid(fit("isotonic", labels, logits).apply(np.linspace(-2, 2, 9)))
    assert 0.15 < found.min() < found.max() < 0.7
    assert len(fit("isotonic", labels, logits).points) < 12


@pytest.mark.parametrize("kind", FITTED)
def test_logits_that_say_nothing_give_the_rate(kind):
    draw = np.random.default_rng(3)
    labels, logits = (draw.random(5_000) < 0.1).astype(np.float32), np.zeros(5_000, np.float32)
    assert sigmoid(fit(kind, labels, logits).apply(logits))[0] == pytest.approx(labels.mean(), abs=1e-3)
    # Logits that rank labels the wrong way keep their order: the map is nearly level at the rate.
    wrong = np.where(labels == 1, -3.0, 3.0) + draw.normal(size=5_000)
    applied = fit(kind, labels, wrong).apply(np.array([-3.0, 3.0]))
    assert applied[0] < applied[1]
    assert sigmoid(applied) == pytest.approx(labels.mean(), abs=0.01)


@pytest.mark.parametrize("kind", FITTED)
def test_few_events_of_the_rarer_label_fit_nothing(kind):
    labels = np.zeros(1_000)
    labels[: LEAST_RARER - 1] = 1
    logits = np.linspace(-1, 1, 1_000, dtype=np.float32)
    found = fit(kind, labels, logits)
    assert found == Calibration("none", 1_000, LEAST_RARER - 1)
    assert (found.apply(logits) == logits).all()
    labels[LEAST_RARER] = 1
    assert fit(kind, labels, logits).kind == kind
    assert fit(kind, 1 - labels, logits).rarer == LEAST_RARER
    assert fit("none", labels, logits).kind == "none"


def test_what_cannot_be_fitted_is_refused():
    with pytest.raises(ConfigError, match="calibration must be a known kind"):
        fit("beta", np.zeros(1), np.zeros(1))
    with pytest.raises(BadLabel):
        fit("platt", np.array([0, 2]), np.zeros(2))
    with pytest.raises(NonFiniteLoss):
        fit("platt", np.array([0, 1]), np.array([0, math.inf]))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "beta"},
        {"kind": "none"},
        {"kind": "platt"},
        {"rarer": 10_001},
        {"points": [[0.0, 0.0], [0.0, 1.0]]},
        {"points": [[0.0, 1.0], [1.0, 1.0]]},
        {"points": [[-1.7e308, 0.0], [1.7e308, 1.0]]},
        {"points": [[float(k), float(k)] for k in range(MOST_POINTS + 1)]},
        {"points": [[0.0]]},
        {"points": []},
        {"slopes": [0.0, 1.0]},
        {"slopes": [1.0, -1.0]},
        {"slopes": [1.0]},
    ],
)
def test_a_map_that_no_fit_gives_is_refused(change):
    sound = Calibration("isotonic", 10_000, 100, ((0.0, -1.0), (1.0, 0.5)), 0.5, 0.5).to_document()
    with pytest.raises(TornCheckpoint):
        Calibration.read(DocumentField({**sound, **change}, "calibration"))
