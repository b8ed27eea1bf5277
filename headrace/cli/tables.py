"""``headrace table``: register, import, list and show tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.changes import InvalidText, UniqueBy, add_commands
from headrace.cli.compact_table import compact_table_command
from headrace.cli.drop_table import drop
from headrace.cli.imported_log import ParquetOptions, log_of
from headrace.cli.infer import infer
from headrace.cli.options.beam import Runner, split_beam_options
from headrace.cli.options.session import AsJson, Home, home_folder, open_warehouse
from headrace.cli.options.text_files import keep_schema
from headrace.terminal.output import emit
from headrace.terminal.progress import progress_bar
from transforms.errors import DataError, InputError

if TYPE_CHECKING:
    from headrace.screens.tables import ColumnRow, ImportedScreen, RegisteredScreen
    from pipelines.ingest.job import ImportConfig
    from pipelines.ingest.report import ImportReport
    from pipelines.runners.runner import RunnerOptions
    from warehouse.tables.table import ColumnSchema, Manifest, Table
    from warehouse.warehouse import Warehouse

app = typer.Typer(
    help="Register, import, list, show, change and drop tables.", no_args_is_help=True, rich_markup_mode=None
)

add_commands(app)
app.command("compact")(compact_table_command)
app.command("drop")(drop)
app.command("infer")(infer)


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="Name of the table.")],
    folder: Annotated[
        str,
        typer.Argument(
            help="Folder, or gs:// location, of date=YYYY-MM-DD/hour=HH/*.parquet files. They stay where they are."
        ),
    ],
    time_column: Annotated[str, typer.Option(help="The column of the event time.")] = "",
    move: Annotated[
        bool, typer.Option("--move", help="Set this folder as the new place of the table's files.")
    ] = False,
    invalid_text: InvalidText = "refuse",
    outside_times: Annotated[
        str,
        typer.Option(help="A time outside its partition: keep the row with a warning, or refuse the file."),
    ] = "keep",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Register a folder of hive-partitioned Parquet. Run it again to register added files."""
    from warehouse.tables.manifests import find_table

    with open_warehouse(home, creates=True) as warehouse:
        with warehouse.catalog.read() as connection:
            known = find_table(connection, name)
        if known is not None and not move:
            _check_root(warehouse, known, folder)
        emit(register(warehouse, name, folder, time_column, invalid_text, outside_times), as_json=as_json)


def register(
    warehouse: Warehouse,
    name: str,
    folder: str,
    time_column: str,
    invalid_text: str = "refuse",
    outside_times: str = "keep",
) -> RegisteredScreen:
    """Register a table, or its new files, and return the screen."""
    from headrace.screens.tables import RegisteredScreen
    from warehouse.tables.register import register_table

    with progress_bar(f"registering {name}", "bytes") as report:
        found = register_table(
            warehouse,
            name,
            _resolved(warehouse, folder),
            time_column=time_column or None,
            progress=report,
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
    )


