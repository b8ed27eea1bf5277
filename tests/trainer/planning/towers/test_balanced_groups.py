"""Balanced groups: sizes within one, the least cost of an assignment, and weights that are balanced."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.errors import ConfigError
from trainer.planning.towers.balanced_groups import assign_balanced, balanced_groups


@st.composite
def items(draw):
    count, seed = draw(st.integers(1, 14)), draw(st.integers(0, 2**32))
    return np.random.default_rng(seed), count, draw(st.integers(1, count))


@pytest.mark.medium
@given(items())
@settings(max_examples=scaled(100))
def test_groups_of_equal_weights_have_sizes_within_one(drawn):
    random, count, groups = drawn
    points = random.normal(size=(count, 2)).round(1)  # some points are equal
    found = balanced_groups(points, np.ones(count), groups, seed=5)
    sizes = np.bincount(found, minlength=groups)
    assert len(sizes) == groups
    assert sizes.max() - sizes.min() <= 1
    np.testing.assert_array_equal(found, balanced_groups(points, np.ones(count), groups, seed=5))


@given(st.integers(1, 6), st.integers(1, 3), st.integers(0, 2**32))
@settings(max_examples=scaled(60))
def test_an_assignment_of_equal_weights_costs_the_least(count, groups, seed):
    groups = min(groups, count)
    costs = np.random.default_rng(seed).uniform(0, 1, (count, groups))
    found = assign_balanced(costs, np.ones(count))
    sizes = np.array_split(np.arange(count), groups)
    per_group = [len(one) for one in sizes]
    best = min(
        costs[np.arange(count), np.array(labels)].sum()
        for order in set(permutations(per_group))
        for labels in set(permutations(np.repeat(np.arange(groups), order).tolist()))
    )
    assert costs[np.arange(count), found].sum() == pytest.approx(best)


@pytest.mark.medium
@given(items())
@settings(max_examples=scaled(40))
def test_weights_are_balanced_as_far_as_single_items_allow(drawn):
    random, count, groups = drawn
    weights = random.integers(0, 1000, count).astype(float)
    found = balanced_groups(random.normal(size=(count, 2)), weights, groups, seed=1)
    sizes = np.bincount(found, minlength=groups)
    assert len(sizes) == groups
    assert sizes.min() >= 1
    if not np.all(weights == weights[0]):
        loads = np.bincount(found, weights, groups)
        assert loads.max() <= weights.sum() / groups + weights.max() + 1e-6, "the bound of Shmoys and Tardos"


@pytest.mark.medium
def test_many_items_of_other_weights_are_balanced():
    random = np.random.default_rng(2)
    weights = random.uniform(1, 2, 200)
    found = balanced_groups(random.normal(size=(200, 2)), weights, 8, seed=0)
    loads = np.bincount(found, weights)
    assert loads.max() <= 1.03 * loads.mean() + 1e-9


def test_clusters_of_equal_sizes_are_found():
    random = np.random.default_rng(4)
    centres = np.array([[0, 0], [10, 0], [0, 10], [10, 10]])
    points = np.repeat(centres, 5, axis=0) + random.normal(size=(20, 2))
    found = balanced_groups(points, np.ones(20), 4, seed=0).reshape(4, 5)
    assert (found == found[:, :1]).all()
    assert len(set(found[:, 0].tolist())) == 4


@pytest.mark.parametrize("groups", [0, 4, -1])
def test_an_impossible_number_of_groups_is_refused(groups):
    with pytest.raises(ConfigError, match="number of groups"):
        balanced_groups(np.zeros((3, 2)), np.ones(3), groups, seed=0)


@pytest.mark.parametrize("bad", [np.nan, -1.0, np.inf])
def test_impossible_weights_are_refused(bad):
    with pytest.raises(ConfigError, match="weights of items"):
        balanced_groups(np.zeros((3, 2)), np.array([1.0, bad, 1.0]), 2, seed=0)


@pytest.mark.medium
@given(items(), st.floats(1, 4), st.booleans())
@settings(max_examples=scaled(80))
def test_the_largest_group_has_at_most_what_is_allowed_and_none_is_empty(drawn, largest, are_equal):
    random, count, groups = drawn
    points = random.normal(size=(count, 2))
    weights = np.ones(count) if are_equal else random.integers(1, 100, count).astype(float)
    found = balanced_groups(points, weights, groups, seed=3, largest=largest)
    loads = np.bincount(found, weights, minlength=groups)
    assert np.bincount(found, minlength=groups).min() >= 1
    if are_equal:
        assert loads.max() <= max(-(-count // groups), largest * count / groups)
    elif largest * weights.sum() / groups + weights.max() < weights.sum():
        assert loads.max() <= largest * weights.sum() / groups + weights.max() + 1e-6


def test_groups_that_may_be_larger_are_as_near_as_the_points_are():
    points = np.array([[0.0, 0.0]] * 5 + [[9.0, 9.0]])
    assert np.bincount(balanced_groups(points, np.ones(6), 2, seed=0)).tolist() == [3, 3]
    found = balanced_groups(points, np.ones(6), 2, seed=0, largest=5 / 3)
    assert sorted(np.bincount(found).tolist()) == [1, 5]
    some = balanced_groups(points, np.ones(6), 2, seed=0, largest=1.4)
    assert sorted(np.bincount(some).tolist()) == [2, 4]


@pytest.mark.parametrize("largest", [0.9, float("nan"), float("inf")])
def test_a_largest_group_below_the_mean_is_refused(largest):
    with pytest.raises(ConfigError, match="at least the mean"):
        balanced_groups(np.zeros((3, 2)), np.ones(3), 2, seed=0, largest=largest)
