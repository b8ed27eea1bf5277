"""Slots of rows that go on under another optimizer."""

from __future__ import annotations

import numpy as np
import pytest

from trainer.tables.batches import IdBatch
from trainer.tables.changed_optimizer import slots_of_other
from trainer.tables.engine import TableState
from trainer.tables.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam, RowWiseAdagrad, slot_width
from trainer.tables.routes.cpu_engine import CpuEngine
from trainer.tables.spec import FeatureSpec, TableSpec

OPTIMIZERS = (SGD(0.1), Adagrad(0.1, 0.5), RowWiseAdagrad(0.1, 0.25), AdagradMomentum(0.1, 0.9), Adam(0.1), FTRL(0.1),
              FTRL(0.3, -1.0, l1_regularization_strength=0.2, l2_regularization_strength=0.1, beta=1.0, multiply_linear_by_learning_rate=True))  # fmt: skip


def test_sums_of_squares_stay_and_all_else_begins_anew():
    weights = np.zeros((2, 2), np.float32)
    moments = np.array([[1, 3, 8, 8], [4, 4, 9, 9]], np.float32)
    rows = slots_of_other(AdagradMomentum(0.1), RowWiseAdagrad(0.1), weights, moments)
    assert rows.tolist() == [[2], [4]], "the mean of the columns"
    assert slots_of_other(RowWiseAdagrad(0.1), Adagrad(0.1), weights, rows).tolist() == [[2, 2], [4, 4]]
    assert slots_of_other(Adam(0.1), Adagrad(0.1, 0.5), weights, moments).tolist() == [[0.5, 0.5]] * 2
    assert slots_of_other(Adagrad(0.1), Adam(0.1), weights, rows.repeat(2, 1)).tolist() == [[0] * 4] * 2
    assert (
        slots_of_other(SGD(0.1), FTRL(0.1, initial_accumulator=0.3), weights, rows[:, :0]).tolist()
        == [[pytest.approx(0.3)] * 2 + [0] * 2] * 2
    )
    assert slots_of_other(Adagrad(0.1), Adagrad(0.2), weights, rows) is rows


def test_sums_that_fade_are_no_sums():
    slots = np.array([[7, 7, 1, 1]], np.float32)
    fading = AdagradMomentum(0.1, beta2=0.9)
    assert slots_of_other(fading, Adagrad(0.1, 0.5), np.zeros((1, 2)), slots).tolist() == [[0.5, 0.5]]


def test_no_sum_is_below_that_of_a_new_row():
    slots = np.zeros((1, 4), np.float32)
    assert slots_of_other(AdagradMomentum(0.1), Adagrad(0.1, 0.5), np.zeros((1, 2)), slots).tolist() == [[0.5, 0.5]]


def test_counted_updates_stay():
    before, after = Adam(0.1, admit_after=4), RowWiseAdagrad(0.1, 0.25, admit_after=4)
    slots = np.array([[1, 1, 2, 2, 3]], np.float32)
    assert slots_of_other(before, after, np.zeros((1, 2)), slots).tolist() == [[0.25, 3]]


@pytest.mark.parametrize("after", OPTIMIZERS)
@pytest.mark.parametrize("before", OPTIMIZERS)
def test_an_update_without_a_gradient_moves_no_weight(before, after):
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(5, 3)).astype(np.float32)
    slots = rng.random((5, slot_width(before, 3))).astype(np.float32)
    found = slots_of_other(before, after, weights, slots)
    if type(before) is type(after):
        return
    feature = FeatureSpec("user", TableSpec("user", 5, 3, after))
    engine = CpuEngine([feature], seed=0)
    engine.load_state({"user": TableState(np.arange(5), weights, np.ascontiguousarray(found))})
    ids = IdBatch(np.arange(5), np.arange(6)[None])
    engine.lookup(ids)
    engine.apply_gradients(ids, np.zeros((5, 3), np.float32))
    np.testing.assert_allclose(engine.state()["user"].weights, weights, rtol=1e-5)
    assert np.isfinite(engine.state()["user"].slots).all()