@app.command("import")
def import_(
    name: Annotated[str, typer.Argument(help="Name of the table to create or extend.")],
    files: Annotated[
        list[str],
        typer.Argument(
            help="TSV, CSV or JSONL files, also compressed (gzip, bzip2, xz, zstd, LZ4); or Parquet files of any layout. After a --: options of "
            "Beam, as Beam takes them."
        ),
    ],
    schema: Annotated[
        str,
        typer.Option(
            help="The schema file (JSON) of text: format, columns, time, partition_by. headrace table infer writes one."
        ),
    ] = "",
    time_column: Annotated[
        str, typer.Option(help="Parquet: the column of the event time. Default: the only timestamp column.")
    ] = "",
    time_unit: Annotated[
        str, typer.Option(help="Parquet: the unit of an integer time column since 1970: s, ms, us or ns.")
    ] = "",
    partition_by: Annotated[
        str,
        typer.Option(
            help="Parquet: hour or day. Default: hour for at most two weeks with at least 1,000 rows per hour, else day."
        ),
    ] = "",
    invalid_text: InvalidText = "refuse",
    output: Annotated[str, typer.Option(help="Folder of the Parquet files. Default: tables/NAME in the home.")] = "",
    max_reject_share: Annotated[
        float, typer.Option(help="Fail when more than this share of the rows is rejected.")
    ] = 0.05,
    longest_line_bytes: Annotated[int, typer.Option(help="A longer line is rejected as one row.")] = 16 << 20,
    unique_by: UniqueBy = "",
    runner: Runner = "DirectRunner",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Import logs as hourly or daily Parquet and register the result. Bad rows go to reject files with the reason."""
    from pipelines.ingest.job import ImportConfig
    from pipelines.runners.runner import RunnerOptions

    files, beam_options = split_beam_options(files)
    options = RunnerOptions(runner, flags=beam_options)
    local = Path(home_folder(home, "importing logs", creates=True))
    config = ImportConfig(
        tuple(files),
        log_of(files, schema, ParquetOptions(time_column, time_unit, partition_by, invalid_text)),
        output=_local_output(output) or str(local / "tables" / name),
        rejects=str(local / "rejects" / name),
        max_reject_share=max_reject_share,
        longest_line_bytes=longest_line_bytes,
        unique_by=tuple(column for column in unique_by.split(",") if column),
    )
    imported = _import_files(home, name, config, options, schema or files[0])
    with open_warehouse(home, creates=True) as warehouse:
        registered = register(warehouse, name, config.output, config.time_column, invalid_text)
    emit(_imported_screen(config, imported, registered), as_json=as_json)


def _import_files(home: str, name: str, config: ImportConfig, options: RunnerOptions, where: str) -> ImportReport:
    """Write the table's files and its schema. Raises :class:`DataError` for logs without a readable row.

    ``where``: the source of the columns, for errors.
    """
    from pipelines.ingest.job import import_logs

    with open_warehouse(home, creates=True) as warehouse:
        _check_import(warehouse, name, config, where)
    with progress_bar(f"importing {name}", "files") as report:
        imported = import_logs(config, options, progress=report)
    if Path(config.output).is_dir():
        keep_schema(config.output, config.schema)
    elif not imported.rows:
        raise DataError("logs must hold readable rows, got none", value=f"{imported.rejected} rows rejected",
                        next_step=f"see {config.rejects}" if imported.rejected else "check the files")  # fmt: skip
    return imported


def _imported_screen(config: ImportConfig, imported: ImportReport, registered: RegisteredScreen) -> ImportedScreen:
    from headrace.screens.tables import ImportedScreen

    return ImportedScreen(
        output=config.output,
        rows=imported.rows,
        rejected=imported.rejected,
        late_rows=imported.late_rows,
        partitions=len(imported.partitions),
        rejects_folder=config.rejects,
        registered=registered,
        counts=imported.counts,
    )


def _check_import(warehouse: Warehouse, name: str, config: ImportConfig, where: str) -> None:
    """Raise, before anything is written, if the imported columns do not fit the known table."""
    from warehouse.tables.manifests import find_table
    from warehouse.tables.parquet import check_drift
    from warehouse.tables.register import check_table_name
    from warehouse.tables.table import ColumnSchema

    check_table_name(warehouse, name)
    with warehouse.catalog.read() as connection:
        table = find_table(connection, name)
    if table is None:
        return
    _check_root(warehouse, table, config.output)
    columns = [ColumnSchema(field.name, str(field.type)) for field in config.schema.arrow_schema]
    check_drift(table.file_columns, columns, where, name)


def _local_output(output: str) -> str:
    if "://" in output:
        raise InputError("the output of an import must be a local folder", where="--output", value=output,
                         next_step="import into a folder, copy it to the bucket, and register that: headrace table add")  # fmt: skip
    return output


def _resolved(warehouse: Warehouse, folder: str) -> str:
    return warehouse.storage.absolute(folder) if "://" in folder else str(Path(folder).resolve())


def _check_root(warehouse: Warehouse, table: Table, root: str) -> None:
    if _resolved(warehouse, table.root) != _resolved(warehouse, root):
        raise InputError("the folder must be the one of the registered table", where=f"table {table.name}", value=root,
                         allowed=table.root, next_step="use another table name, or --move if the files moved")  # fmt: skip


@app.command("ls")
def list_(home: Home = "", as_json: AsJson = False) -> None:
    """List the tables."""
    from headrace.screens.tables import TableRow, TablesScreen
    from warehouse.tables.manifests import all_tables, table_manifests

    rows = []
    with open_warehouse(home) as warehouse, warehouse.catalog.read() as connection:
        for table in all_tables(connection):
            manifests = table_manifests(connection, table.name)
            row = TableRow(
                name=table.name,
                version=table.version,
                partitions=len(manifests),
                rows=sum(manifest.rows for manifest in manifests),
                size_bytes=sum(manifest.size_bytes for manifest in manifests),
                start=min((manifest.start for manifest in manifests), default=None),
                end=max((manifest.end for manifest in manifests), default=None),
                root=table.root,
            )
            rows.append(row)
    emit(TablesScreen(tuple(rows)), as_json=as_json)


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="Name of the table.")], home: Home = "", as_json: AsJson = False
) -> None:
    """Show a table's columns and partitions."""
    from headrace.screens.tables import PartitionRow, TableScreen
    from warehouse.tables.manifests import get_table, table_manifests

    with open_warehouse(home) as warehouse, warehouse.catalog.read() as connection:
        table = get_table(connection, name)
        manifests = table_manifests(connection, name)
    screen = TableScreen(
        name=table.name,
        version=table.version,
        root=table.root,
        time_column=table.time_column,
        columns=tuple(_column_row(column) for column in table.columns),
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
    )
    emit(screen, as_json=as_json)


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
