"""Towers for tests: features, interactions and plans that Hypothesis draws."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from trainer.planning.towers.agreement import Agreement
from trainer.planning.towers.interactions import Interactions
from trainer.planning.towers.partitioner import make_towers
from trainer.planning.towers.plane import STRATEGIES
from trainer.planning.towers.tower_plan import BALANCES, TowerFeature


def interactions_of(matrix: np.ndarray, events: int = 10) -> Interactions:
    """Interactions of features f0, f1, … with the values below the diagonal of ``matrix``."""
    below = np.tril(matrix, -1)
    values = below + below.T + np.eye(len(matrix))
    return Interactions(tuple(f"f{k}" for k in range(len(matrix))), tuple(map(tuple, values.tolist())), events)


def features_of(count: int, *, shared: int = 1, seed: int = 0) -> tuple[TowerFeature, ...]:
    """Features f0, f1, …, of which ``shared`` have a table each time."""
    random = np.random.default_rng(seed)
    sizes, loads = random.integers(0, 10**6, count).tolist(), random.uniform(0, 500, count).tolist()
    return tuple(TowerFeature(f"f{k}", f"t{k // shared}", sizes[k // shared], loads[k]) for k in range(count))


@st.composite
def tower_plans(draw, most_features: int = 9):
    """A plan of any strategy and balance."""
    count = draw(st.integers(1, most_features))
    shared = draw(st.integers(1, 2))
    seed = draw(st.integers(0, 2**32))
    matrix = np.random.default_rng(seed).uniform(0, 1, (count, count))
    strategy = draw(st.sampled_from(STRATEGIES))
    known = strategy != "strided" or draw(st.booleans())
    return make_towers(
        features_of(count, shared=shared, seed=seed),
        draw(st.integers(1, -(-count // shared))),
        strategy=strategy,
        balance=draw(st.sampled_from(BALANCES)),
        seed=seed,
        interactions=interactions_of(matrix) if known else None,
        source="a run",
        agreement=Agreement(draw(st.floats(-1, 1)), 0.25, 0.5) if known and draw(st.booleans()) else None,
        largest=1.0 if strategy == "strided" else draw(st.sampled_from([1.0, 1.5, 3.0])),
    )
