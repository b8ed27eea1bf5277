"""The places of pruned tables on each core: its share of those of each group."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.options.combinations import Setup, check_setup
from trainer.planning.row_groups import RowGroup, groups_of_host
from trainer.tables.routes.partitioned.table_parts import TableParts


def groups_on(parts: TableParts, groups: Sequence[RowGroup], core: int) -> tuple[RowGroup, ...]:
    """The groups of one core's rows; ``groups``: those of the tables of ``parts``, with the places of all cores.

    Raises :class:`ConfigError` for groups that do not fit so many cores, and for copies and slices of tables.
    """
    return groups_of_host(groups, rows_of_cores(parts), core)


def rows_of_cores(parts: TableParts) -> list[list[int]]:
    """The rows of each table on each core, by core. Raises :class:`ConfigError` for copies and slices of tables, which are not pruned."""
    check_setup(Setup(pruned=True, plan=True, slices=parts.has_replicas or len(parts.parts) != len(parts.tables)))
    return [[part.row_count(core) for part in parts.parts] for core in range(parts.cores)]
