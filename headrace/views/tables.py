"""Tables: registered, listed, shown, and their versions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.screens.changes import HistoryScreen
    from headrace.screens.tables import ColumnRow, ImportedScreen, RegisteredScreen, TableScreen, TablesScreen
    from headrace.terminal.progress import Report
    from pipelines.ingest.job import ImportConfig
    from pipelines.ingest.report import ImportReport
    from warehouse.tables.table import ColumnSchema, Manifest
    from warehouse.warehouse import Warehouse


def resolved(warehouse: Warehouse, folder: str) -> str:
    """The absolute location of a folder or a bucket's path."""
    return warehouse.storage.absolute(folder) if "://" in folder else str(Path(folder).resolve())


def registered(
    warehouse: Warehouse,
    name: str,
    folder: str,
    time_column: str = "",
    *,
    progress: Report,
    invalid_text: str = "refuse",
    outside_times: str = "keep",
) -> RegisteredScreen:
    """Register a table of partitions, or its new files. Raises what :func:`~warehouse.tables.register.register_table` raises."""
    from headrace.screens.tables import RegisteredScreen
    from warehouse.tables.register import register_table

    found = register_table(
        warehouse,
        name,
        resolved(warehouse, folder),
        time_column=time_column or None,
        progress=progress,
        invalid_text=invalid_text,
        outside_times=outside_times,
    )
    return RegisteredScreen(
        table=found.table.name,
        version=found.table.version,
        added=found.added,
        removed=found.removed,
        changed=found.changed,
        unchanged=found.unchanged,
        rows=found.rows,
        size_bytes=found.bytes,
        dropped=found.dropped,
        replaced=found.replaced,
        unreadable=found.unreadable,
        unfit=found.unfit,
        outside=found.outside,
        small_fragments=found.small_fragments,
        schema_changes=found.schema_changes,
        lacking=found.lacking,
        levels=found.levels,
        unread_levels=found.unread_levels,
    )


def imported(
    config: ImportConfig, report: ImportReport, registered_table: RegisteredScreen, time_levels: tuple[str, ...]
) -> ImportedScreen:
    """An import, and the table that it is registered as; ``time_levels``: levels of the files' folders that are times."""
    from headrace.screens.tables import ImportedScreen

    return ImportedScreen(
        output=config.output,
        rows=report.rows,
        rejected=report.rejected,
        late_rows=report.late_rows,
        partitions=len(report.partitions),
        rejects_folder=config.rejects,
        registered=registered_table,
        counts=report.counts,
        levels=config.levels,
        time_levels=time_levels,
        time_column=config.time_column,
    )


def listed(warehouse: Warehouse) -> TablesScreen:
    """All tables."""
    from headrace.screens.tables import TableRow, TablesScreen
    from warehouse.tables.table_sizes import read_table_statuses

    with warehouse.catalog.read() as connection:
        found = read_table_statuses(connection)
    return TablesScreen(
        tuple(
            TableRow(
                name=one.table.name,
                version=one.table.version,
                partitions=one.partitions,
                rows=one.rows,
                size_bytes=one.bytes,
                start=one.start,
                end=one.end,
                root=one.table.root,
            )
            for one in found
        )
    )


def shown(warehouse: Warehouse, name: str, version: int = 0) -> TableScreen:
    """A table's columns and partitions; ``version`` 0: the newest. Raises :class:`~transforms.errors.NotFound`."""
    from headrace.screens.tables import PartitionRow, TableScreen
    from warehouse.tables.followed import followed_lake, followed_topic, topic_offsets
    from warehouse.tables.history import schema_at
    from warehouse.tables.manifests import get_table, table_manifests

    with warehouse.catalog.read() as connection:
        table = get_table(connection, name)
        columns = schema_at(connection, name, version) if version else table.columns
        manifests = table_manifests(connection, name, at_version=version or None)
        lake, topic = followed_lake(connection, name), followed_topic(connection, name)
        offsets = topic_offsets(connection, name, version or None)
    return TableScreen(
        name=table.name,
        version=version or table.version,
        root=table.root,
        time_column=table.time_column,
        columns=tuple(_column_row(column) for column in columns),
        partitions=tuple(
            PartitionRow(
                part.partition,
                part.version,
                len(part.fragments),
                part.rows,
                part.size_bytes,
                part.deleted_rows,
                _overlaid(part),
            )
            for part in manifests
        ),
        lake="" if lake is None else f"{lake.location}, version {lake.version}",
        topic="" if topic is None else topic.location,
        offsets=offsets,
    )


def history(warehouse: Warehouse, name: str) -> HistoryScreen:
    """The versions of a table. Raises :class:`~transforms.errors.NotFound`."""
    from headrace.screens.changes import HistoryScreen
    from warehouse.tables.history import table_history

    with warehouse.catalog.read() as connection:
        return HistoryScreen(name, table_history(connection, name))


def _column_row(column: ColumnSchema) -> ColumnRow:
    from headrace.screens.tables import ColumnRow
    from warehouse.tables.readable_types import unreadable_column

    found = unreadable_column(column)
    why = "" if found is None else f"{found.why}. Store {found.cast}"
    return ColumnRow(column.name, column.arrow_type, column.overlay_only, why)


def _overlaid(manifest: Manifest) -> tuple[str, ...]:
    """The columns that have an overlay in any fragment of a partition."""
    overlays = (overlay for fragment in manifest.fragments for overlay in fragment.overlays)
    return tuple(sorted({overlay.column for overlay in overlays if not overlay.is_absent}))
