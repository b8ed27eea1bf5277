"""The places of pruned tables on each core: its share of those of each group."""

from __future__ import annotations

from trainer.embedding.partitioned.table_parts import TableParts
from trainer.embedding.pruned.tables import groups_of
from trainer.errors import ConfigError
from trainer.planning.row_groups import RowGroup, groups_of_host
from trainer.pruning_options import PruningOptions


def groups_on(parts: TableParts, options: PruningOptions, core: int) -> tuple[RowGroup, ...]:
    """The groups of one core's rows.

    Raises :class:`ConfigError` for groups and budgets that do not fit, also for so many cores, and for copies and slices of tables.
    """
    if parts.has_replicas or len(parts.parts) != len(parts.tables):
        raise ConfigError("pruned tables must be spread by rows", where="pruning", value="a plan with copies or slices of columns",
                          next_step="leave the plan out")  # fmt: skip
    rows_on = [[part.row_count(one) for part in parts.parts] for one in range(parts.cores)]
    return groups_of_host(groups_of(parts.tables, options), rows_on, core)
