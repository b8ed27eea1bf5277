"""A sample says when a round begins: its shares are near those of all rows, and rows that cross are counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.planning.pruning_rounds import crossing_share, cut_off, kept_rows, sample_rows
from trainer.planning.row_groups import RowGroup


@given(st.lists(st.floats(0, 100, width=32), min_size=1, max_size=60), st.floats(0, 1))
def test_as_many_rows_as_may_be_kept_lie_above_the_cut_off(values, kept_share):
    importance = np.array(values, np.float32)
    least = cut_off(importance, kept_share)
    above, kept = int((importance > least).sum()), int(kept_share * len(values))
    assert above <= kept
    if kept < len(values):
        assert above + int((importance == np.float32(least)).sum()) > kept


def test_a_round_leaves_a_share_of_a_group_free():
    cases = ((10, 0.0), (10, 0.25), (1, 0.9), (1000, 0.9))
    assert [kept_rows(RowGroup((0,), rows), share) for rows, share in cases] == [10, 8, 1, 100]


def test_rows_that_crossed_are_those_above_the_cut_off_without_a_place():
    importance = np.array([5, 4, 3, 2, 1, 0.5, 0.2, 0.1], np.float32)
    is_kept = np.array([True, False, True, False, False, False, True, True])
    assert crossing_share(importance, is_kept, 0.5) == 2 / 8 / 0.5
    assert crossing_share(importance, importance > 1.5, 0.5) == 0
    assert crossing_share(importance, is_kept, 0.0) == crossing_share(importance[:0], is_kept[:0], 0.5) == 0


@pytest.mark.parametrize("kept_share", [0.1, 0.5])
def test_a_sample_is_as_near_as_its_size_promises(kept_share):
    """In all of 40 samples; one in 100 may be further away."""
    draw = np.random.default_rng(0)
    importance = draw.pareto(1.0, 1_000_000)
    assert sample_rows(0.01) == 26_492
    far = 0
    for _ in range(40):
        least = cut_off(draw.choice(importance, sample_rows(0.01)), kept_share)
        far += abs(float((importance > least).mean()) - kept_share) > 0.01
    assert far <= 2
