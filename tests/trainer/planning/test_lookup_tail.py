"""The lookups of a table's rows, by laws, and whether pruning pays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.planning.lookup_tail import FEW_LOOKUPS, TAIL_LOOKUPS, TableCounts, lookup_tail, pruning_outlook

counts_of = st.lists(st.integers(1, 40), max_size=60).map(lambda one: np.array(one, np.int64))


def tail(counts):
    return lookup_tail("t", 1000, 4, np.array(counts, np.int64))


def outlook(*tables):
    return pruning_outlook([TableCounts(1000, 4, np.array(counts, np.int64)) for counts in tables])


@given(counts_of, st.randoms(use_true_random=False))
def test_the_figures_are_those_of_counting(counts, source):
    found = tail(counts)
    shuffled = counts.tolist()
    source.shuffle(shuffled)
    assert tail(shuffled) == found, "the order of the rows says nothing"
    assert (found.seen_rows, found.lookups) == (len(counts), counts.sum())
    assert found.once_rows == (counts == 1).sum()
    assert found.few_rows == (counts <= FEW_LOOKUPS).sum()
    if len(counts):
        at_most = (counts <= found.median_lookups).sum()
        assert 2 * at_most >= len(counts)
        assert 2 * (counts < found.median_lookups).sum() <= len(counts)


@given(counts_of)
def test_no_fewer_rows_have_that_share_of_the_lookups(counts):
    ordered, found = np.sort(counts)[::-1], tail(counts)
    for rows, percent in ((found.rows_of_90, 90), (found.rows_of_99, 99)):
        assert 100 * int(ordered[:rows].sum()) >= percent * found.lookups
        assert not rows or 100 * int(ordered[: rows - 1].sum()) < percent * found.lookups


@given(st.lists(st.tuples(counts_of, st.integers(1, 8)), min_size=1, max_size=4))
def test_the_budget_is_that_of_the_rows_before_the_tail(tables):
    """The tail and the rows that the budget has space for are together those that occur, and no row of the tail has more lookups than another one."""
    found = pruning_outlook([TableCounts(1000, columns, counts) for counts, columns in tables])
    rows = sorted((int(count), columns) for counts, columns in tables for count in counts)
    if not rows:
        assert found is None
        return
    lookups, weights = sum(count for count, _ in rows), sum(columns for _, columns in rows)
    assert found.budget * sum(1000 * columns for _, columns in tables) == pytest.approx(
        weights * (1 - found.tail_weights)
    )
    assert found.tail_lookups <= TAIL_LOOKUPS
    tail_rows = 0
    while tail_rows < len(rows) and rows[tail_rows][0] <= FEW_LOOKUPS:
        if sum(count for count, _ in rows[: tail_rows + 1]) > TAIL_LOOKUPS * lookups:
            break
        tail_rows += 1
    assert found.tail_lookups == pytest.approx(sum(count for count, _ in rows[:tail_rows]) / lookups)
    least = {columns for _, columns in tables}
    if len(least) == 1:
        assert found.tail_weights == pytest.approx(tail_rows / len(rows))


def test_pruning_pays_where_many_rows_are_looked_up_rarely_and_have_few_lookups():
    films, news, short = [200] * 90 + [5] * 10, [1] * 60 + [2000] * 40, [1] * 100
    assert [outlook(one).pays for one in (films, news, short)] == [False, True, False]
    assert outlook(films).median_lookups == 200
    assert outlook(films, news).tail_weights == (10 + 60) / 200
    assert outlook(news).budget == 40 / 1000
    assert outlook(short).tail_weights == 0.1, (
        "in a short log all rows are rare, and without most of them nothing is left to learn from"
    )
