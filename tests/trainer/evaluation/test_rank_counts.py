"""Counts of pairs against all pairs by hand, against scikit-learn and by any number of threads: the same whole numbers everywhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.errors import BadBatch, BadFeature
from trainer.evaluation.host_totals import HostTotals
from trainer.evaluation.ordered_keys import ordered_keys
from trainer.evaluation.rank_counts import RankCounts, rank_counts
from trainer.evaluation.segments import grouped_auc, segment_counts

_ODD = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, 1e-45, -1e-45, 3.4e38, 1 / 3]
_SCORES = st.lists(
    st.sampled_from(_ODD) | st.floats(allow_nan=False, width=32) | st.floats(allow_nan=False), max_size=40
)


def by_hand(is_positive, scores):
    own, other = scores[is_positive].astype(np.float64), scores[~is_positive].astype(np.float64)
    wins = 2 * int((own[:, None] > other).sum()) + int((own[:, None] == other).sum())
    return RankCounts(len(own), len(other), wins)


@st.composite
def events(draw):
    """Labels, and scores of which many are equal."""
    values = draw(_SCORES)
    scores = np.array(values, draw(st.sampled_from([np.float32, np.float64])))
    return np.array(draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))), bool), scores


def test_known_counts():
    is_positive, scores = np.array([True, False, True, False]), np.array([0.9, 0.9, 0.1, 0.4])
    assert rank_counts(is_positive, scores) == RankCounts(2, 2, 2 + 1)
    assert rank_counts(is_positive, scores).auc == 3 / 8
    assert math.isnan(rank_counts(np.ones(3, bool), np.zeros(3)).auc)
    first = np.array([True, False])
    assert rank_counts(first, np.array([2**53 + 1, 2**53])).auc == 1.0, "integers keep all their bits"
    assert rank_counts(first, np.array([-1, 0])).auc == 0.0
    assert rank_counts(first, np.array([2**64 - 1, 1], np.uint64)).auc == 1.0
    assert rank_counts(first, np.array([True, False])).auc == 1.0


@settings(max_examples=scaled(300))
@given(events())
def test_counts_are_those_of_all_pairs(drawn):
    is_positive, scores = drawn
    with np.errstate(over="ignore"):
        assert rank_counts(is_positive, scores) == by_hand(is_positive, scores)


@settings(max_examples=scaled(200))
@given(_SCORES)
def test_keys_have_the_order_of_scores(values):
    for dtype in (np.float32, np.float64):
        with np.errstate(over="ignore"):
            scores = np.array(values, dtype)
        keys = ordered_keys(scores)
        with np.errstate(over="ignore"):
            are_short = bool((scores.astype(np.float32) == scores).all())
        assert keys.dtype == (np.uint32 if are_short else np.uint64)
        assert ((scores[:, None] < scores) == (keys[:, None] < keys)).all()
        assert ((scores[:, None] == scores) == (keys[:, None] == keys)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_score_that_is_no_number_is_refused_by_its_place(dtype):
    scores = np.zeros(5, dtype)
    scores[3] = math.nan
    with pytest.raises(BadFeature, match="a score must be a number, got NaN") as caught:
        rank_counts(np.zeros(5, bool), scores)
    assert caught.value.where == "event 3"


@pytest.mark.parametrize("ties", [0.0, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_many_events_are_counted_alike_by_any_number_of_threads_as_by_scikit_learn(ties, threads):
    metrics = pytest.importorskip("sklearn.metrics")
    source = np.random.default_rng(4)
    scores = source.normal(size=300_000)
    scores[source.random(len(scores)) < ties] = 0.25
    is_positive = source.random(len(scores)) < 0.3 + 0.1 * (scores > 0.3)
    found = rank_counts(is_positive, scores, threads=threads)
    assert found == rank_counts(is_positive, scores, threads=1)
    assert found.auc == pytest.approx(metrics.roc_auc_score(is_positive, scores), abs=1e-12)


@settings(max_examples=scaled(150))
@given(events(), st.integers(1, 5), st.data())
def test_segments_have_the_counts_of_their_events(drawn, count, data):
    is_positive, scores = drawn
    segments = np.array(
        data.draw(st.lists(st.integers(0, count - 1), min_size=len(scores), max_size=len(scores))), np.int64
    )
    found = segment_counts(segments, count, is_positive, scores)
    areas = found.areas()
    for one in range(count):
        own = segments == one
        expected = rank_counts(is_positive[own], scores[own])
        assert (found.positives[one], found.negatives[one], found.twice_wins[one]) == (expected.positives, expected.negatives, expected.twice_wins)  # fmt: skip
        assert areas[one] == expected.auc or (math.isnan(areas[one]) and math.isnan(expected.auc))


def test_the_grouped_area_weighs_segments_by_their_events():
    segments, is_positive = np.array([0, 0, 1, 1, 1, 2, 2]), np.array([1, 0, 1, 0, 0, 1, 1], bool)
    found = segment_counts(segments, 3, is_positive, np.array([0.9, 0.1, 0.5, 0.5, 0.9, 0.0, 1.0]))
    assert grouped_auc([found], HostTotals()) == pytest.approx((2 * 1.0 + 3 * 0.25) / 5)
    parts = [segment_counts(segments[own] % 2, 2, is_positive[own], np.array([0.9, 0.1, 0.5, 0.5, 0.9, 0.0, 1.0])[own])
             for own in (segments < 2, segments == 2)]  # fmt: skip
    assert grouped_auc(parts, HostTotals()) == grouped_auc([found], HostTotals())
    none = segment_counts(np.zeros(2, int), 1, np.ones(2, bool), np.zeros(2))
    assert math.isnan(grouped_auc([none], HostTotals()))


@pytest.mark.parametrize("segments", [[0, 3], [-1, 0], [0]])
def test_segments_out_of_range_are_refused(segments):
    with pytest.raises(BadBatch):
        segment_counts(np.array(segments), 3, np.zeros(2, bool), np.zeros(2))
