"""The order and the number of memos that a budget evicts."""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from warehouse.eviction import budget
from warehouse.eviction.budget import EvictionCandidates, choose_for_budget
from warehouse.eviction.stored_memos import StoredMemos

DAY = 86_400.0


class Candidate(NamedTuple):
    """A memo that a budget may evict, as one object."""

    key: str
    fingerprint: str = "f"
    size_bytes: int = 10
    secs: float = 1.0
    at: float = 0.0
    readers: int = 1

    @property
    def order(self) -> tuple[bool, int, float, str, str]:
        """The obvious sort key: the least one is evicted first."""
        worth = self.secs * max(self.readers, 1) / max(self.size_bytes, 1)
        return self.readers > 0, int(self.at // DAY), worth, self.fingerprint, self.key


candidates = st.builds(
    Candidate,
    st.uuids().map(str),
    st.sampled_from("fgh"),
    st.integers(0, 100),
    st.integers(0, 8).map(lambda quarters: quarters / 4),
    st.integers(0, 12).map(lambda quarter: quarter * DAY / 4),
    st.integers(0, 3),
)


def batch(some: list[Candidate]) -> EvictionCandidates:
    memos = StoredMemos.of([(one.key, one.fingerprint, 1, 1, one.size_bytes, one.secs, 0.0, 0.0, 1) for one in some])
    return EvictionCandidates(
        memos, np.array([one.at for one in some], np.float64), np.array([one.readers for one in some], np.int64)
    )


def chosen(some: list[Candidate], excess_bytes: int, at_a_time: int = 3) -> list[str]:
    listed = sorted(some, key=lambda one: (one.fingerprint, one.key))
    batches = (batch(listed[first : first + at_a_time]) for first in range(0, len(listed), at_a_time))
    return list(choose_for_budget(batches, excess_bytes).memo_key)


@given(
    st.lists(candidates, max_size=20, unique_by=lambda one: one.key),
    st.integers(-10, 400),
    st.integers(1, 7),
    st.integers(1, 30),
)
def test_a_budget_evicts_the_shortest_prefix_of_the_order(
    memos: list[Candidate], excess_bytes: int, at_a_time: int, few: int
) -> None:
    known = budget._FEW
    budget._FEW = few  # so that it leaves out memos in between
    try:
        found = chosen(memos, excess_bytes, at_a_time)
    finally:
        budget._FEW = known
    ordered = sorted(memos, key=lambda one: one.order)
    taken: list[Candidate] = []
    for one in ordered:
        if sum(each.size_bytes for each in taken) >= excess_bytes:
            break
        taken.append(one)
    assert found == [one.key for one in taken]


def test_the_order() -> None:
    unread = Candidate("unread", at=9 * DAY, secs=99, readers=0)
    old = Candidate("old", at=1.9 * DAY, secs=99)
    cheap = Candidate("cheap", at=2.9 * DAY, secs=1)
    large = Candidate("large", at=2.1 * DAY, size_bytes=1000, secs=2)
    shared = Candidate("shared", at=2.1 * DAY, secs=1, readers=3)
    fresh = Candidate("fresh", at=3 * DAY, secs=0)
    memos = [shared, fresh, cheap, old, unread, large]
    assert chosen(memos, 10_000) == ["unread", "old", "large", "cheap", "shared", "fresh"]
    assert chosen(memos, 21) == ["unread", "old", "large"]


def test_columns_keep_their_places_and_types() -> None:
    rows = [("k1", "f", 1, 2, 2**62, 0.5, 1.0, 2.0, 3), ("k0", "g", 4, 5, 6, 1.5, 7.0, 8.0, 9)]
    memos = StoredMemos.joined([StoredMemos.of(rows[:1]), StoredMemos.of(()), StoredMemos.of(rows[1:])])
    columns = [getattr(memos.at([1, 0]), field.name).tolist() for field in fields(StoredMemos)]
    assert list(zip(*columns, strict=True)) == rows[::-1]
    assert (len(memos), len(StoredMemos.of(()))) == (2, 0)
