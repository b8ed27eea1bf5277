"""States of joined columns for serving, and what was answered from them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.screens.states import SkewScreen, StatesScreen
    from warehouse.warehouse import Warehouse


def exported_states(
    warehouse: Warehouse, model: str, folder: Path, *, since: datetime | None = None, full: bool = False
) -> StatesScreen:
    """Add a link to the states of a model, ``NAME`` or ``NAME@VERSION``. Raises what :func:`~warehouse.joins.exported_states.export_states` raises."""
    from headrace.reading import parsed_name
    from headrace.screens.states import StatesRow, StatesScreen
    from warehouse.joins.exported_states import export_states

    name, version = parsed_name(model)
    done = export_states(warehouse, name, version, folder, since=since, full=full)
    link = done.link
    rows = tuple(
        StatesRow(one.name, one.version, one.added, one.removed, one.rows_after, one.size_bytes) for one in link.tables
    )
    since = datetime.fromtimestamp(link.since_micros / 1e6, UTC)
    columns = tuple(one.column for one in link.definitions)
    return StatesScreen(
        str(folder), link.name, done.is_new, link.model, link.model_version, since, columns, done.rows_read, rows
    )


def skew(warehouse: Warehouse, log: Path, model: str, *, time: str = "") -> SkewScreen:
    """Logged answers of a model, ``NAME`` or ``NAME@VERSION``, against the warehouse. Raises what :func:`~warehouse.joins.skew.logged_skew` raises."""
    from headrace.reading import parsed_name
    from headrace.screens.states import SkewRow, SkewScreen
    from transforms.joins.text import definition_text
    from warehouse.joins.exported_states import model_joins
    from warehouse.joins.skew import logged_skew

    name, version = parsed_name(model)
    found = logged_skew(warehouse, log, name, version, time)
    with warehouse.catalog.read() as connection:
        definitions = model_joins(connection, name, found.version).definitions
    rows = tuple(SkewRow(one, definition_text(definitions[one.column])) for one in found.columns)
    return SkewScreen(str(log), found, rows, tuple(definition_text(definitions[name]) for name in found.unlogged))
