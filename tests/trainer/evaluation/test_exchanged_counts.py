"""Hosts count the pairs of one process: the same whole numbers for any number of hosts, and any division of the events among them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.evaluation.test_rank_counts import events
from tests.trainer.thread_channels import on_channels
from trainer.errors import BadFeature
from trainer.evaluation.exchanged_counts import exchanged_counts
from trainer.evaluation.rank_counts import rank_counts
from trainer.evaluation.shared_arrays import gather_bytes, shuffled


def counted(hosts, of_host, is_positive, scores):
    """The counts on each host, and the most bytes that one has sent to others."""

    def work(channels):
        own = of_host == channels.steps.rank
        return exchanged_counts(channels.steps, is_positive[own], scores[own]), channels.steps.sent_bytes

    found = on_channels(hosts, work)
    return [one for one, _ in found], max(sent for _, sent in found)


@settings(max_examples=scaled(100))
@given(events(), st.integers(1, 5), st.data())
def test_any_division_of_events_over_hosts_gives_the_counts_of_one_process(drawn, hosts, data):
    is_positive, scores = drawn
    of_host = np.array(data.draw(st.lists(st.integers(0, hosts - 1), min_size=len(scores), max_size=len(scores))), int)
    with np.errstate(over="ignore"):
        assert counted(hosts, of_host, is_positive, scores)[0] == [rank_counts(is_positive, scores)] * hosts


@pytest.mark.parametrize("ties", [0.0, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_two_four_and_eight_hosts_have_the_same_whole_numbers(ties, dtype):
    source = np.random.default_rng(7)
    scores = source.normal(size=50_000).astype(dtype)
    scores[source.random(len(scores)) < ties] = 0.25
    is_positive = source.random(len(scores)) < 0.1 + 0.1 * (scores > 0.3)
    expected = rank_counts(is_positive, scores)
    for hosts in (1, 2, 4, 8):
        for of_host in (source.integers(0, hosts, len(scores)), np.full(len(scores), hosts - 1), np.argsort(np.argsort(scores)) * hosts // len(scores)):  # fmt: skip
            assert counted(hosts, of_host, is_positive, scores)[0] == [expected] * hosts


@pytest.mark.parametrize("label", [False, True])
def test_events_of_one_label_have_no_area(label):
    scores = np.arange(6.0)
    (first, *_), _ = counted(3, np.arange(6) % 3, np.full(6, label), scores)
    assert (first.positives, first.negatives, first.twice_wins) == ((6, 0, 0) if label else (0, 6, 0))
    assert math.isnan(first.auc)


def test_equal_scores_travel_once_with_their_number():
    """No host gets all events if all have one score, nor much more than its share if a half has."""
    rows, hosts = 80_000, 4
    source = np.random.default_rng(0)
    is_positive, of_host = source.random(rows) < 0.3, source.integers(0, hosts, rows)
    histograms = (hosts - 1) * (1 << 16) * 8
    _, equal = counted(hosts, of_host, is_positive, np.zeros(rows, np.float32))
    assert equal < histograms + 2_000
    scores = source.normal(size=rows).astype(np.float32)
    scores[: rows // 2] = 0.5
    _, half = counted(hosts, of_host, is_positive, scores)
    assert half < histograms + 4 * (rows // 2 // hosts) * 1.1 + 2_000


@pytest.mark.parametrize("rank", [0, 2])
def test_a_score_that_is_nan_is_refused_by_all_hosts(rank):
    def work(channels):
        scores = np.zeros(5)
        if channels.steps.rank == rank:
            scores[3] = math.nan
        with pytest.raises(BadFeature, match="a score must be a number, got NaN") as caught:
            exchanged_counts(channels.steps, np.ones(5, bool), scores)
        return caught.value.where

    assert on_channels(3, work) == [f"host {rank}, event 3 of it"] * 3


@pytest.mark.parametrize("most_bytes", [8, 24, 1 << 20])
def test_arrays_arrive_whole_in_messages_of_any_size(most_bytes):
    def work(channels):
        rank = channels.steps.rank
        parts = [[np.arange(rank + 10 * to), np.full(to, rank, np.float32)] for to in range(3)]
        return shuffled(channels.steps, parts, most_bytes=most_bytes)

    for to, (numbers, floats) in enumerate(on_channels(3, work)):
        assert [one.tolist() for one in numbers] == [list(range(rank + 10 * to)) for rank in range(3)]
        assert [one.tolist() for one in floats] == [[float(rank)] * to for rank in range(3)]


def test_bytes_are_gathered_on_one_host_or_on_all():
    found = on_channels(3, lambda own: gather_bytes(own.steps, b"x" * own.steps.rank))
    assert found == [[b"", b"x", b"xx"]] * 3
    found = on_channels(3, lambda own: gather_bytes(own.steps, b"y" * own.steps.rank, to=1))
    assert found == [[b""] * 3, [b"", b"y", b"yy"], [b""] * 3]
