"""What the engines on TPUs take of a partition plan: its stacks and replicated tables; and what they do not take, in words. Pure.

``TPUEmbeddingV2`` spreads the rows of every table cyclically over all SparseCores of a slice. It lets its caller say which tables are
stacked, if they have equal padded widths, optimizers and quantization. ``TPUEmbedding``, of v2 to v4, takes neither.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from trainer.planning.plan import PartitionPlan, TablePlan
from trainer.planning.stacks import stacked
from trainer.tables.spec import TableSpec

_SHOWN: Final = 6
_SPREAD: Final = "the rows of each are spread cyclically over all SparseCores"


def stack_groups(tables: Sequence[TableSpec], stacks: Sequence[Sequence[str]]) -> dict[str, tuple[int, int]]:
    """For each table of ``stacks`` the stack and its part of equal tables; equal groups can be one stack of TensorFlow's."""
    by_name = {table.name: table for table in tables}
    groups = {}
    for s, names in enumerate(stacks):
        own = [by_name[name] for name in names if name in by_name]
        for part, places in enumerate(stacked([(one.dim, (one.optimizer, one.quantization)) for one in own])):
            groups.update({own[place].name: (s, part) for place in places})
    return groups


def not_taken(
    plan: PartitionPlan,
    tables: Sequence[TableSpec],
    devices: int,
    sparse_cores: int,
    replicated: Collection[str] = (),
) -> tuple[str, ...]:
    """A sentence for each kind of thing that a slice does not take of a plan; none if the slice has tables as the plan says.

    Args:
        tables: of the model, of which the plan's are a part.
        devices: of the slice.
        sparse_cores: of a device; 0 for the embedding hardware of v2 to v4.
        replicated: names of the tables that each device has whole.
    """
    names = {table.name for table in tables}.difference(replicated)
    own = [one for one in plan.tables if one.name in names]
    if not sparse_cores:
        return ("The embedding hardware of v2 to v4 takes nothing of a plan: TensorFlow places its tables.",)
    spread = [table for table in tables if table.name in names]
    return tuple(_partitions(plan, own, devices * sparse_cores)) + tuple(_stacks(plan, spread))


def _partitions(plan: PartitionPlan, own: Sequence[TablePlan], cores: int) -> Iterator[str]:
    if plan.cores != cores:
        yield f"The plan has {plan.cores} cores and the slice {cores} SparseCores: all of them hold rows of every table that is spread."
    if names := [one.name for one in own if one.is_replicated]:
        yield (
            f"Tables that the plan has replicated ({_listed(names)}), whose events may have any number of ids, or which are the largest of a plan "
            f"that replicates all: {_SPREAD}."
        )
    kinds: tuple[tuple[str, Callable[[TablePlan], bool]], ...] = (
        ("on one core", lambda one: not one.is_replicated and one.partition == "table"),
        ("in slices of columns", lambda one: len(one.slices) > 1),
        ("in blocks of rows", lambda one: any(len(part.cores) > 1 and part.row_ends for part in one.slices)),
        ("by rows on some of the cores", lambda one: one.partition == "row" and not one.slices[0].row_ends
                                                     and len(one.slices[0].cores) < plan.cores),
    )  # fmt: skip
    for kind, holds in kinds:
        if names := [one.name for one in own if holds(one)]:
            yield f"Tables that the plan has {kind} ({_listed(names)}): {_SPREAD}, all columns together."


def _stacks(plan: PartitionPlan, tables: Sequence[TableSpec]) -> Iterator[str]:
    groups = stack_groups(tables, plan.stacks)
    for s, names in enumerate(plan.stacks):
        if len({part for stack, part in groups.values() if stack == s}) > 1:
            yield f"The stack of {_listed(names)} is cut: its tables have several padded widths, optimizers or quantizations."


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
