"""Tiles that stay while rows are added: those that hold no new row, in the trie of all rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.online.kernel_rows import KernelRows, KeyRows, TileSizes, continued, tiled
from transforms.online.row_block import RowBlock

SIZES = TileSizes(1, 3, 5)


def rows_at(times: list[int]) -> RowBlock:
    """Rows with these times, whose values depend on them alone."""
    return RowBlock(np.array(times, np.int64), {"x": pa.array([at / 7 for at in times], pa.float64())}, {})


def _differ(a: int, b: int) -> int:
    """The place of the highest bit that differs."""
    return ((a ^ b) & 2**64 - 1).bit_length()


def check_tiles(rows: KernelRows) -> None:
    """Each tile holds all rows whose times agree in the bits in which its own do, and its state is that of its rows."""
    times = rows.time.tolist()
    for (first, end), state in zip(rows.bounds.tolist(), rows.states(("x", "", "", 0.0)).states, strict=True):
        inside = _differ(times[first], times[end - 1])
        assert all(_differ(at, times[first]) > inside for at in times[:first] + times[end:])
        alone, _ = tiled(rows_at(times[first:end]), np.array([0, end - first]), TileSizes(1, 1 << 20, 1 << 20))
        assert alone.states(("x", "", "", 0.0)).states.tolist() == [state.tolist()]


@given(st.lists(st.lists(st.integers(-20, 60), min_size=1, max_size=6), min_size=1, max_size=8), st.integers(0, 3))
def test_tiles_without_a_new_row_stay_and_are_parts_of_the_trie_of_all(added, ahead):
    """Rows of a key that comes after another one."""
    times = sorted(added[0])
    both, tiles = tiled(rows_at([0] * ahead + times), np.array([0, ahead, ahead + len(times)]), SIZES)
    both.states(("x", "", "", 0.0))
    held = KeyRows(both, ahead, ahead + len(times), int(tiles[1]), int(tiles[2]))
    for new in added[1:]:
        times = sorted(times + new)
        rows = continued(held, rows_at(times), min(new), SIZES)
        check_tiles(rows)
        tail = len(times) - (int(rows.bounds[-1, 1]) if len(rows.bounds) else 0)
        assert tail < SIZES.untiled
        held = KeyRows.all_of(rows)


def test_only_new_tiles_need_states():
    times = list(range(0, 4_000, 10))
    rows, _ = tiled(rows_at(times), np.array([0, len(times)]), TileSizes(4, 16, 32))
    assert rows.needs_states
    before = rows.states(("x", "", "", 0.0)).states.tolist()
    assert not rows.needs_states
    few = continued(KeyRows.all_of(rows), rows_at([*times, 5_000]), 5_000, TileSizes(4, 16, 32))
    assert not few.needs_states
    many = [*times, *range(5_000, 5_400, 10)]
    more = continued(KeyRows.all_of(rows), rows_at(many), 5_000, TileSizes(4, 16, 32))
    assert more.needs_states
    kept = len(few.bounds)
    assert more.states(("x", "", "", 0.0)).states[:kept].tolist() == before[:kept]
    check_tiles(more)


@pytest.mark.parametrize("offset", [0, 3, 8, 13])
def test_a_slice_is_read_where_it_begins(offset):
    draw = np.random.default_rng(offset)
    size = 40
    truths = pa.array(draw.random(size) < 0.5, mask=draw.random(size) < 0.3)
    floats = pa.array(draw.random(size).astype(np.float32), mask=draw.random(size) < 0.3)
    whole = RowBlock(np.arange(size), {"truths": truths, "floats": floats, "times": pa.array(np.arange(size)).cast(pa.timestamp("us", "UTC"))}, {})  # fmt: skip
    rows = KernelRows(whole.part(offset, size))

    def bits(given: np.ndarray) -> list[bool]:
        return np.unpackbits(given, count=size - offset, bitorder="little").astype(bool).tolist()

    kept = truths.slice(offset)
    assert bits(rows.used("truths")) == kept.fill_null(False).to_pylist()
    assert bits(rows.values("truths").valid) == kept.is_valid().to_pylist()
    assert [one for one, valid in zip(bits(rows.values("truths").truths), kept.is_valid().to_pylist(), strict=True) if valid] == kept.drop_null().to_pylist()  # fmt: skip
    numbers = rows.values("floats").whole.view(np.float64)
    assert [one for one, valid in zip(numbers.tolist(), floats.slice(offset).is_valid().to_pylist(), strict=True) if valid] == floats.slice(offset).drop_null().to_pylist()  # fmt: skip
    assert rows.values("times").whole.tolist() == list(range(offset, size))
