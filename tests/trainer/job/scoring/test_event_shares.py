"""Which events each host scores."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainer.job.scoring.event_shares import EventRange, event_ranges


def test_consecutive_events_are_shared_out_in_whole_batches():
    assert event_ranges([5, 3], 0, 2, 2) == (EventRange(0, 0, 4),)
    assert event_ranges([5, 3], 1, 2, 2) == (EventRange(0, 4, 5), EventRange(1, 0, 3))
    assert event_ranges([5, 3], 0, 2, 9) == ()
    assert event_ranges([5, 3], 1, 2, 9) == (EventRange(0, 0, 5), EventRange(1, 0, 3))
    assert event_ranges([], 0, 1, 9) == ()


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(1, 6), st.integers(1, 5))
def test_the_hosts_by_rank_have_all_events_in_order(rows, hosts, batch_rows):
    shares = [event_ranges(rows, rank, hosts, batch_rows) for rank in range(hosts)]
    every = [(one.fragment, event) for share in shares for one in share for event in range(one.first, one.stop)]
    assert every == [(number, event) for number, count in enumerate(rows) for event in range(count)]
    batches = [-(-sum(one.stop - one.first for one in share) // batch_rows) for share in shares]
    assert max(batches) == -(-sum(batches) // hosts), "no host has more batches than it must"
