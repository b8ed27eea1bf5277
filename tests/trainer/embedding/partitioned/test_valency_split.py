"""The dense part of a bag is as large as statistics say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainer.embedding import SGD, FeatureSpec, TableSpec
from trainer.embedding.feature_counts import BatchCounter, FeatureCounts
from trainer.embedding.partitioned.valency_split import dense_ids_of, tail_ids
from trainer.planning.valencies import VALENCY_BOUNDS

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


@given(st.lists(st.integers(0, 70), min_size=1, max_size=50), st.floats(0, 1))
def test_the_split_moves_the_fewest_values(valencies, distinct):
    counts = counts_of(valencies)
    if not sum(valencies):
        assert dense_ids_of([FEATURE], counts) == {}
        return
    one = replace(counts["f"], distinct_rows=int(distinct * sum(valencies)))
    found = dense_ids_of([FEATURE], {"f": one})
    tail_values = 1 + 2 * FEATURE.table.dim * (1 - one.distinct_rows / one.ids)

    def values(dense_ids):
        return len(valencies) * dense_ids + tail_values * sum(max(one - dense_ids, 0) for one in valencies)

    powers = [1 << k for k in range(8) if 1 << k < 2 * max(valencies)]
    for power in powers:
        assert tail_ids(one, power) == sum(max(one - power, 0) for one in valencies)
    assert values(found["f"]) <= min(map(values, powers)) + 1e-6


def test_a_long_tail_is_cut_off_where_it_has_few_duplicates():
    rare = counts_of([2] * 99 + [1000])["f"]
    assert dense_ids_of([FEATURE], {"f": replace(rare, distinct_rows=int(0.9 * rare.ids))}) == {"f": 2}
    wide = FeatureSpec("f", replace(FEATURE.table, dim=64))
    assert dense_ids_of([wide], {"f": replace(rare, distinct_rows=10)}) == {"f": 1000}
    assert dense_ids_of([FEATURE], counts_of([30] * 100)) == {"f": 30}
    assert dense_ids_of([FEATURE], {"f": FeatureCounts()}) == {}
