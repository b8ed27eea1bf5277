"""Towers: every feature once, balanced, and the interactions that each strategy wants."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings

from tests.support.examples import scaled
from tests.trainer.planning.towers.tower_plans import features_of, interactions_of, tower_plans
from trainer.errors import ConfigError
from trainer.planning.towers.partitioner import make_towers
from trainer.planning.towers.tower_plan import TowerFeature, TowerPlan, check_hosts
from trainer.planning.towers.tower_report import report_towers


def blocks(groups: int, size: int) -> np.ndarray:
    """Interactions of 0.9 within blocks of features, 0.1 between them; feature k is of block k modulo ``groups``."""
    block = np.arange(groups * size) % groups
    return np.where(block[:, None] == block[None], 0.9, 0.1)


def test_coherent_towers_hold_the_features_that_interact():
    plan = make_towers(features_of(12), 3, strategy="coherent", interactions=interactions_of(blocks(3, 4)))
    assert {frozenset(int(name[1:]) % 3 for name in tower) for tower in plan.towers} == {
        frozenset({0}),
        frozenset({1}),
        frozenset({2}),
    }
    report = report_towers(plan)
    assert (report.inside, report.between) == (pytest.approx(0.9), pytest.approx(0.1))


def test_diverse_towers_divide_the_features_that_interact():
    plan = make_towers(features_of(12), 3, strategy="diverse", interactions=interactions_of(blocks(3, 4)))
    report = report_towers(plan)
    assert report.inside < report.between
    strided = make_towers(features_of(12), 3, strategy="strided", interactions=interactions_of(blocks(3, 4)))
    assert report.inside < report_towers(strided).inside, "the stride is that of the blocks"


def test_strided_towers_take_features_in_turns():
    plan = make_towers(features_of(7), 3, strategy="strided")
    assert plan.towers == (("f0", "f3", "f6"), ("f1", "f4"), ("f2", "f5"))


@pytest.mark.medium
@given(tower_plans())
@settings(max_examples=scaled(40))
def test_every_feature_is_in_one_tower_with_its_table(plan):
    assert sorted(name for tower in plan.towers for name in tower) == sorted(one.name for one in plan.features)
    assert all(plan.towers)
    owner = plan.tower_of()
    for one in plan.features:
        assert {owner[other.name] for other in plan.features if other.table == one.table} == {owner[one.name]}
    alone = len({one.table for one in plan.features}) == len(plan.features)
    if plan.balance == "features" and alone:
        sizes = [len(tower) for tower in plan.towers]
        assert max(sizes) <= max(-(-len(plan.features) // len(sizes)), plan.largest * len(plan.features) / len(sizes))
        assert plan.largest > 1 or max(sizes) - min(sizes) <= 1
    again = make_towers(plan.features, len(plan.towers), strategy=plan.strategy, balance=plan.balance, seed=plan.seed,
                        interactions=plan.interactions, source=plan.source, agreement=plan.agreement, largest=plan.largest)  # fmt: skip
    assert again == plan
    report = report_towers(plan)
    assert sum(one.table_bytes for one in report.towers) == sum({one.table: one.table_bytes for one in plan.features}.values())  # fmt: skip
    assert plan.imbalance >= 1 - 1e-9


def test_towers_by_bytes_are_more_even_than_by_features():
    features = tuple(TowerFeature(f"f{k}", f"t{k}", 10 ** (3 + k % 4), 1.0) for k in range(24))
    known = interactions_of(np.random.default_rng(0).uniform(0, 1, (24, 24)))
    largest = {}
    for balance in ("features", "bytes"):
        plan = make_towers(features, 3, strategy="diverse", balance=balance, interactions=known)
        largest[balance] = max(one.table_bytes for one in report_towers(plan).towers)
    assert largest["bytes"] < largest["features"]


@pytest.mark.parametrize(
    ("count", "towers", "options", "problem"),
    [
        (3, 4, {}, "at most that of the features"),
        (3, 0, {}, "at least 1"),
        (3, -1, {}, "at least 1"),
        (3, 2, {"strategy": "coherent"}, "needs interactions"),
        (3, 2, {"strategy": "other"}, "needs interactions"),
        (3, 2, {"balance": "other"}, "a known quantity"),
        (3, 2, {"interactions": interactions_of(np.eye(4))}, "list the features of the towers"),
    ],
)
def test_bad_input_is_refused(count, towers, options, problem):
    with pytest.raises(ConfigError, match=problem):
        make_towers(features_of(count), towers, **{"strategy": "strided", **options})


def test_more_towers_than_tables_are_refused():
    with pytest.raises(ConfigError, match="at most that of the tables"):
        make_towers(features_of(4, shared=2), 3, strategy="strided")


FEATURES = features_of(3)


@pytest.mark.parametrize(
    ("towers", "problem"),
    [
        ((("f0", "f1"),), "each feature of ids must be in a tower(?s:.*)f2 in none"),
        ((("f0", "f1"), ("f1", "f2")), "a feature must be in one tower(?s:.*)f1"),
        ((("f0", "f1"), ("f2", "other")), "a tower must name features of ids(?s:.*)other"),
        ((("f0", "f1", "f2"), ()), "a tower must be a list of names"),
        ((("f1", "f0"), ("f2",)), "in the model's order"),
        ((), "at least 1"),
        ((("f0",), ("f1",), ("f2",), ()), "at most that of the features"),
    ],
)
def test_towers_that_are_no_partition_are_refused(towers, problem):
    with pytest.raises(ConfigError, match=problem):
        TowerPlan(FEATURES, towers, "strided", "features")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"features": (*FEATURES, FEATURES[0])}, "must be distinct"),
        ({"strategy": "other"}, "must be known"),
        ({"balance": "other"}, "a known quantity"),
        ({"strategy": "diverse"}, "needs interactions"),
        ({"points": ((0.0, 0.0),) * 3}, "a point for each feature"),
        ({"interactions": interactions_of(np.eye(3)), "points": ((0.0, math.nan),) * 3}, "must be finite"),
    ],
)
def test_other_impossible_plans_are_refused(change, problem):
    with pytest.raises(ConfigError, match=problem):
        TowerPlan(
            **{
                "features": FEATURES,
                "towers": (("f0", "f1"), ("f2",)),
                "strategy": "strided",
                "balance": "features",
                **change,
            }
        )


def test_a_table_in_two_towers_is_refused():
    with pytest.raises(ConfigError, match="share a table"):
        TowerPlan(features_of(4, shared=2), (("f0", "f2"), ("f1", "f3")), "strided", "features")


@pytest.mark.parametrize("bytes_", [(-1, 0.0), (0, -1.0), (0, math.nan), (0, math.inf)])
def test_impossible_bytes_are_refused(bytes_):
    with pytest.raises(ConfigError, match="bytes of a feature"):
        TowerFeature("a", "a", *bytes_)


def test_hosts_are_divided_equally_among_towers():
    assert [check_hosts(2, hosts) for hosts in (2, 4, 6)] == [1, 2, 3]
    for hosts in (0, 1, 3):
        with pytest.raises(ConfigError, match="multiple of the number of towers"):
            check_hosts(2, hosts)
