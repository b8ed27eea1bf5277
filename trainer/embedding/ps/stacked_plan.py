"""Where rows stand on parameter servers: tables of equal width and optimizer are stacked, and the rows of a stack are spread cyclically."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.embedding.spec import TableSpec
from trainer.planning.plan import PartitionPlan, Slice, TablePlan


def stack_order(tables: Sequence[TableSpec]) -> list[int]:
    """The positions of tables by width, in a width by optimizer, in a stack as given: how they stand in messages."""
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
    for t in stack_order(tables):
        table = tables[t]
        start = base.get((table.dim, table.optimizer), 0)
        base[table.dim, table.optimizer] = start + table.vocabulary_size
        cores = tuple((start + place) % servers for place in range(servers))
        plans[t] = TablePlan(table.name, table.vocabulary_size, table.dim, (Slice(0, table.dim, cores),))
    stacks: dict[tuple[int, object], list[str]] = {}
    for t in stack_order(tables):
        stacks.setdefault((tables[t].dim, tables[t].optimizer), []).append(tables[t].name)
    return PartitionPlan(servers, tuple(plans[t] for t in range(len(tables))), tuple(map(tuple, stacks.values())))
