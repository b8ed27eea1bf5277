"""The dense part of a bag is as large as statistics say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.embedding import SGD, FeatureSpec, TableSpec
from trainer.embedding.feature_counts import VALENCY_BOUNDS, BatchCounter, FeatureCounts
from trainer.embedding.partitioned.valency_split import dense_ids_of, tail_ids
from trainer.errors import ConfigError

FEATURE = FeatureSpec("f", TableSpec("t", 9, 2, SGD(0.1)))


def counts_of(valencies):
    counter = BatchCounter([FEATURE], np.zeros(1, np.int64))
    counter.add(np.cumsum([0, *valencies])[None], np.ones(1, np.int64))
    return counter.by_feature()


@given(st.lists(st.integers(0, 70), min_size=1, max_size=50))
def test_bags_are_counted_by_class(valencies):
    found = counts_of(valencies)["f"]
    for k, bound in enumerate(VALENCY_BOUNDS):
        below = VALENCY_BOUNDS[k - 1] if k else -1
        own = [one for one in valencies if below < one <= bound]
        assert (found.bags_by_valency[k], found.ids_by_valency[k]) == (len(own), sum(own))
    assert (found.ids, found.longest_bag) == (sum(valencies), max(valencies))


@given(st.lists(st.integers(0, 70), min_size=1, max_size=50), st.sampled_from([0.5, 1.0, 4.0]))
def test_the_split_has_the_least_cost(valencies, tail_cost):
    counts = counts_of(valencies)
    found = dense_ids_of(counts, tail_cost=tail_cost)
    if not sum(valencies):
        assert found == {}
        return

    def cost(dense_ids):
        return len(valencies) * dense_ids + tail_cost * sum(max(one - dense_ids, 0) for one in valencies)

    powers = [1 << k for k in range(8) if 1 << k < 2 * max(valencies)]
    for power in powers:
        assert tail_ids(counts["f"], power) == sum(max(one - power, 0) for one in valencies)
    assert cost(found["f"]) <= min(map(cost, powers))


def test_a_long_tail_is_cut_off():
    assert dense_ids_of(counts_of([2] * 99 + [1000])) == {"f": 2}
    assert dense_ids_of(counts_of([30] * 100)) == {"f": 30}
    assert dense_ids_of({"f": FeatureCounts()}) == {}
    with pytest.raises(ConfigError, match="tail_cost"):
        dense_ids_of({}, tail_cost=float("nan"))
