"""Slots in ascending order of their rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainer.tables.routes.partitioned.slot_order import order_slots


@given(
    st.lists(st.sampled_from([0, 1, 2, 7, 40, 300, 3000]), min_size=1, max_size=4),
    st.sampled_from([1, 2, 15, 16, 300, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1]),
    st.integers(0, 100),
)
def test_slots_are_in_the_order_of_their_rows(counts, most, seed):
    """Equal rows stay in the order of their slots; other tables and the space between tables are left as they are."""
    draw = np.random.default_rng(seed)
    sizes = np.array(counts) + draw.integers(0, 3, len(counts))  # a table may have fewer slots than its ids
    starts = np.concatenate([[0], np.cumsum(sizes)])
    rows, order = draw.integers(0, most, starts[-1], dtype=np.int64), np.full(starts[-1], -1, np.int32)
    chosen = np.flatnonzero(draw.random(len(counts)) < 0.8)
    order_slots(chosen, starts, rows, np.array(counts), order)
    for t, count in enumerate(counts):
        own, left = order[starts[t] : starts[t] + count], order[starts[t] + count : starts[t + 1]]
        expected = np.argsort(rows[starts[t] : starts[t] + count], kind="stable") if t in chosen else np.full(count, -1)
        assert own.tolist() == expected.tolist()
        assert (left == -1).all()
