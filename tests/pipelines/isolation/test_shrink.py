"""Delta debugging over rows, with predicates whose smallest failing sets are known."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipelines.isolation.shrink import Budget, Rows, find_smallest, ranges_of, rows_of


def unlimited() -> Budget:
    return Budget(10**9, 1e9)


def all_of(rows: int) -> Rows:
    return np.arange(rows, dtype=np.int64)


class Needs:
    """Fails exactly when all of some rows are there; counts how often it is asked."""

    def __init__(self, *rows: int) -> None:
        self.rows, self.asked = set(rows), 0

    def __call__(self, part: Rows) -> bool:
        self.asked += 1
        return self.rows <= set(part.tolist())


@given(st.integers(1, 300), st.data())
def test_exactly_the_rows_that_are_needed_together_are_found(rows: int, data: st.DataObject) -> None:
    needed = data.draw(st.frozensets(st.integers(0, rows - 1), min_size=1, max_size=5))
    found = find_smallest(all_of(rows), Needs(*needed), unlimited())
    assert found.tolist() == sorted(needed)
    assert found.tolist() == find_smallest(all_of(rows), Needs(*needed), unlimited()).tolist(), "deterministic"


@given(st.integers(1, 60), st.integers(0, 2**30), st.integers(1, 6))
def test_what_is_found_fails_and_does_not_without_any_one_row(rows: int, seed: int, modulus: int) -> None:
    """Failures that are not monotone: a sum of the rows' weights that hits a remainder."""
    weights = np.random.default_rng(seed).integers(0, 100, rows)

    def fails(part: Rows) -> bool:
        return int(weights[part].sum()) % modulus == int(weights.sum()) % modulus and len(part) > 0

    found = find_smallest(all_of(rows), fails, unlimited())
    assert fails(found)
    assert len(found) == 1 or not any(fails(np.delete(found, at)) for at in range(len(found)))


def test_one_row_of_a_million_is_found_in_few_trials() -> None:
    one = Needs(777_777)
    assert find_smallest(all_of(1_000_000), one, unlimited()).tolist() == [777_777]
    assert one.asked <= 2 * 21


def test_the_budget_ends_the_search_with_what_was_found_so_far() -> None:
    needed = Needs(3, 900)
    found = find_smallest(all_of(1_000), needed, Budget(9, 1e9))
    assert needed.asked == 9
    assert 2 < len(found) < 1_000
    assert needed(found)
    now = iter(range(100))
    slow = find_smallest(all_of(1_000), Needs(3), Budget(10**9, 4.5, clock=lambda: float(next(now))))
    assert 1 < len(slow) < 1_000


@given(st.frozensets(st.integers(0, 400)))
def test_rows_survive_their_journey_as_ranges(rows: frozenset[int]) -> None:
    ascending = np.array(sorted(rows), np.int64)
    assert rows_of(ranges_of(ascending)).tolist() == ascending.tolist()


def test_neighbouring_rows_are_one_range() -> None:
    assert ranges_of(np.array([2, 3, 4, 9, 11, 12])) == [[2, 5], [9, 10], [11, 13]]
    assert ranges_of(all_of(1_000_000)) == [[0, 1_000_000]]
