"""The option ``hashed``: which tables it names, and how a budget is divided."""

from __future__ import annotations

import pytest

from trainer.errors import ConfigError
from trainer.model.heads import BINARY
from trainer.model.inputs import TypedInput, lay_out
from trainer.options.config import TrainConfig
from trainer.run.weights.one_engine import joined_options
from transforms.types import Dense, DType, Ragged

INPUTS = [
    TypedInput("user", Dense(DType.INT64, 2**63 - 1)),
    TypedInput("friends", Ragged(DType.INT64, 2**63 - 1)),
    TypedInput("place", Dense(DType.INT64, 10)),
]
SHARED = {"tables": {"user": "people", "friends": "people"}, "dim": 8}


def limits_of(**options):
    config = TrainConfig("run", **{**SHARED, **options})
    return joined_options(lay_out(INPUTS, config), config, BINARY).hashed


def test_an_input_stands_for_its_table():
    by_table, by_input = (limits_of(hashed={name: {"capacity": 50}}) for name in ("people", "friends"))
    assert by_table == by_input
    assert {name: one.capacity for name, one in by_table.items()} == {"people": 50}


def test_the_deep_part_and_the_linear_part_share_a_budget():
    alone = limits_of(hashed={"people": {"budget_mib": 1}})["people"].capacity
    both = limits_of(hashed={"people": {"budget_mib": 1}}, linear=True)
    assert both["people"].capacity == both["linear/people"].capacity < alone
    assert alone == (1 << 20) // (4 * 16 + 26)
    assert both["people"].capacity == (1 << 20) // (4 * 16 + 26 + 4 * 2 + 26)
    assert set(limits_of(hashed={"place": {"capacity": 1}}, deep=False, linear=True)) == {"linear/place"}


@pytest.mark.parametrize(
    ("hashed", "problem"),
    [
        ({"users": {"capacity": 5}}, "an option must name an embedded input, or its table"),
        ({"user": {"capacity": 5}, "friends": {"capacity": 5}}, "hashed must name each table once"),
        ({"user": {"capacity": 5}, "people": {"capacity": 5}}, "hashed must name each table once"),
    ],
)
def test_other_names_are_refused(hashed, problem):
    with pytest.raises(ConfigError, match=problem):
        limits_of(hashed=hashed)
