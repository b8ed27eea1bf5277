from __future__ import annotations

import numpy as np
import pytest

from tests.trainer.synthetic import config
from trainer.errors import ConfigError
from trainer.model.dense_scaling import MOST_DEVIATIONS, Scaling, scaling_of
from trainer.model.inputs import TypedInput, lay_out
from transforms.types import Dense, DType, Vector

pytest.importorskip("tensorflow")

INPUTS = [
    TypedInput("price", Dense(DType.FLOAT32)),
    TypedInput("constant", Dense(DType.INT64)),
    TypedInput("pair", Vector(DType.FLOAT32, 2)),
]


def layout():
    return lay_out(INPUTS, config("run"))


def numbers(rows=4000, seed=1):
    random = np.random.default_rng(seed)
    columns = [random.lognormal(9, 2, rows), np.full(rows, 7.3e6), random.normal(3, 5, rows), random.random(rows)]
    return np.stack(columns, axis=1).astype(np.float32)


def test_every_number_comes_to_mean_zero_and_deviation_one():
    dense = numbers()
    scales = scaling_of(layout(), dense)
    assert [kind for name in ("price", "constant", "pair") for kind, _, _ in scales[name]] == [
        "log",
        "plain",
        "plain",
        "plain",
    ]
    scaled = Scaling(layout(), scales).scaled(dense).numpy()
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=0.02)
    np.testing.assert_allclose(scaled.std(axis=0)[[0, 2, 3]], 1, atol=0.02)
    assert not scaled[:, 1].any(), "what is constant says nothing"


def test_an_outlier_counts_as_eight_deviations():
    scales = scaling_of(layout(), numbers())
    outlier = np.full((1, 4), 1e30, np.float32)
    assert Scaling(layout(), scales).scaled(outlier).numpy().max() == MOST_DEVIATIONS


def test_without_scales_numbers_are_what_they_were():
    dense = numbers(10)
    assert Scaling(layout(), {}).scaled(dense) is dense


@pytest.mark.parametrize(
    ("scales", "where"),
    [({"prise": (("plain", 0.0, 1.0),)}, "dense_scaling"), ({"pair": (("plain", 0.0, 1.0),)}, "pair")],
)
def test_scales_that_fit_no_input_are_refused(scales, where):
    with pytest.raises(ConfigError) as caught:
        Scaling(layout(), scales)
    assert caught.value.where == where
