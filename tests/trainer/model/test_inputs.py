from __future__ import annotations

import pytest

from tests.trainer.synthetic import config
from trainer.errors import ConfigError, UntrainableInput
from trainer.model.inputs import TypedInput, lay_out
from trainer.tables import Adagrad
from transforms.types import Dense, DType, Ragged, Vector, Weighted

IDS = TypedInput("ids", Ragged(DType.INT64, 10))
USER = TypedInput("user", Dense(DType.INT64, 20))
PRICE = TypedInput("price", Dense(DType.FLOAT64))


def test_types_decide_the_use():
    numbers = [TypedInput(str(dtype), Dense(dtype)) for dtype in (DType.BOOL, DType.INT64, DType.FLOAT32)]
    layout = lay_out([PRICE, IDS, *numbers, USER], config("run"))
    assert layout.embedded == (IDS, USER)
    assert layout.dense == (PRICE, *numbers)
    assert [(f.name, f.table.vocabulary_size) for f in layout.features] == [("ids", 10), ("user", 20)]


@pytest.mark.parametrize(
    ("column_type", "remedy"),
    [
        (Dense(DType.STRING), ".hash_buckets(n)"),
        (Ragged(DType.STRING), ".hash_buckets(n)"),
        (Ragged(DType.INT64), ".hash_buckets(n)"),
        (Ragged(DType.FLOAT32), ".pool()"),
        (Dense(DType.TIMESTAMP), ".hour_of_day()"),
        (Vector(DType.STRING, 3), ".pad(size, 0)"),
        (Weighted(DType.INT64), ".hash_buckets(n)"),
        (Weighted(DType.FLOAT32), ".ids()"),
    ],
)
def test_other_types_are_refused_with_what_to_add(column_type, remedy):
    with pytest.raises(UntrainableInput) as caught:
        lay_out([IDS, TypedInput("odd", column_type)], config("run"))
    assert caught.value.where == "input odd"
    assert caught.value.value == str(column_type)
    assert remedy in caught.value.next_step


def test_weighted_lists_and_vectors_of_ids_are_embedded_and_vectors_of_numbers_are_dense():
    topics, slots = TypedInput("topics", Weighted(DType.INT64, 30)), TypedInput("slots", Vector(DType.INT64, 3, 40))
    numbers, counts = TypedInput("numbers", Vector(DType.FLOAT64, 4)), TypedInput("counts", Vector(DType.INT64, 2))
    layout = lay_out([topics, numbers, PRICE, slots, counts], config("run"))
    assert [(f.name, f.table.vocabulary_size) for f in layout.features] == [("topics", 30), ("slots", 40)]
    assert layout.dense == (numbers, PRICE, counts)
    assert (layout.dense_width, layout.is_weighted) == (7, True)
    assert not lay_out([slots, PRICE], config("run")).is_weighted


def test_options_by_input_are_honoured():
    options = config("run", dims={"user": 7}, combiners={"ids": "sum"}, embedding_learning_rate=0.5)
    ids, user = (feature.table for feature in lay_out([IDS, USER], options).features)
    assert (ids.dim, ids.combiner) == (4, "sum")
    assert (user.dim, user.combiner) == (7, "mean")
    assert isinstance(user.optimizer, Adagrad)
    assert user.optimizer.learning_rate == 0.5


def test_inputs_may_share_a_table():
    other = TypedInput("other", Dense(DType.INT64, 10))
    layout = lay_out([IDS, other], config("run", tables={"ids": "t", "other": "t"}))
    assert layout.features[0].table == layout.features[1].table
    with pytest.raises(ConfigError, match="different tables must"):
        lay_out([IDS, USER], config("run", tables={"ids": "t", "user": "t"}))


def test_options_about_unknown_inputs_are_refused():
    for option in ({"dims": {"usr": 3}}, {"combiners": {"price": "sum"}}, {"tables": {"x": "t"}}):
        with pytest.raises(ConfigError, match="must name an embedded input"):
            lay_out([USER, PRICE], config("run", **option))
    with pytest.raises(ConfigError, match="at least one input"):
        lay_out([], config("run"))


@pytest.mark.parametrize("column_type", [Ragged(DType.INT64), Ragged(DType.STRING), Weighted(DType.INT64)])
def test_only_errors_over_integers_suggest_modulo(column_type):
    with pytest.raises(UntrainableInput) as caught:
        lay_out([IDS, TypedInput("odd", column_type)], config("run"))
    assert ".hash_buckets(n)" in caught.value.next_step
    assert (".modulo(n)" in caught.value.next_step) == (column_type == Ragged(DType.INT64))
