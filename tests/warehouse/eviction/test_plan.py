"""The order and the number of memos that a budget evicts."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.errors import InputError
from warehouse import ComponentQuery, EvictionRequest
from warehouse.eviction.last_requests import LastRequests, start_of
from warehouse.eviction.plan import EvictionCandidate, ReadyMemo, choose_for_budget, eviction_order

DAY = 86_400.0


def candidate(
    key: str, size_bytes: int = 10, secs: float = 1.0, at: float = 0.0, readers: int = 1
) -> EvictionCandidate:
    memo = ReadyMemo(key, "f", 1, "log", "date=2026-01-01", 1, size_bytes, secs, 0.0, 0.0, 1)
    return EvictionCandidate(memo, at, readers)


candidates = st.builds(
    candidate,
    st.uuids().map(str),
    st.integers(0, 100),
    st.integers(0, 8).map(lambda quarters: quarters / 4),
    st.integers(0, 12).map(lambda quarter: quarter * DAY / 4),
    st.integers(0, 3),
)


def keys(memos: list[ReadyMemo]) -> list[str]:
    return [memo.memo_key for memo in memos]


@given(st.lists(candidates, max_size=20), st.integers(-10, 400), st.randoms(use_true_random=False))
def test_a_budget_evicts_the_shortest_prefix_of_the_order(
    memos: list[EvictionCandidate], excess_bytes: int, random: object
) -> None:
    chosen = choose_for_budget(memos, excess_bytes)
    ordered = [one.memo for one in sorted(memos, key=eviction_order)]
    assert chosen == ordered[: len(chosen)]
    total = sum(memo.size_bytes for memo in chosen)
    assert total >= excess_bytes or chosen == ordered, "it stops at the budget, or where nothing is left"
    if chosen:
        assert total - chosen[-1].size_bytes < excess_bytes, "and takes no memo more than that needs"
    else:
        assert excess_bytes <= 0 or not memos
    assert choose_for_budget(reversed(memos), excess_bytes) == chosen, "whatever order they are listed in"


def test_the_order() -> None:
    unread = candidate("unread", at=9 * DAY, secs=99, readers=0)
    old = candidate("old", at=1.9 * DAY, secs=99)
    cheap = candidate("cheap", at=2.9 * DAY, secs=1)
    large = candidate("large", at=2.1 * DAY, size_bytes=1000, secs=2)
    shared = candidate("shared", at=2.1 * DAY, secs=1, readers=3)
    fresh = candidate("fresh", at=3 * DAY, secs=0)
    memos = [shared, fresh, cheap, old, unread, large]
    assert [one.memo.memo_key for one in sorted(memos, key=eviction_order)] == [
        "unread", "old", "large", "cheap", "shared", "fresh"]  # fmt: skip
    assert keys(choose_for_budget(memos, 21)) == ["unread", "old", "large"]


def test_a_read_asks_for_the_partitions_that_start_in_its_range() -> None:
    hour = 3600.0
    reads = {1: [("log", hour, 2 * hour, 50.0)], 2: [("log", -math.inf, math.inf, 20.0), ("ads", 0.0, hour, 90.0)]}
    requests = LastRequests(frozenset({2}), {1: 10.0, 3: 5.0}, reads)
    hours = [start_of(f"date=1970-01-01/hour={number:02d}") for number in range(3)]
    assert [requests.newest((1,), "log", [hour]) for hour in hours] == [10, 50, 10]
    assert [requests.newest((1, 2, 3), "log", [hour]) for hour in hours] == [20, 50, 20]
    assert [requests.newest((2, 3), "ads", [hour]) for hour in hours] == [90, 5, 5]
    assert (requests.newest((), "log", hours), requests.readers((1, 2, 3))) == (0, 1)


def test_several_partitions_were_requested_when_any_of_them_was() -> None:
    hour = 3600.0
    requests = LastRequests(frozenset(), {}, {1: [("log", 0.0, hour, 30.0), ("log", hour, 2 * hour, 50.0)]})
    starts = [number * hour for number in range(3)]
    assert [requests.newest((1,), "log", starts[at:]) for at in range(3)] == [50, 50, 0]
    assert requests.newest((1,), "log", [starts[0], starts[2]]) == 30


def test_saying_nothing_evicts_nothing() -> None:
    with pytest.raises(InputError, match="must have a condition or a budget"):
        EvictionRequest()
    with pytest.raises(InputError, match="must be >= 0"):
        EvictionRequest(budget_bytes=-1)
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    all_of_it = EvictionRequest(query=ComponentQuery(column="price"), start=moment, end=moment, written_before=0.0,
                                written_after=0.0, budget_bytes=7)  # fmt: skip
    assert all_of_it.text == (
        "column price, partitions from 2026-01-02 00:00, partitions before 2026-01-02 00:00, "
        "computed since 1970-01-01 00:00, computed before 1970-01-01 00:00, a budget of 7 B"
    )
