from __future__ import annotations

from itertools import permutations

import hypothesis.strategies as st
from hypothesis import given, settings

from tests.support.examples import scaled
from transforms.comparison.assignment import least_assignment

_COSTS = st.one_of(st.integers(-3, 3), st.integers(-(10**40), 10**40))
_MATRICES = st.tuples(st.integers(1, 5), st.integers(1, 5)).flatmap(
    lambda shape: st.lists(st.lists(_COSTS, min_size=shape[1], max_size=shape[1]), min_size=shape[0], max_size=shape[0])
)


@given(_MATRICES)
@settings(max_examples=scaled(300))
def test_no_assignment_costs_less(costs):
    found = least_assignment(costs)
    rows, columns = len(costs), len(costs[0])
    assert found == sorted(found)
    assert len({row for row, _ in found}) == len({column for _, column in found}) == len(found) == min(rows, columns)
    if rows <= columns:
        totals = [sum(costs[i][j] for i, j in enumerate(order)) for order in permutations(range(columns), rows)]
    else:
        totals = [sum(costs[i][j] for j, i in enumerate(order)) for order in permutations(range(rows), columns)]
    assert sum(costs[i][j] for i, j in found) == min(totals)


def test_nothing_is_assigned_to_nothing():
    assert least_assignment([]) == least_assignment([[], []]) == []
