"""A sample says when a round begins: its shares are near those of all rows, and rows that cross are counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.planning.pruning_rounds import crossing_share, cut_off, draw_rows, kept_rows, sample_rows
from trainer.planning.row_groups import RowGroup


@given(st.lists(st.floats(0, 100, width=32), min_size=1, max_size=60), st.integers(0, 70))
def test_as_many_rows_as_may_be_kept_lie_above_the_cut_off(values, kept):
    importance = np.array(values, np.float32)
    least = cut_off(importance, kept)
    above = int((importance > least).sum())
    assert above <= kept
    if kept < len(values):
        assert above + int((importance == np.float32(least)).sum()) > kept


def test_a_round_leaves_a_share_of_a_group_free():
    cases = ((10, 0.0), (10, 0.25), (1, 0.9), (1000, 0.9))
    assert [kept_rows(RowGroup((0,), rows), share) for rows, share in cases] == [10, 8, 1, 100]


def test_rows_that_crossed_are_those_above_the_cut_off_without_a_place():
    importance = np.array([5, 4, 3, 2, 1, 0.5, 0.2, 0.1], np.float32)
    is_kept = np.array([True, False, True, False, False, False, True, True])
    assert crossing_share(importance, is_kept) == 2 / 4
    assert crossing_share(importance, importance > 1.5) == 0
    none = np.zeros(8, bool)
    assert crossing_share(importance, none) == crossing_share(importance, ~none) == 0
    assert crossing_share(importance[:0], is_kept[:0]) == 0


def test_rows_that_fell_below_the_cut_off_count_where_rows_at_it_have_no_place():
    """No row is above the cut-off, so none has crossed it upwards; yet two rows have places that more important ones lack."""
    importance = np.array([1, 1, 1, 0, 0], np.float32)
    assert crossing_share(importance, np.array([False, False, False, True, True])) == 1


@st.composite
def groups(draw, values):
    """The importance of some rows, and which of them have places."""
    importance = draw(st.lists(values, min_size=1, max_size=40))
    is_kept = draw(st.lists(st.booleans(), min_size=len(importance), max_size=len(importance)))
    return np.array(importance, np.float32), np.array(is_kept)


def crossed(importance, is_kept, places):
    """How many rows have crossed the cut-off of so many places upwards, and downwards."""
    least = np.float32(cut_off(importance, places))
    return int(((importance > least) & ~is_kept).sum()), int(((importance < least) & is_kept).sum())


@given(groups(st.integers(0, 4)) | groups(st.floats(0, 9, width=32)), st.integers(0, 40))
def test_both_directions_are_equal_but_for_free_places_and_rows_at_the_cut_off(group, free):
    """A place is free, or has a row above the cut-off, at it or below: so where no place is free and no row is at it, equally many have crossed."""
    importance, is_kept = group
    places = min(int(is_kept.sum()) + free, len(importance))
    least, free = np.float32(cut_off(importance, places)), places - int(is_kept.sum())
    upwards, downwards = crossed(importance, is_kept, places)
    places_of_equal_rows = places - int((importance > least).sum())
    assert upwards + places_of_equal_rows == downwards + int(is_kept[importance == least].sum()) + free


@given(groups(st.integers(0, 4)) | groups(st.floats(0, 9, width=32)))
def test_the_share_counts_the_fewest_changes_that_give_the_places_to_the_most_important_rows(group):
    importance, is_kept = group
    kept = int(is_kept.sum())
    # Of rows of equal importance those with a place come first: none of them leaves for another one.
    best = np.lexsort((~is_kept, -importance))[:kept]
    changes = int((~is_kept[best]).sum())
    assert crossing_share(importance, is_kept) * kept == pytest.approx(changes)


@given(groups(st.integers(0, 4)) | groups(st.floats(0, 9, width=32)), st.data())
def test_a_row_that_was_drawn_several_times_counts_as_often(group, data):
    importance, is_kept = group
    times = np.array(data.draw(st.lists(st.integers(1, 4), min_size=len(importance), max_size=len(importance))))
    every = np.repeat(np.arange(len(times)), times)
    assert crossing_share(importance, is_kept, times) == crossing_share(importance[every], is_kept[every])


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(1, 60), st.integers(0, 9))
def test_a_sample_of_tables_is_drawn_from_all_of_their_rows(sizes, count, seed):
    """Few rows are counted, many are listed: the same rows either way."""
    found = draw_rows(np.random.default_rng(seed), sizes, count)
    drawn = np.sort(np.random.default_rng(seed).integers(0, sum(sizes), count))
    listed = [first + np.repeat(one.rows, one.times) for first, one in zip(np.cumsum([0, *sizes]), found, strict=False)]
    assert np.concatenate(listed).tolist() == drawn.tolist()
    if sum(sizes) < count:
        assert all(len(np.unique(one.rows)) == len(one.rows) for one in found)


@pytest.mark.parametrize("kept_share", [0.01, 0.5])
@pytest.mark.parametrize("crossed_share", [0.0, 0.02])
def test_a_sample_counts_what_has_crossed_in_its_own_rows(kept_share, crossed_share):
    """By the cut-off of a sample's own places no row seems to have crossed when none has, whatever rows were drawn."""
    draw = np.random.default_rng(0)
    rows = 1_000_000
    importance = np.sort(draw.pareto(1.0, rows).astype(np.float32))[::-1]
    kept = int(rows * kept_share)
    crossed = int(kept * crossed_share)
    is_kept = np.arange(rows) < kept
    is_kept[:crossed], is_kept[kept : kept + crossed] = False, True
    for _ in range(5):
        sampled = draw.integers(0, rows, sample_rows(0.01))
        found = crossing_share(importance[sampled], is_kept[sampled])
        assert (
            found == 0
            if not crossed
            else abs(found - crossed_share) < 5 * (crossed_share / (26_492 * kept_share)) ** 0.5
        )


@pytest.mark.parametrize("kept_share", [0.1, 0.5])
def test_a_sample_is_as_near_as_its_size_promises(kept_share):
    """In all of 40 samples; one in 100 may be further away."""
    draw = np.random.default_rng(0)
    importance = draw.pareto(1.0, 1_000_000)
    assert sample_rows(0.01) == 26_492
    far = 0
    for _ in range(40):
        least = cut_off(draw.choice(importance, sample_rows(0.01)), int(kept_share * sample_rows(0.01)))
        far += abs(float((importance > least).mean()) - kept_share) > 0.01
    assert far <= 2
