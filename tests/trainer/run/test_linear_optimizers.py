"""The optimizers of the linear part: the formula of the Newton step, and what it is for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from trainer.model.inputs import TypedInput, lay_out
from trainer.options.config import TrainConfig
from trainer.run.reading.batches import make_batches
from trainer.run.reading.columns import LABEL_COLUMN, decode
from transforms.types import Dense, DType

pytest.importorskip("tensorflow")

from trainer.run.weights.run_state import build_weights

INPUTS = (TypedInput("a", Dense(DType.INT64, buckets=40)), TypedInput("x", Dense(DType.FLOAT32)))
NEWTON = {"linear_optimizer": "newton", "dense_optimizer": "newton", "linear_learning_rate": 1.0, "dense_learning_rate": 1.0,
          "linear_initial_accumulator": 5.0}  # fmt: skip
QUICK = {"linear_learning_rate": 0.4, "dense_learning_rate": 0.01}


def drawn(rows, seed=0, weights=1):
    """Events of an id and a number, and the log odds of their labels."""
    effects = np.random.default_rng(weights).normal(size=40)
    source = np.random.default_rng(seed)
    a, x = source.integers(0, 40, rows), source.normal(size=rows).astype(np.float32)
    odds = 0.6 * effects[a] + 0.7 * x - 1
    labels = (source.random(rows) < 1 / (1 + np.exp(-odds))).astype(np.float32)
    layout = lay_out(INPUTS, TrainConfig("run"))
    return decode(pa.table({"a": a, "x": x, LABEL_COLUMN: labels}), layout, f"part-{seed}"), a, x, labels, odds


def model_of(**options):
    config = TrainConfig("run", deep=False, linear=True, batch_rows=64, initial_bias=-1.0, **options)
    layout = lay_out(INPUTS, config)
    return build_weights(layout, config), layout


def test_a_newton_step_is_the_gradient_by_the_sum_of_its_squares():
    part, a, x, labels, _ = drawn(640)
    model, layout = model_of(**NEWTON)
    rows, bias, kernel = np.zeros(40), -1.0, 0.0
    row_squares, dense_squares = np.full(40, 5.0), np.full(2, 5.0)
    for batch in make_batches([part], layout, batch_rows=64):
        model.train(batch)
    for first in range(0, 640, 64):
        ids, numbers = a[first : first + 64], x[first : first + 64]
        errors = 1 / (1 + np.exp(-(rows[ids] + kernel * numbers + bias))) - labels[first : first + 64]
        by_row, by_dense = np.bincount(ids, errors, 40), np.array([errors.sum(), errors @ numbers])
        row_squares += by_row**2
        dense_squares += by_dense**2
        rows -= by_row / row_squares
        bias, kernel = np.array([bias, kernel]) - by_dense / dense_squares
    (logits,) = [model.predict(one) for one in make_batches([drawn(64, 1)[0]], layout, batch_rows=64)]
    _, ids, numbers, _, _ = drawn(64, 1)
    np.testing.assert_allclose(logits, rows[ids] + kernel * numbers + bias, rtol=1e-4, atol=1e-5)


def excess(options, *, newest):
    """The loss of later events above the best possible, after four passes over 2,000 events and four over the newest 200."""
    model, layout = model_of(**options)
    older, late = drawn(2_000)[0], drawn(200, 2)[0]
    for part in [older] * 4 + [late] * (4 if newest else 0):
        for batch in make_batches([part], layout, batch_rows=64):
            model.train(batch)
    part, _, _, _, odds = drawn(6_400, 3)
    logits = np.concatenate([model.predict(one) for one in make_batches([part], layout, batch_rows=64)])
    rate = 1 / (1 + np.exp(-odds))
    return float(np.mean(np.logaddexp(0, logits) - rate * logits - np.logaddexp(0, odds) + rate * odds))


@pytest.mark.medium
def test_a_small_log_is_learned_without_the_noise_of_its_newest_events():
    """Steps of a fixed size fit the newest share, which is trained several times in a row."""
    quick, newton = (excess(options, newest=True) for options in (QUICK, NEWTON))
    assert newton < 0.8 * quick
    assert quick > 1.5 * excess(QUICK, newest=False)
    assert newton < 1.2 * excess(NEWTON, newest=False)
