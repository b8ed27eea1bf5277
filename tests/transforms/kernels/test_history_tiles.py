"""Tiles are parts of a trie, whatever other rows it holds."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from transforms.kernels.history_tiles import tiles_of

TIMES = st.integers(0, 9) | st.integers(-40, 40) | st.integers(-(2**63), 2**63 - 1)
KEYS = st.lists(st.lists(TIMES, max_size=30).map(sorted), max_size=4)


def _differ(a: int, b: int) -> int:
    """The place of the highest bit that differs."""
    return ((a ^ b) & 2**64 - 1).bit_length()


@given(KEYS, st.integers(0, 12), st.integers(1, 4), st.integers(1, 8))
def test_tiles_hold_all_rows_whose_times_agree_in_their_high_bits(keys, begin, least, most):
    time = np.array([at for key in keys for at in key], np.int64)
    starts = np.cumsum([0, *(len(key) for key in keys)])
    begin = min(begin, len(time))
    while 0 < begin < len(time) and begin not in starts and time[begin - 1] == time[begin]:
        begin += 1
    bounds, of_keys = tiles_of(starts, time, begin, least, most)
    assert of_keys.tolist() == [sum(first < start for first, _ in bounds) for start in starts[:-1]] + [len(bounds)]
    assert all(a <= b for (_, a), (b, _) in pairwise(bounds))
    for first, end in bounds.tolist():
        key = int(np.searchsorted(starts, first, "right")) - 1
        assert begin <= first < end <= starts[key + 1]
        assert end - first >= least
        assert end - first <= max(most, math.isqrt(int(starts[key + 1] - starts[key]))) or time[first] == time[end - 1]
        inside = _differ(int(time[first]), int(time[end - 1]))
        others = [int(time[row]) for row in range(starts[key], starts[key + 1]) if not first <= row < end]
        assert all(_differ(other, int(time[first])) > inside for other in others)


def test_few_tiles_hold_the_rows_of_a_long_history():
    time = np.sort(np.random.default_rng(0).integers(0, 10**12, 100_000))
    bounds, _ = tiles_of(np.array([0, len(time)]), time, 0, 16, 128)
    assert np.diff(bounds).sum() > 99_000
    assert len(bounds) < len(time) / 100
