"""The share that hot rows serve, by samples of generated logs, against the whole log and against what is possible."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.planning.hot_shares import hot_shares
from trainer.planning.row_frequencies import RowFrequencies
from trainer.planning.row_sample import RowSample
from trainer.planning.served_lookups import served_lookups
from trainer.planning.tables import FeatureLoad, TableFacts
from trainer.tables.statistics.row_sketch import IdCounter, RowSketch

SHARES = (0.001, 0.01, 0.1, 0.3, 0.8)
#: A bound may fail in 3 of 1,000 samples, by a little.
MARGIN = 0.005


def sample_of(rows: int, batches: list[np.ndarray]) -> tuple[RowSample, RowFrequencies]:
    sketch, counter = RowSketch(rows), IdCounter(rows)
    for batch in batches:
        sketch.add(*counter.count(batch), np.zeros(64, np.int64))
    return sketch.sample(), sketch.frequencies()


def facts_of(rows: int, parts: list[list[np.ndarray]]) -> TableFacts:
    """A table by merged samples."""
    sample, frequencies, ids = RowSample(), RowFrequencies(rows), 0
    for batches in parts:
        of_part, shares = sample_of(rows, batches)
        added = sum(map(len, batches))
        sample, frequencies = sample.merged(of_part, 0.99999), frequencies.merged(shares, ids, added)
        ids += added
    return TableFacts("t", rows, 16, 1, 0, "", (FeatureLoad("f", 1.0, frequencies, sample=sample),))


def served_by_best(log: np.ndarray, hot_rows: int) -> float:
    """What the best choice of rows serves of a log that is known as a whole."""
    return float(np.sort(np.bincount(log))[::-1][:hot_rows].sum() / len(log))


@pytest.mark.medium
@settings(max_examples=scaled(40), derandomize=True)
@given(
    st.floats(1.0, 5.5), st.floats(0.0, 1.5), st.integers(1, 20), st.integers(1, 12), st.integers(5, 600), st.integers(0, 2**32 - 1)
)  # fmt: skip
def test_the_share_is_never_above_what_is_possible(magnitude, exponent, parts, batches, batch_ids, seed):
    rows, rng = int(10**magnitude), np.random.default_rng(seed)
    weights = np.arange(1, rows + 1) ** -exponent
    log = rng.choice(rows, 200_000, p=weights / weights.sum())
    facts = facts_of(rows, [[rng.choice(log, batch_ids) for _ in range(batches)] for _ in range(parts)])
    found, truth = served_lookups(facts), np.concatenate([[0.0], np.cumsum(weights / weights.sum())])
    for share in SHARES:
        hot_rows = int(share * rows)
        least, most = found.bounds(hot_rows)
        assert least <= served_by_best(log, hot_rows) + MARGIN
        assert least - MARGIN <= truth[hot_rows] <= most + MARGIN


@pytest.mark.medium
def test_few_events_of_many_distinct_rows_do_not_promise_all_lookups():
    """3,008 events in 19 parts: the rows of the sample fit into the budget, and most rows that occur are not in it."""
    rows, rng = 200_000, np.random.default_rng(11)
    weights = np.arange(1, rows + 1) ** -0.7
    log = rng.choice(rows, 300_000, p=weights / weights.sum())
    facts = facts_of(rows, [[rng.choice(log, 32) for _ in range(5)] for _ in range(19)])
    (found,) = hot_shares([facts], round(0.1 * facts.table_bytes))
    possible = served_by_best(log, found.hot_rows)
    assert found.hot_rows == rows // 10
    assert possible < 0.65
    assert 0.1 < found.served_share < possible <= found.most_served_share
    assert possible < facts.frequencies().share_of_hottest(found.hot_rows), "shares alone know the sampled rows only"


def test_more_events_narrow_the_bounds():
    rows, rng = 2000, np.random.default_rng(4)
    weights = np.arange(1, rows + 1) ** -1.0
    log = rng.choice(rows, 200_000, p=weights / weights.sum())
    widths = []
    for batches in (2, 20, 200):
        least, most = served_lookups(facts_of(rows, [[rng.choice(log, 200) for _ in range(batches)]])).bounds(200)
        widths.append(most - least)
    assert widths[0] > 2 * widths[1] > 4 * widths[2]


def test_rows_that_one_batch_has_many_times_are_not_expected_again():
    """A session looks up its row again and again: its batch is taken out as a whole."""
    rows = 100_000
    sessions = [np.repeat(np.arange(10 * k, 10 * k + 10), 20) for k in range(30)]
    least, _ = served_lookups(facts_of(rows, [sessions])).bounds(1000)
    assert least == pytest.approx(1000 / rows)


def test_statistics_without_a_sample_promise_no_more_than_any_rows_serve():
    facts = TableFacts(
        "t", 1000, 16, 1, 0, "", (FeatureLoad("f", 1.0, RowFrequencies.power_law(1000, 1.1), sample=RowSample()),)
    )
    assert served_lookups(facts).bounds(100) == (pytest.approx(0.1), 1.0)
    assert served_lookups(facts).bounds(0) == (0.0, 0.0)
    assert served_lookups(facts).bounds(1000) == (1.0, 1.0)


def test_features_of_one_table_count_by_their_ids():
    """One feature with a sample looks up one row only, the other's rows are assumed to be alike."""
    rows = 100
    sample, frequencies = sample_of(rows, [np.full(1, 7) for _ in range(4000)])
    measured = FeatureLoad("f", 3.0, frequencies, sample=sample)
    other = FeatureLoad.assumed("g", rows, [], has_one_id=True)
    least, most = served_lookups(TableFacts("t", rows, 16, 1, 0, "", (measured, other))).bounds(10)
    assert least == pytest.approx(0.75 + 0.25 * 0.1, abs=0.03)
    assert most == pytest.approx(0.75 + 0.25 * 0.1, abs=0.03)
    assert least <= most
    twice = TableFacts("t", rows, 16, 1, 0, "", (measured, FeatureLoad("h", 1.0, frequencies, sample=sample)))
    assert served_lookups(twice).bounds(1)[0] == pytest.approx(1.0, abs=0.03)
