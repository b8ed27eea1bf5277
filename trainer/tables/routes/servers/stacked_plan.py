"""The placement of rows on parameter servers: tables of equal width and optimizer are stacked, and the rows of a stack are spread cyclically."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.errors import ConfigError
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.tables.spec import TableSpec


def width_order(tables: Sequence[TableSpec]) -> list[int]:
    """The positions of tables by width, in a width by optimizer, in a stack as given: their order in messages."""
    first: dict[tuple[int, object], int] = {}
    for t, table in enumerate(tables):
        first.setdefault((table.dim, table.optimizer), t)
    return sorted(range(len(tables)), key=lambda t: (tables[t].dim, first[tables[t].dim, tables[t].optimizer], t))


def stacked_plan(tables: Sequence[TableSpec], servers: int) -> PartitionPlan:
    """The plan by which row r of a stack is on server r mod ``servers``: a table begins where the one before it in its stack ends.

    So first rows, which are the most frequent ones of sorted vocabularies, are on different servers. Tables with the same rows and widths get
    the same plan; the plan may be used as any other one.
    """
    base: dict[tuple[int, object], int] = {}
    plans = {}
    for t in width_order(tables):
        table = tables[t]
        start = base.get((table.dim, table.optimizer), 0)
        base[table.dim, table.optimizer] = start + table.vocabulary_size
        cores = tuple((start + place) % servers for place in range(servers))
        plans[t] = TablePlan(table.name, table.vocabulary_size, table.dim, (Slice(0, table.dim, cores),))
    stacks: dict[tuple[int, object], list[str]] = {}
    for t in width_order(tables):
        stacks.setdefault((tables[t].dim, tables[t].optimizer), []).append(tables[t].name)
    return PartitionPlan(servers, tuple(plans[t] for t in range(len(tables))), tuple(map(tuple, stacks.values())))


def with_stacks(plan: PartitionPlan | None, tables: Sequence[TableSpec], servers: int) -> PartitionPlan:
    """The plan, with :func:`stacked_plan` for tables that it does not have. Raises :class:`ConfigError` for a plan of other servers."""
    if plan is None:
        return stacked_plan(tables, servers)
    if plan.cores != servers:
        raise ConfigError("a plan must have a core for each server", value=plan.cores, allowed=str(servers))
    planned = {one.name for one in plan.tables}
    others = [table for table in tables if table.name not in planned]
    return PartitionPlan(servers, (*plan.tables, *stacked_plan(others, servers).tables))
