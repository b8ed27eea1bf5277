from __future__ import annotations

import pytest

from trainer.embedding import SGD, Adagrad, Constant, FeatureSpec, Normal, TableSpec, Uniform
from trainer.embedding.spec import tables_of
from trainer.errors import ConfigError


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
        lambda: TableSpec("t", 1, 1, SGD(1.0), "sqrtn"),
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
