"""The places of pruned tables on each core: its share of those of each group."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.options.combinations import Setup, check_setup
from trainer.options.pruning import PruningOptions
from trainer.planning.row_groups import RowGroup, groups_of_host, shared_groups_of_host
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.stores.pruned.job_places import JobTables


def groups_on(parts: TableParts, groups: Sequence[RowGroup], core: int) -> tuple[RowGroup, ...]:
    """The groups of one core's rows; ``groups``: those of the tables of ``parts``, with the places of all cores.

    Raises :class:`ConfigError` for groups that do not fit so many cores, and for copies and slices of tables.
    """
    return groups_of_host(groups, rows_of_cores(parts), core)


def shared_groups_on(parts: TableParts, groups: Sequence[RowGroup], core: int) -> tuple[RowGroup, ...]:
    """As :func:`groups_on`, of groups whose places all cores share."""
    return shared_groups_of_host(groups, rows_of_cores(parts), core)


def shares_places(options: PruningOptions, cores: int) -> bool:
    """Whether so many cores share the places of groups."""
    return cores > 1 and options.places == "shared"


def job_tables(
    parts: TableParts, groups: Sequence[RowGroup], core: int, sizes: Sequence[int] = (), own: Sequence[int] = ()
) -> JobTables:
    """The pruned tables of a job, and the rows of one core of ``parts``.

    Args:
        parts: of the tables of this core's exchange.
        groups: of the tables of the job, with the places of all cores.
        core: the core.
        sizes: the rows of each table of the job; none: of each of those of ``parts``.
        own: the position in the job of each table of ``parts``; none: they are the job's.
    """
    origins = [part.shard(core)[1] for part in parts.parts]
    sizes = tuple(sizes) or tuple(one.vocabulary_size for one in parts.tables)
    return JobTables(tuple(groups), sizes, tuple(own) or tuple(range(len(sizes))), tuple(one.row_stride for one in origins),
                     tuple(one.row_first for one in origins), tuple(part.row_count(core) for part in parts.parts))  # fmt: skip


def rows_of_cores(parts: TableParts) -> list[list[int]]:
    """The rows of each table on each core, by core. Raises :class:`ConfigError` for copies and slices of tables, which are not pruned."""
    check_setup(Setup(pruned=True, plan=True, slices=parts.has_replicas or len(parts.parts) != len(parts.tables)))
    return [[part.row_count(core) for part in parts.parts] for core in range(parts.cores)]
