"""The rows of a key as parts: all of them, in order, with tiles that are parts of the trie of all."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from transforms.online.kernel_rows import TileSizes
from transforms.online.key_parts import KeyParts, Part, tiled, with_rows
from transforms.online.row_block import RowBlock

SIZES = TileSizes(1, 3, 5)
STATES = ("x", "", "", 0.0)


def rows_at(times: list[int]) -> RowBlock:
    """Rows with these times, whose values depend on them alone."""
    return RowBlock(np.array(times, np.int64), {"x": pa.array([at / 7 for at in times], pa.float64())}, {})


def _differ(a: int, b: int) -> int:
    """The place of the highest bit that differs."""
    return ((a ^ b) & 2**64 - 1).bit_length()


def check(parts: KeyParts, times: list[int]) -> None:
    """Parts hold rows of all times, and each tile those whose times agree in the bits in which its own do, with their state."""
    held = [part.block.time.tolist() for part in parts]
    assert [at for one in held for at in one] == sorted(times)
    assert all(before[-1] < after[0] for before, after in pairwise(held))
    for part in parts:
        assert part.block.columns["x"].to_pylist() == [at / 7 for at in part.block.time.tolist()]
        states = part.rows.states(STATES).states
        last_row = part.start
        for tile in range(part.begin, part.end):
            first, end = part.rows.bounds[tile].tolist()
            assert last_row <= first < end <= part.stop
            last_row = end
            own = part.rows.time[first:end].tolist()
            assert [at for at in sorted(times) if _differ(at, own[0]) <= _differ(own[0], own[-1])] == own
            alone, _ = tiled(rows_at(own), np.array([0, len(own)]), TileSizes(1, 1 << 20, 1 << 20))
            assert alone.states(STATES).states.tolist() == [states[tile].tolist()]


@given(st.lists(st.lists(st.integers(-20, 60), min_size=1, max_size=9), min_size=1, max_size=12), st.integers(0, 3))
def test_rows_may_be_added_in_any_order(added, ahead):
    """The rows of a key that comes after another one."""
    times = sorted(added[0])
    both, tiles = tiled(rows_at([0] * ahead + times), np.array([0, ahead, ahead + len(times)]), SIZES)
    both.states(STATES)
    parts: KeyParts = (Part(both, ahead, ahead + len(times), int(tiles[1]), int(tiles[2])),)
    check(parts, times)
    for new in added[1:]:
        times += new
        parts = with_rows(parts, rows_at(sorted(new)), SIZES)
        check(parts, times)
        assert all(part.size >= SIZES.untiled for part in parts[:-1] if part.stop == len(part.rows.time))


def test_rows_one_by_one_make_few_parts_and_few_copies():
    draw = np.random.default_rng(0)
    sizes = TileSizes(4, 16, 32)
    parts: KeyParts = ()
    times: list[int] = []
    copied = most = 0
    for k in range(5_000):
        at = 100 * (k - int(draw.integers(0, 11)))  # up to ten rows late, many of the time of another one
        times.append(at)
        held = {id(part.rows) for part in parts}
        parts = with_rows(parts, rows_at([at]), sizes)
        parts[-1].rows.states(STATES)
        copied += sum(len(part.rows.time) for part in parts if id(part.rows) not in held)
        most = max(most, len(parts))
        assert all(before.last_micros < after.first_micros for before, after in pairwise(parts))
    check(parts, times)
    assert most <= 7
    assert copied < 5_000 * 60
    tiled_rows = sum(int(np.diff(part.rows.bounds[part.begin : part.end]).sum()) for part in parts)
    assert tiled_rows > 4_500
