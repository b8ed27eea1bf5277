from __future__ import annotations

import pytest

from trainer.errors import ConfigError
from trainer.tables import (
    FTRL,
    SGD,
    Adagrad,
    AdagradMomentum,
    Adam,
    Constant,
    FeatureSpec,
    Normal,
    Quantization,
    RowWiseAdagrad,
    TableSpec,
    Uniform,
)
from trainer.tables.optimizers import current_learning_rate, slot_width
from trainer.tables.spec import tables_of


@pytest.mark.parametrize(
    "make",
    [
        lambda: SGD(0.0),
        lambda: SGD(float("nan")),
        lambda: SGD(float("inf")),
        lambda: Adagrad(-1.0),
        lambda: Adagrad(0.1, 0.0),
        lambda: Constant(1e39),
        lambda: Uniform(1.0, 0.0),
        lambda: Normal(0.0, -1.0),
        lambda: TableSpec("", 1, 1, SGD(1.0)),
        lambda: TableSpec("t", 0, 1, SGD(1.0)),
        lambda: TableSpec("t", 1, 0, SGD(1.0)),
        lambda: TableSpec("t", 1, 1, SGD(1.0), "max"),
        lambda: FeatureSpec("f", TableSpec("t", 1, 1, SGD(1.0)), -1),
        lambda: Quantization(1, 0.0, 1.0),
        lambda: Quantization(2, 1.0, 1.0),
        lambda: SGD(0.1, clip_weight_min=1.0, clip_weight_max=0.0),
        lambda: SGD(0.1, clip_gradient_max=1.0, use_gradient_accumulation=False),
        lambda: SGD(0.1, weight_decay_factor=-1.0),
        lambda: RowWiseAdagrad(0.1, epsilon=0.0),
        lambda: AdagradMomentum(0.1, beta2=1.5),
        lambda: Adam(0.1, beta_1=1.0),
        lambda: FTRL(0.1, learning_rate_power=0.5),
        lambda: FTRL(0.1, initial_accumulator=0.0),
    ],
)
def test_what_cannot_be_is_refused(make):
    with pytest.raises(ConfigError):
        make()


def test_tables_are_listed_once_in_order_of_first_use():
    one, two = TableSpec("one", 2, 2, SGD(1.0)), TableSpec("two", 2, 2, SGD(1.0))
    features = [FeatureSpec("a", two), FeatureSpec("b", one), FeatureSpec("c", two)]
    assert tables_of(features) == (two, one)


def test_name_clashes_are_refused():
    one = TableSpec("one", 2, 2, SGD(1.0))
    with pytest.raises(ConfigError, match="feature names must be unique"):
        tables_of([FeatureSpec("a", one), FeatureSpec("a", one)])
    with pytest.raises(ConfigError, match="different tables must"):
        tables_of([FeatureSpec("a", one), FeatureSpec("b", TableSpec("one", 3, 2, SGD(1.0)))])


def test_the_default_initializer_is_tensorflows():
    assert TableSpec("t", 2, 16, SGD(1.0)).effective_initializer == Normal(0.0, 0.25)


def test_slots_are_those_of_the_optimizer():
    assert [slot_width(one, 8) for one in (SGD(1.0), Adagrad(1.0), RowWiseAdagrad(1.0), Adam(1.0), FTRL(1.0))] == [
        0,
        8,
        1,
        16,
        16,
    ]
    assert [slot.name for slot in FTRL(1.0, initial_accumulator=0.5).slots] == ["accumulators", "linears"]
    assert [slot.initial for slot in FTRL(1.0, initial_accumulator=0.5).slots] == [0.5, 0.0]


def test_a_learning_rate_may_be_a_function():
    rates = iter([0.5, 0.25, float("nan")])
    optimizer = SGD(lambda: next(rates))
    assert [current_learning_rate(optimizer), current_learning_rate(optimizer)] == [0.5, 0.25]
    with pytest.raises(ConfigError, match="learning_rate must be a finite number >= 0"):
        current_learning_rate(optimizer)
