"""Partition plans: every row and column stands on one core."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.errors import ConfigError
from trainer.planning.plan import PartitionPlan, Slice, TablePlan, cyclic_plan

TABLE = TablePlan("t", 10, 8, (Slice(0, 4, (0, 1)), Slice(4, 4, (2,), (10,))))


@given(st.integers(1, 300), st.integers(1, 40))
def test_a_cyclic_plan_has_every_row_once(rows, cores):
    (table,) = cyclic_plan([("t", rows, 4)], cores).tables
    assert [shard.rows for shard in table.shards()] == [len(range(core, rows, cores)) for core in range(cores)]


def test_the_kind_of_partition():
    assert TABLE.partition == "column and row"
    assert replace(TABLE, slices=(Slice(0, 8, (1,)),)).partition == "table"
    assert replace(TABLE, slices=(Slice(0, 4, (1,)), Slice(4, 4, (1,)))).partition == "column"
    assert replace(TABLE, slices=(Slice(0, 8, (1, 0), (3, 10)),)).partition == "row"
    assert replace(TABLE, slices=(Slice(0, 8, (1, 0)),), is_replicated=True).partition == "replicated"
    blocks = replace(TABLE, slices=(Slice(0, 8, (1, 0), (3, 10)),))
    assert [(shard.core, shard.rows) for shard in blocks.shards()] == [(1, 3), (0, 7)]


@pytest.mark.parametrize(
    ("slices", "message"),
    [
        ((Slice(0, 4, (0,)),), "hold all its columns"),
        ((Slice(0, 4, (0,)), Slice(5, 3, (0,))), "follow each other"),
        ((Slice(0, 8, (0, 0)),), "distinct cores"),
        ((Slice(0, 8, (4,)),), "distinct cores"),
        ((Slice(0, 8, (0, 1), (5, 9)),), "all rows, in order"),
        ((Slice(0, 8, (0, 1), (11, 10)),), "all rows, in order"),
    ],
)
def test_a_plan_that_is_not_whole_is_refused(slices, message):
    with pytest.raises(ConfigError, match=message):
        PartitionPlan(4, (replace(TABLE, slices=slices),))


def test_tables_and_stacks_have_one_place():
    with pytest.raises(ConfigError, match="different names"):
        PartitionPlan(4, (TABLE, TABLE))
    with pytest.raises(ConfigError, match="in one stack"):
        PartitionPlan(4, (TABLE,), (("t",), ("t",)))
    with pytest.raises(ConfigError, match="in one stack"):
        PartitionPlan(4, (TABLE,), (("other",),))
