"""Points of a plane: distances that a plane has are found again, and equal input gives equal points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.planning.towers.tower_plans import interactions_of
from trainer.errors import ConfigError
from trainer.planning.towers.plane import distances_of, embed


def apart(points: np.ndarray) -> np.ndarray:
    return np.sqrt(np.square(points[:, None] - points[None]).sum(axis=2))


@pytest.mark.parametrize("seed", range(5))
def test_the_distances_of_points_in_a_plane_are_found(seed):
    wanted = apart(np.random.default_rng(seed).uniform(0, 0.7, (4, 2)))
    found = embed(wanted, seed=0)
    assert found.error < 0.05
    np.testing.assert_allclose(apart(found.array()), wanted, atol=0.15)


@pytest.mark.medium
@given(st.integers(1, 8), st.integers(0, 2**32))
@settings(max_examples=scaled(20))
def test_points_are_near_the_wanted_distances_and_repeat(size, seed):
    values = np.random.default_rng(seed).uniform(0, 1, (size, size))
    wanted = distances_of(interactions_of(values), "coherent")
    found = embed(wanted, seed=seed)
    assert found == embed(wanted, seed=seed)
    if size > 1:
        real = np.sqrt(np.square(apart(found.array()) - wanted).sum() / (size * (size - 1)))
        assert found.error == pytest.approx(real)
        at_one_place = np.sqrt(np.square(wanted).sum() / (size * (size - 1)))
        assert found.error <= at_one_place + 1e-3
    np.testing.assert_allclose(found.array().mean(axis=0), 0, atol=1e-9)


def test_distances_of_both_strategies():
    known = interactions_of(np.array([[1, 0, 0], [0.25, 1, 0], [0.5, 0.75, 1.0]]))
    np.testing.assert_array_equal(distances_of(known, "diverse"), [[0, 0.25, 0.5], [0.25, 0, 0.75], [0.5, 0.75, 0]])
    np.testing.assert_array_equal(distances_of(known, "coherent"), [[0, 0.75, 0.5], [0.75, 0, 0.25], [0.5, 0.25, 0]])
    with pytest.raises(ConfigError, match="must be known"):
        distances_of(known, "strided")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_impossible_distances_are_refused(bad):
    with pytest.raises(ConfigError, match="distances must be finite"):
        embed(np.array([[0.0, bad], [bad, 0.0]]), seed=0)
