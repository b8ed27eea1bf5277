"""Which inputs are sequences, and in which tables their rows are."""

from __future__ import annotations

import pytest

from tests.trainer.synthetic import config
from trainer.errors import ConfigError
from trainer.model.inputs import TypedInput, lay_out
from transforms.types import Dense, DType, Ragged

INPUTS = [
    TypedInput("history", Ragged(DType.INT64, 50)),
    TypedInput("price", Dense(DType.FLOAT32)),
    TypedInput("item", Dense(DType.INT64, 50)),
    TypedInput("ages", Ragged(DType.INT64, 9)),
]
DIN = {"length": 5, "encoder": "din", "target": "item", "gaps": "ages"}


def layout(sequences, **options):
    return lay_out(INPUTS, config("run", sequences=sequences, **options))


def test_a_sequence_shares_the_table_of_its_target() -> None:
    found = layout({"history": DIN}, dims={"item": 6, "ages": 6}, tables={"item": "items"})
    history, item, ages = found.features
    assert history.table is item.table
    assert (item.table.name, item.table.dim, history.width, item.width, ages.width) == ("items", 6, 30, 6, 30)
    (place,) = found.sequences
    assert (place.rows, place.target, place.gaps) == (0, 1, 2)
    assert (found.number_width, found.dense_width) == (1, 2)
    behind = found.encoded()
    assert [(one.name, one.width) for one in behind.features] == [("history", 6), ("item", 6)]
    assert [one.name for one in behind.embedded] == ["history", "item"]
    assert (behind.sequences, behind.dense_width, behind.encoded()) == ((), 1, behind)


def test_a_sequence_without_target_has_its_own_table() -> None:
    found = layout({"history": {"length": 3, "encoder": "sasrec", "heads": 2}}, dims={"history": 4})
    assert [(one.table.name, one.width) for one in found.features] == [("history", 12), ("item", 4), ("ages", 4)]


@pytest.mark.parametrize(
    ("sequences", "options", "message"),
    [
        ({"histroy": DIN}, {}, "an option must name an embedded input"),
        ({"history": {**DIN, "target": "price"}}, {}, "an option must name an embedded input"),
        ({"history": {**DIN, "gaps": "age"}}, {}, "an option must name an embedded input"),
        ({"history": {"length": 3, "encoder": "mean", "target": "ages"}}, {}, "must have the buckets of its target"),
        ({"history": DIN}, {"dims": {"history": 4}}, "must not describe the table of a sequence"),
        ({"history": DIN}, {"tables": {"history": "other"}}, "must not describe the table of a sequence"),
        ({"history": DIN}, {"dims": {"ages": 2}}, "gaps must have the width of their sequence"),
        ({"history": {"length": 3, "encoder": "sasrec", "heads": 3}}, {}, "heads must divide the width"),
        ({"history": DIN}, {"tower_modules": {"towers": [["history", "item", "ages"]]}}, "a model without tower modules"),
    ],
)  # fmt: skip
def test_what_does_not_agree_is_refused(sequences, options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        layout(sequences, **options)


def test_tables_of_a_function_are_bags() -> None:
    inputs = [TypedInput(name, Ragged(DType.INT64, 10)) for name in "ab"]
    own = "tests.trainer.model.own_tables:light"
    for sequences, message in (
        ({"b": {"length": 2, "encoder": "mean"}}, "an option must not describe an input that embeddings describes"),
        ({"c": {"length": 2, "encoder": "mean", "target": "b"}}, "must be bags in embeddings"),
    ):
        with pytest.raises(ConfigError, match=message):
            lay_out(
                [*inputs, TypedInput("c", Ragged(DType.INT64, 10))], config("run", sequences=sequences, embeddings=own)
            )
    shared = {"c": {"length": 2, "encoder": "din", "target": "a"}}
    found = lay_out(
        [inputs[0], inputs[1], TypedInput("c", Ragged(DType.INT64, 10))],
        config("run", sequences=shared, embeddings=own),
    )
    assert found.features[2].table is found.features[0].table
