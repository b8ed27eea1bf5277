"""The laws of hybrid placement: frames, convergence, drift, moves and determinism."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.errors import ConfigError
from trainer.planning.half_lives import HalfLives
from trainer.planning.hot_rows import HotRows
from trainer.planning.row_heat import RowHeat

ROWS = 40


@st.composite
def batches(draw, rows=ROWS):
    """Distinct rows with their lookups, in any order."""
    found = []
    for _ in range(draw(st.integers(1, 30))):
        lookups = draw(st.dictionaries(st.integers(0, rows - 1), st.integers(1, 50), max_size=rows))
        found.append((np.array(list(lookups), np.int64), np.array(list(lookups.values()), np.int64)))
    return found


def zipf_batches(count, size, rows, exponent=1.2, seed=0, shift=0):
    source = np.random.default_rng(seed)
    shares = np.arange(1, rows + 1) ** -exponent
    ids = source.choice(rows, (count, size), p=shares / shares.sum())
    return [np.unique((one + shift) % rows, return_counts=True) for one in ids]


def run(policy, some):
    """The hit rate and the moves of each batch."""
    rates, moves = [], []
    for rows, lookups in some:
        rates.append(lookups[policy.frames_of(rows) >= 0].sum() / lookups.sum())
        moves.append(len(policy.decide(rows, lookups)))
    return np.array(rates), np.array(moves)


@pytest.mark.medium
@settings(max_examples=scaled(150))
@given(batches(), st.integers(1, ROWS), st.sampled_from([0.0, 1.0, 5.0]), st.sampled_from([None, 3.0, 1e6]),
       st.sampled_from([16, 1 << 24]))  # fmt: skip
def test_moves_lead_from_one_placement_to_the_next(some, frames, move_lookups, half_life, cells):
    policy = HotRows(ROWS, frames, move_lookups=move_lookups, half_life=half_life, cells=cells)
    held: dict[int, int] = {}
    for rows, lookups in some:
        moves = policy.decide(rows, lookups)
        for row, frame, out in zip(moves.rows_in.tolist(), moves.frames.tolist(), moves.rows_out.tolist(), strict=True):
            assert held.pop(frame, -1) == out
            assert 0 <= frame < frames
            assert row in rows
            held[frame] = row
        assert len(set(held.values())) == len(held) <= frames
        assert [held[frame] for frame in range(len(held))] == policy.placed().tolist()
        expected = np.full(ROWS, -1)
        expected[list(held.values())] = list(held)
        assert np.array_equal(policy.frames_of(np.arange(ROWS)), expected)


@pytest.mark.medium
@settings(max_examples=scaled(60))
@given(batches(), st.integers(1, ROWS), st.randoms(use_true_random=False))
def test_equal_batches_give_equal_decisions_in_any_order_of_rows(some, frames, source):
    one, other = HotRows(ROWS, frames), HotRows(ROWS, frames)
    for rows, lookups in some:
        order = source.sample(range(len(rows)), len(rows))
        first, second = one.decide(rows, lookups), other.decide(rows[order], lookups[order])
        for name in ("rows_in", "frames", "rows_out"):
            assert np.array_equal(getattr(first, name), getattr(second, name))


@pytest.mark.medium
def test_the_most_frequent_rows_are_found_and_stay():
    rows, frames = 5_000, 500
    rates, moves = run(policy := HotRows(rows, frames), zipf_batches(1_500, 1_000, rows))
    shares = np.arange(1, rows + 1) ** -1.2
    assert rates[-300:].mean() > shares[:frames].sum() / shares.sum() - 0.01
    assert (policy.frames_of(np.arange(frames // 4)) >= 0).all()
    assert moves[-300:].sum() < 0.2 * moves[:300].sum()


def test_without_drift_moves_end():
    """Each batch looks up the same rows, more than there are frames, at their rates."""
    lookups = np.arange(1, 101)
    policy = HotRows(100, 10)
    _, moves = run(policy, [(np.arange(100), lookups)] * 200)
    assert not moves[20:].any()
    assert sorted(policy.placed()) == list(range(90, 100))


def test_drift_is_followed():
    """The popularity of all rows changes at once: the hit rate comes back."""
    rows, frames = 5_000, 500
    policy = HotRows(rows, frames)
    before, _ = run(policy, zipf_batches(500, 1_000, rows))
    after, _ = run(policy, zipf_batches(500, 1_000, rows, seed=1, shift=rows // 2))
    assert after[0] < 0.5 * before[-100:].mean()
    assert after[-100:].mean() > before[-100:].mean() - 0.02


def test_the_price_of_a_move_saves_moves():
    rows, some = 5_000, zipf_batches(400, 1_000, 5_000, exponent=0.8)
    found = [run(HotRows(rows, 500, move_lookups=price), some) for price in (0.0, 1.0, 4.0)]
    assert found[0][1].sum() > 1.3 * found[1][1].sum() > 1.3 * found[2][1].sum() > 0


def test_a_row_on_its_first_lookup_takes_no_place():
    policy = HotRows(10, 2)
    for row in (0, 0, 1, 1):
        policy.decide(np.array([row]), np.array([1]))
    assert not len(policy.decide(np.array([5]), np.array([1])))
    assert set(policy.placed()) == {0, 1}


def test_a_large_table_shares_cells():
    """Fewer cells than rows cost little while most rows are cold."""
    some = zipf_batches(400, 1_000, 20_000, exponent=1.1)
    exact, _ = run(HotRows(20_000, 500), some)
    shared, _ = run(HotRows(20_000, 500, cells=8_000), some)
    assert shared[-100:].mean() > exact[-100:].mean() - 0.03


@settings(max_examples=scaled(60))
@given(batches(), st.sampled_from([2.0, 30.0, 1e4]))
def test_heat_is_the_aged_sum_of_lookups(some, half_life):
    """A half-life of few lookups makes the scale of stored heat begin anew many times."""
    heat, shared = RowHeat(ROWS, half_life), RowHeat(ROWS, half_life, cells=8)
    expected = np.zeros(ROWS)
    for rows, lookups in some:
        heat.add(rows, lookups)
        shared.add(rows, lookups)
        expected *= 0.5 ** (lookups.sum() / half_life)
        expected[rows] += lookups
    np.testing.assert_allclose(heat.of(np.arange(ROWS)), expected, rtol=1e-4, atol=1e-5)
    assert (shared.of(np.arange(ROWS)) >= expected * (1 - 1e-4) - 1e-5).all()


def test_a_half_life_is_chosen_by_what_it_would_have_hit():
    """Rows that stay popular need a long memory, rows that are looked up for a short time a short one."""
    rows, frames = 4_000, 200
    steady = HalfLives(rows, frames, 0.0)
    for one in zipf_batches(600, 500, rows, exponent=0.7):
        steady.add(*one)
    source, brief = np.random.default_rng(0), HalfLives(rows, frames, 0.0)
    for first in range(0, 60_000, 50):
        window = (first + source.integers(0, 150, 500)) % rows
        brief.add(*np.unique(window, return_counts=True))
    assert steady.best > 16 * frames > brief.best


@pytest.mark.parametrize(
    ("rows", "frames", "options"),
    [
        (5, 0, {}),
        (5, 6, {}),
        (5, 2, {"move_lookups": -1.0}),
        (5, 2, {"move_lookups": float("nan")}),
        (5, 2, {"half_life": 0.0}),
    ],
)
def test_impossible_sizes_are_refused(rows, frames, options):
    with pytest.raises(ConfigError):
        HotRows(rows, frames, **options)
