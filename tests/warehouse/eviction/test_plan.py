"""Requests of evictions, and the last requests of data."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from transforms.errors import InputError
from warehouse import ComponentQuery, EvictionRequest
from warehouse.eviction.last_requests import LastRequests, start_of


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
