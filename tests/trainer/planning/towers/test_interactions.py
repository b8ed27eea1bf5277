"""Interactions: means of absolute cosines, compared with a plain loop in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.errors import ConfigError
from trainer.planning.towers.interactions import Interactions, InteractionSum


def plain(vectors: np.ndarray) -> np.ndarray:
    """The interactions, pair by pair and event by event."""
    found = np.eye(vectors.shape[1])
    for i in range(vectors.shape[1]):
        for j in range(i):
            cosines = [
                abs(float(a @ b)) / (math.sqrt(a @ a) * math.sqrt(b @ b))
                for a, b in zip(vectors[:, i], vectors[:, j], strict=True)
                if a.any() and b.any()
            ]
            found[i, j] = found[j, i] = sum(cosines) / len(cosines) if cosines else 0.0
    return found


@given(st.integers(1, 30), st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**32), st.integers(1, 4))
@settings(max_examples=scaled(100))
def test_interactions_are_those_of_a_plain_loop(events, features, columns, seed, batches):
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(events, features, columns)) * (random.uniform(size=(events, features, 1)) < 0.7)
    summed = InteractionSum(tuple(f"f{k}" for k in range(features)))
    for part in np.array_split(vectors, batches):
        summed.add(part)
    found = summed.mean()
    np.testing.assert_allclose(found.matrix(), plain(vectors), atol=1e-12)
    assert found.events == events


def test_scale_and_sign_do_not_count():
    random = np.random.default_rng(3)
    vectors = random.normal(size=(50, 3, 4))
    factors = random.uniform(1e-3, 1e3, size=(50, 3, 1)) * random.choice([-1, 1], size=(50, 3, 1))

    def of(values):
        summed = InteractionSum(("a", "b", "c"))
        summed.add(values)
        return summed.mean().matrix()

    np.testing.assert_allclose(of(vectors * factors), of(vectors), atol=1e-12)
    np.testing.assert_allclose(of(vectors * 1e200), of(vectors), atol=1e-12)  # squares would overflow
    np.testing.assert_allclose(of(vectors * 1e-200), of(vectors), atol=1e-12)  # squares would vanish


def test_parallel_and_orthogonal_vectors():
    summed = InteractionSum(("a", "b", "c"))
    summed.add(np.array([[[1.0, 0.0], [-2.0, 0.0], [0.0, 3.0]]]))
    assert summed.mean().values == ((1.0, 1.0, 0.0), (1.0, 1.0, 0.0), (0.0, 0.0, 1.0))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_values_that_are_not_finite_are_refused_with_their_feature(bad):
    vectors = np.ones((4, 3, 2), np.float32)
    vectors[2, 1, 0] = bad
    with pytest.raises(ConfigError, match="activations must be finite") as refused:
        InteractionSum(("a", "b", "c")).add(vectors)
    assert refused.value.where == "feature b"


@pytest.mark.parametrize("shape", [(4, 2, 2), (4, 3)])
def test_activations_of_another_shape_are_refused(shape):
    with pytest.raises(ConfigError, match="a vector for each feature"):
        InteractionSum(("a", "b", "c")).add(np.ones(shape))


@pytest.mark.parametrize(
    ("features", "values", "events", "problem"),
    [
        (("a", "a"), ((1.0, 0.5), (0.5, 1.0)), 1, "must be distinct"),
        (("a", "b"), ((1.0, 0.5),), 1, "a value for each pair"),
        (("a", "b"), ((1.0, math.nan), (math.nan, 1.0)), 1, "a mean of absolute cosines"),
        (("a", "b"), ((1.0, 1.5), (1.5, 1.0)), 1, "a mean of absolute cosines"),
        (("a", "b"), ((1.0, 0.5), (0.4, 1.0)), 1, "symmetric"),
        (("a", "b"), ((0.9, 0.5), (0.5, 1.0)), 1, "with itself must be 1"),
        (("a", "b"), ((1.0, 0.5), (0.5, 1.0)), 0, "a sample with at least one event"),
    ],
)
def test_impossible_interactions_are_refused(features, values, events, problem):
    with pytest.raises(ConfigError, match=problem):
        Interactions(features, values, events)


def test_no_batch_gives_no_interactions():
    with pytest.raises(ConfigError, match="a sample with at least one event"):
        InteractionSum(("a", "b")).mean()
