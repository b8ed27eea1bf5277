"""Shards of any plan join to the rows they were cut from, bit for bit; shards of another plan are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.checkpoints.shard_rows import RowsOfTable, cut_shard, join_shards, stored_shards
from trainer.errors import TornCheckpoint
from trainer.planning.plan import Slice, TablePlan, cyclic_plan

#: Whether each slot is row-wise.
SLOTS = (False, True, False)


def _table(draw: st.DrawFn, rows: int, columns: int) -> TablePlan:
    if draw(st.booleans()) and draw(st.booleans()):
        return TablePlan("t", rows, columns, (Slice(0, columns, (2, 0, 1)),), is_replicated=True)
    ends = sorted({*draw(st.lists(st.integers(1, columns), max_size=3)), columns})
    slices = []
    for first, end in zip((0, *ends), ends, strict=False):
        cores = tuple(draw(st.lists(st.integers(0, 7), min_size=1, max_size=6, unique=True)))
        inner = st.lists(st.integers(0, rows), min_size=len(cores) - 1, max_size=len(cores) - 1)
        blocks = (*sorted(draw(inner)), rows) if draw(st.booleans()) else ()
        slices.append(Slice(first, end - first, cores, blocks))
    return TablePlan("t", rows, columns, tuple(slices))


@st.composite
def _chains(draw: st.DrawFn) -> tuple[list[TablePlan], tuple[bool, ...], RowsOfTable]:
    rows, columns = draw(st.integers(1, 40)), draw(st.integers(1, 6))
    slots = tuple(draw(st.lists(st.booleans(), max_size=3)))
    plans = [_table(draw, rows, columns) for _ in range(draw(st.integers(1, 4)))]
    changed = sorted(draw(st.sets(st.integers(0, rows - 1))))
    return plans, slots, _state(np.array(changed, np.int64), columns, slots)


def _state(rows: np.ndarray, columns: int, slots: tuple[bool, ...]) -> RowsOfTable:  # type: ignore[type-arg]
    bits = np.random.default_rng(7)  # any bits, those of NaN included
    width = sum(1 if is_row_wise else columns for is_row_wise in slots)
    weights, values = (bits.integers(0, 2**32, (len(rows), w), np.uint32).view(np.float32) for w in (columns, width))
    return RowsOfTable(rows, weights, values)


def _bytes(state: RowsOfTable) -> list[tuple[tuple[int, ...], bytes]]:
    return [(array.shape, array.tobytes()) for array in (state.rows, state.weights, state.slots)]


@given(_chains())
def test_any_chain_of_plans_keeps_every_bit(chain: tuple[list[TablePlan], tuple[bool, ...], RowsOfTable]) -> None:
    plans, slots, state = chain
    through = state
    for plan in plans:
        shards = [cut_shard(through, plan, shard, slots) for shard in stored_shards(plan)]
        through = join_shards(shards, plan, slots)
    assert _bytes(through) == _bytes(state)


def test_shards_of_another_plan_are_refused() -> None:
    (table,) = cyclic_plan([("t", 10, 2)], 2).tables
    state = _state(np.arange(10), 2, SLOTS)
    first, second = (cut_shard(state, table, shard, SLOTS) for shard in stored_shards(table))
    with pytest.raises(TornCheckpoint, match="a shard must hold rows of its own"):
        join_shards([second, first], table, SLOTS)
    with pytest.raises(TornCheckpoint, match="all shards of its plan"):
        join_shards([first], table, SLOTS)
    with pytest.raises(TornCheckpoint, match="the columns of its slice"):
        join_shards([RowsOfTable(first.rows, first.weights[:, :1], first.slots), second], table, SLOTS)


def test_slices_with_different_rows_are_refused() -> None:
    table = TablePlan("t", 10, 2, (Slice(0, 1, (0,)), Slice(1, 1, (1,))))
    state = _state(np.arange(10), 2, SLOTS)
    first, second = (cut_shard(state, table, shard, SLOTS) for shard in stored_shards(table))
    less = RowsOfTable(second.rows[1:], second.weights[1:], second.slots[1:])
    with pytest.raises(TornCheckpoint, match="the same rows"):
        join_shards([first, less], table, SLOTS)
