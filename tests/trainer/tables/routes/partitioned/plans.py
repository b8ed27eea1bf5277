"""Partition plans of the tables of an engine."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from tests.trainer.planning.plans import plans as random_plans
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.tables.spec import FeatureSpec, TableSpec, tables_of


def plan_of(tables: Sequence[TableSpec], cores: int, slices: dict[str, Sequence[Slice]], replicated: str = "",
            stacks: tuple[tuple[str, ...], ...] = ()) -> PartitionPlan:  # fmt: skip
    """A plan with these slices, and with the rows of other tables on all cores; ``replicated``: a table with a copy on all cores."""
    everywhere = tuple(range(cores))
    return PartitionPlan(cores, tuple(
        TablePlan(one.name, one.vocabulary_size, one.dim, tuple(slices.get(one.name, (Slice(0, one.dim, everywhere),))),
                  one.name == replicated)
        for one in tables
    ), stacks)  # fmt: skip


def mixed_plan(features: Sequence[FeatureSpec], cores: int) -> PartitionPlan:
    """One kind of partition after the other: columns, blocks of rows, replicated, cyclic on some cores; columns only where they may be."""
    return PartitionPlan(
        cores, tuple(_mixed_table(table, cores, (k % 4)) for k, table in enumerate(tables_of(features)))
    )


def _mixed_table(table: TableSpec, cores: int, kind: int) -> TablePlan:
    name, rows, dim, everywhere = table.name, table.vocabulary_size, table.dim, tuple(range(cores))
    if kind == 0 and dim > 1 and _may_slice(table):
        cut = dim // 2
        last = Slice(cut, dim - cut, everywhere[::-1], tuple(rows * (k + 1) // cores for k in range(cores)))
        return TablePlan(name, rows, dim, (Slice(0, cut, everywhere[1:] or everywhere), last))
    if kind == 1:
        return TablePlan(name, rows, dim, (Slice(0, dim, everywhere, (0,) * (cores - 1) + (rows,)),))
    if kind == 2:
        return TablePlan(name, rows, dim, (Slice(0, dim, everywhere[: max(cores - 1, 1)]),), True)
    return TablePlan(name, rows, dim, (Slice(0, dim, everywhere[cores // 2 :]),))


def plans(features: Sequence[FeatureSpec], cores: int | None = None) -> st.SearchStrategy[PartitionPlan]:
    """Plans of all tables of ``features``, with slices of columns only where they may be."""
    return random_plans(
        [(one.name, one.vocabulary_size, one.dim, _may_slice(one)) for one in tables_of(features)], cores
    )


def _may_slice(table: TableSpec) -> bool:
    return not any(slot.is_row_wise for slot in table.optimizer.slots)
