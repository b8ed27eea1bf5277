"""Columns that are joined from other tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.screens.joins import EvictedJoinsScreen, JoinsScreen
    from warehouse.warehouse import Warehouse


def listed(warehouse: Warehouse, table: str = "") -> JoinsScreen:
    """The joined columns of a table, or of all. Raises :class:`~warehouse.errors.UnknownTable`."""
    from headrace.screens.joins import JoinRow, JoinsScreen
    from transforms.joins.text import definition_text
    from warehouse.models.joined_columns import joined_columns, wanted_columns
    from warehouse.models.joined_types import values_type
    from warehouse.tables.manifests import current_fragments, get_table

    with warehouse.catalog.read() as connection:
        records = joined_columns(connection, table or None)
        if not records and table:
            get_table(connection, table)
        wanted = wanted_columns(connection) if records else {}
        digests = {
            name: [one.fragment.digests for one in current_fragments(connection, name)]
            for name in {one.table for one in records}
        }
    rows = (
        JoinRow(
            table=one.table, column=one.column, join=definition_text(one.definition), arrow_type=str(values_type(one.definition)),
            models=wanted.get((one.table, one.column), ()), fragments=len(digests[one.table]),
            computed=sum(one.column in each for each in digests[one.table]), error=one.error,
        )
        for one in records
    )  # fmt: skip
    return JoinsScreen(tuple(rows))


def evicted(warehouse: Warehouse, table: str = "", *, dry_run: bool) -> EvictedJoinsScreen:
    """Evict the joined columns, of a table or of all, that no live model reads. Raises what :func:`~warehouse.joins.eviction.evict_unread` raises."""
    from headrace.screens.joins import EvictedJoinsScreen
    from warehouse.joins.eviction import evict_unread, unread_columns

    if not dry_run:
        return EvictedJoinsScreen(evict_unread(warehouse, table), dry_run=False)
    with warehouse.catalog.read() as connection:
        return EvictedJoinsScreen(unread_columns(connection, table), dry_run=True)
