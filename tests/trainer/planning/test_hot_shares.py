"""Hot rows within a budget of bytes: no exchange of rows between tables serves more."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.errors import ConfigError
from trainer.planning.hot_shares import hot_shares, served_shares
from trainer.planning.row_frequencies import RowFrequencies
from trainer.planning.tables import FeatureLoad, TableFacts


@st.composite
def tables(draw, most_tables=4, most_rows=3000):
    found = []
    for t in range(draw(st.integers(1, most_tables))):
        rows = draw(st.integers(1, most_rows))
        load = FeatureLoad(f"t{t}", draw(st.floats(0, 50)), RowFrequencies.power_law(rows, draw(st.floats(0, 2))))
        found.append(TableFacts(f"t{t}", rows, draw(st.integers(1, 64)), draw(st.integers(0, 2)), 0, "", (load,)))
    return found


@settings(max_examples=scaled(80))
@given(tables(), st.floats(0, 1.2))
def test_the_budget_is_kept_and_used(facts, share):
    all_bytes = sum(one.table_bytes for one in facts)
    budget = int(share * all_bytes)
    shares = hot_shares(facts, budget)
    assert [one.name for one in shares] == [one.name for one in facts]
    used = sum(one.hot_bytes for one in shares)
    assert used <= budget + 1
    assert used >= min(budget, all_bytes) - sum(one.row_bytes for one in facts)
    assert all(0 <= one.hot_rows <= one.rows for one in shares)
    assert all(0 <= one.served_share == one.most_served_share <= 1 for one in shares), "stated shares are exact"
    more = hot_shares(facts, 2 * budget)
    assert all(one.hot_rows <= other.hot_rows for one, other in zip(shares, more, strict=True))


@settings(max_examples=scaled(60))
@given(tables(most_tables=2, most_rows=12), st.floats(0, 1))
def test_no_other_choice_of_the_same_bytes_serves_more(facts, share):
    """All choices of rows of small tables, against the bytes that were taken."""
    shares = hot_shares(facts, int(share * sum(one.table_bytes for one in facts)))
    used, served = sum(one.hot_bytes for one in shares), sum(one.ids_per_event * one.served_share for one in shares)
    for chosen in itertools.product(*(range(one.rows + 1) for one in facts)):
        if sum(rows * one.row_bytes for rows, one in zip(chosen, facts, strict=True)) <= used:
            other = sum(
                one.ids_per_event * one.frequencies().share_of_hottest(rows)
                for rows, one in zip(chosen, facts, strict=True)
            )
            lost = max(one.ids_per_event * one.frequencies().share_of_hottest(1) for one in facts)
            assert other <= served + lost + 1e-6, "at most one row, the rest of the budget, is left out"


def test_tables_with_more_lookups_by_byte_come_first():
    def table(name, columns, ids):
        return TableFacts(name, 1000, columns, 0, 0, "", (FeatureLoad(name, ids, RowFrequencies.power_law(1000, 0.0)),))

    wide, often, rare = table("wide", 64, 10.0), table("often", 16, 10.0), table("rare", 16, 1.0)
    shares = {one.name: one for one in hot_shares([wide, often, rare], 64 * 1000)}
    assert {name: one.hot_rows for name, one in shares.items()} == {"wide": 0, "often": 1000, "rare": 0}
    assert served_shares(tuple(shares.values())) == pytest.approx((10 / 21, 10 / 21))


def test_a_negative_budget_is_refused():
    with pytest.raises(ConfigError):
        hot_shares([], -1)
    assert hot_shares([], 5) == ()
    assert served_shares(()) == (0.0, 0.0)
