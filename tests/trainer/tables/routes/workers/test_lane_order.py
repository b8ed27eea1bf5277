"""Laws of the order in which batches go over lanes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from trainer.tables.routes.workers.lane_order import lane_of

LANES, HELD = st.integers(1, 9), st.integers(1, 66)


@given(LANES, HELD, st.integers(1, 1000))
def test_a_batch_and_the_update_that_is_sent_with_its_lookup_are_in_different_lanes(lanes, held, first):
    if lanes > 1:
        assert lane_of(first, lanes, held) != lane_of(first + held, lanes, held)


@given(LANES, HELD, st.integers(1, 1000))
def test_lanes_have_equally_many_batches(lanes, held, first):
    count = lanes * held
    found = Counter(lane_of(first + step, lanes, held) for step in range(count))
    assert max(found.values()) - min(found[lane] for lane in range(lanes)) <= 2


@given(LANES, HELD, st.integers(1, 1000))
def test_a_lane_has_few_of_consecutive_batches(lanes, held, first):
    """As many as a worker keeps for its updates."""
    found = Counter(lane_of(first + step, lanes, held) for step in range(held))
    assert max(found.values()) <= -(-held // lanes) + 1
