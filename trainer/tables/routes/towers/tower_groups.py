"""The places of pruned tables on each worker of a tower: its share, by its rows, of those of the workers of all towers."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.planning.row_groups import RowGroup, chosen_groups, groups_of_host
from trainer.tables.routes.partitioned.pruned_groups import rows_of_cores
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.towers.placement import TowerPlacement
from trainer.tables.spec import TableSpec


def groups_in_tower(
    groups: Sequence[RowGroup], tables: Sequence[TableSpec], parts: Sequence[TableParts], placement: TowerPlacement, rank: int
) -> tuple[RowGroup, ...]:  # fmt: skip
    """The groups of the tables of a worker's tower, by their positions there, with the places of the worker.

    They are those of a worker that exchanges flat by the plan of the towers.

    Args:
        groups: of the ``tables`` of all towers, with the places of all workers.
        parts: of the tables of each tower, on its workers.
        rank: of the worker.

    Raises :class:`~trainer.errors.ConfigError` for a group of which a worker with rows would have no place, and for copies and slices of tables.
    """
    position = {table.name: t for t, table in enumerate(tables)}
    rows_on = [[0] * len(tables) for _ in range(placement.workers)]
    for tower, of_tower in enumerate(parts):
        for worker, counts in zip(placement.group_of(tower), rows_of_cores(of_tower), strict=True):
            for table, rows in zip(of_tower.tables, counts, strict=True):
                rows_on[worker][position[table.name]] = rows
    own = parts[placement.tower_of(placement.host_of(rank))].tables
    return chosen_groups(groups_of_host(groups, rows_on, rank), [position[table.name] for table in own])
