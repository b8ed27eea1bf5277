"""How far the interactions of two trainings agree: known cases, noise, and what is common to all matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.planning.towers.tower_plans import interactions_of
from trainer.errors import ConfigError
from trainer.planning.towers.agreement import Agreement, agreement_of, mean_interactions


def planted(features: int, noise: float, seed: int) -> np.ndarray:
    """Interactions of pairs (0, 1), (2, 3), … above those of others, with noise."""
    random = np.random.default_rng(seed)
    found = np.full((features, features), 0.2)
    for one in range(0, features - 1, 2):
        found[one + 1, one] = 0.8
    return np.clip(found + random.normal(0, noise, found.shape), 0, 1)


def test_two_trainings_that_found_the_same_pairs_agree():
    found = agreement_of(interactions_of(planted(12, 0.1, 1)), interactions_of(planted(12, 0.1, 2)), width=16)
    assert found.correlation > 0.6
    assert found.chance < 0.01
    assert found.is_found
    assert found.floor == pytest.approx(math.sqrt(2 / (16 * math.pi)))


def test_noise_agrees_by_chance_in_one_case_of_twenty():
    random = np.random.default_rng(0)
    pairs = [[interactions_of(random.uniform(0, 1, (9, 9))) for _ in range(2)] for _ in range(200)]
    found = sum(agreement_of(*pair, width=8).is_found for pair in pairs)
    assert found <= 22, "0.05 of 200, and four standard deviations"


def test_the_floor_is_the_mean_absolute_cosine_of_unrelated_vectors():
    vectors = np.random.default_rng(1).normal(size=(2, 20_000, 32))
    one, other = vectors / np.linalg.norm(vectors, axis=2, keepdims=True)
    found = agreement_of(interactions_of(np.eye(4)), interactions_of(np.eye(4)), width=32)
    assert found.floor == pytest.approx(np.abs((one * other).sum(axis=1)).mean(), rel=0.02)


@pytest.mark.parametrize("features", [1, 2, 3])
def test_few_features_never_agree_beyond_chance(features):
    one = interactions_of(planted(features, 0.0, 0))
    assert not agreement_of(one, one, width=4).is_found


def test_the_mean_is_over_the_same_events():
    one, other = interactions_of(np.full((3, 3), 0.2), events=10), interactions_of(np.full((3, 3), 0.6), events=10)
    assert mean_interactions(one, other) == interactions_of(np.full((3, 3), 0.4), events=10)


def test_interactions_of_other_features_are_refused():
    with pytest.raises(ConfigError, match="must have the same features"):
        agreement_of(interactions_of(np.eye(3)), interactions_of(np.eye(4)), width=4)
    with pytest.raises(ConfigError, match="an agreement must be"):
        Agreement(0.0, float("nan"), 0.1)


@settings(max_examples=scaled(60))
@given(st.integers(2, 8), st.integers(0, 2**32), st.integers(1, 64))
def test_any_two_matrices_have_an_agreement_in_range_and_the_same_in_both_directions(features, seed, width):
    random = np.random.default_rng(seed)
    one, other = (interactions_of(random.uniform(0, 1, (features, features))) for _ in range(2))
    found, turned = agreement_of(one, other, width=width), agreement_of(other, one, width=width)
    assert -1 <= found.correlation <= 1
    assert found.correlation == pytest.approx(turned.correlation)
    assert 0 < found.chance <= 1
    assert agreement_of(one, other, width=width) == found
