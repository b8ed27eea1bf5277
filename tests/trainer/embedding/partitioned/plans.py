"""Partition plans of all kinds for tests."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from trainer.embedding.spec import FeatureSpec, TableSpec, tables_of
from trainer.planning.plan import PartitionPlan, Slice, TablePlan


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
    if kind == 0 and dim > 1 and not any(slot.is_row_wise for slot in table.optimizer.slots):
        cut = dim // 2
        last = Slice(cut, dim - cut, everywhere[::-1], tuple(rows * (k + 1) // cores for k in range(cores)))
        return TablePlan(name, rows, dim, (Slice(0, cut, everywhere[1:] or everywhere), last))
    if kind == 1:
        return TablePlan(name, rows, dim, (Slice(0, dim, everywhere, (0,) * (cores - 1) + (rows,)),))
    if kind == 2:
        return TablePlan(name, rows, dim, (Slice(0, dim, everywhere[: max(cores - 1, 1)]),), True)
    return TablePlan(name, rows, dim, (Slice(0, dim, everywhere[cores // 2 :]),))


def _blocks(draw: st.DrawFn, cores: int, rows: int) -> tuple[int, ...]:
    return (*sorted(draw(st.lists(st.integers(0, rows), min_size=cores - 1, max_size=cores - 1))), rows)


@st.composite
def table_plans(draw: st.DrawFn, table: TableSpec, cores: int) -> TablePlan:
    """A table plan of any kind."""
    name, rows, dim = table.name, table.vocabulary_size, table.dim
    some_cores = st.lists(st.integers(0, cores - 1), min_size=1, max_size=cores, unique=True).map(tuple)
    if draw(st.integers(0, 3)) == 0:
        return TablePlan(name, rows, dim, (Slice(0, dim, draw(some_cores)),), True)
    cuts: list[int] = []
    if dim > 1 and not any(slot.is_row_wise for slot in table.optimizer.slots):
        cuts = sorted(draw(st.sets(st.integers(1, dim - 1))))
    slices = []
    for first, stop in zip([0, *cuts], [*cuts, dim], strict=True):
        on = draw(some_cores)
        slices.append(Slice(first, stop - first, on, _blocks(draw, len(on), rows) if draw(st.booleans()) else ()))
    return TablePlan(name, rows, dim, tuple(slices))


@st.composite
def plans(draw: st.DrawFn, features: Sequence[FeatureSpec], cores: int | None = None) -> PartitionPlan:
    """A plan of all tables of ``features``, sometimes with stacks."""
    tables = tables_of(features)
    count = cores or draw(st.integers(1, 5))
    stacks: tuple[tuple[str, ...], ...] = ()
    if draw(st.booleans()):
        names = draw(st.permutations([table.name for table in tables]))
        cut = draw(st.integers(0, len(names)))
        stacks = tuple(tuple(part) for part in (names[:cut], names[cut:]) if part)
    return PartitionPlan(count, tuple(draw(table_plans(table, count)) for table in tables), stacks)
