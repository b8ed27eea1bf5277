"""The places of pruned tables on each worker of a tower: its share, by its rows, of those of the workers of all towers."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.planning.row_groups import RowGroup, chosen_groups, groups_of_host, shared_groups_of_host
from trainer.tables.routes.partitioned.pruned_groups import job_tables, rows_of_cores
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.towers.placement import TowerPlacement
from trainer.tables.spec import TableSpec
from trainer.tables.stores.pruned.job_places import JobTables


def groups_in_tower(
    groups: Sequence[RowGroup], tables: Sequence[TableSpec], parts: Sequence[TableParts], placement: TowerPlacement, rank: int, *,
    are_shared: bool = False,
) -> tuple[RowGroup, ...]:  # fmt: skip
    """The groups of the tables of a worker's tower, by their positions there, with the places of the worker.

    They are those of a worker that exchanges flat by the plan of the towers.

    Args:
        groups: of the ``tables`` of all towers, with the places of all workers.
        parts: of the tables of each tower, on its workers.
        rank: of the worker.
        are_shared: whether all workers share the places, instead of a share for each.

    Raises :class:`~trainer.errors.ConfigError` for a group of which a worker with rows would have no place, and for copies and slices of tables.
    """
    position = _positions(tables)
    rows_on = [[0] * len(tables) for _ in range(placement.workers)]
    for tower, of_tower in enumerate(parts):
        for worker, counts in zip(placement.group_of(tower), rows_of_cores(of_tower), strict=True):
            for table, rows in zip(of_tower.tables, counts, strict=True):
                rows_on[worker][position[table.name]] = rows
    own = parts[placement.tower_of(placement.host_of(rank))].tables
    of_host = shared_groups_of_host if are_shared else groups_of_host
    return chosen_groups(of_host(groups, rows_on, rank), [position[table.name] for table in own])


def job_tables_of_tower(
    groups: Sequence[RowGroup], tables: Sequence[TableSpec], parts: Sequence[TableParts], placement: TowerPlacement, rank: int
) -> JobTables:  # fmt: skip
    """The pruned tables of all towers, and the rows of a worker; the arguments are those of :func:`groups_in_tower`."""
    tower, position = placement.tower_of(placement.host_of(rank)), _positions(tables)
    own = [position[table.name] for table in parts[tower].tables]
    sizes = [table.vocabulary_size for table in tables]
    return job_tables(parts[tower], groups, placement.group_of(tower).index(rank), sizes, own)


def are_in_all_towers(groups: Sequence[RowGroup], tables: Sequence[TableSpec], parts: Sequence[TableParts]) -> bool:
    """Whether each tower has pruned tables: only workers with some take part in rounds."""
    pruned = {tables[t].name for one in groups for t in one.tables}
    return all(any(table.name in pruned for table in one.tables) for one in parts)


def _positions(tables: Sequence[TableSpec]) -> dict[str, int]:
    return {table.name: t for t, table in enumerate(tables)}
