"""What reads a column, and what holds its values."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.screens.columns import ColumnScreen
    from warehouse.warehouse import Warehouse


def used(warehouse: Warehouse, table: str, column: str) -> ColumnScreen:
    """What reads a column of a table, and which files may hold its values. Raises :class:`~transforms.errors.NotFound` for unknown names."""
    from headrace.screens.columns import ColumnScreen
    from warehouse.search.column_use import column_use, sizes_by_kind

    use = column_use(warehouse, table, column)
    return ColumnScreen(use, sizes_by_kind(use.files))
