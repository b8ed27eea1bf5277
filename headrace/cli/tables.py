"""``headrace table``: register, import, list and show tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.changes import InvalidText, UniqueBy, add_commands
from headrace.cli.compact_table import compact_table_command
from headrace.cli.drop_table import drop
from headrace.cli.imported_log import ParquetOptions, log_of
from headrace.cli.infer import infer
from headrace.cli.lakes import LakeCommand, add_lake
from headrace.cli.options.beam import Runner, split_beam_options
from headrace.cli.options.completions import table_names
from headrace.cli.options.listings import listing
from headrace.cli.options.session import AsJson, Home, home_folder, open_warehouse
from headrace.cli.options.text_files import keep_schema
from headrace.cli.topics import SharedOptions, TopicCommand, add_topic
from headrace.terminal.output import emit, write_output
from headrace.terminal.progress import progress_bar
from headrace.views.tables import resolved
from transforms.errors import DataError, InputError

if TYPE_CHECKING:
    from headrace.screens.tables import RegisteredScreen
    from pipelines.ingest.job import ImportConfig
    from pipelines.ingest.report import ImportReport
    from pipelines.runners.runner import RunnerOptions
    from warehouse.tables.table import Table
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
    name: Annotated[str, typer.Argument(autocompletion=table_names, help="Name of the table.")],
    folder: Annotated[
        str,
        typer.Argument(
            help="Folder, or gs://, s3:// or az:// location, of date=YYYY-MM-DD/hour=HH/*.parquet files, also ds=, dt= or "
            "year=/month=/day=; other name=value folders are columns. The files stay where they are. Or the folder of a Delta or "
            "Iceberg table, or iceberg://CATALOG/NAMESPACE.TABLE, whose rows are copied. Or kafka://host:port/topic, whose messages "
            "are read."
        ),
    ],
    time_column: Annotated[
        str,
        typer.Option(
            help="The column of the event time. Default for a lake: its only timestamp column; for a topic: that of the schema, "
            "or an inferred one. kafka_time: the time that Kafka has for each message."
        ),
    ] = "",
    move: Annotated[
        bool, typer.Option("--move", help="Set this folder as the new place of the table's files.")
    ] = False,
    invalid_text: InvalidText = "refuse",
    outside_times: Annotated[
        str,
        typer.Option(help="A time outside its partition: keep the row with a warning, or refuse the file."),
    ] = "keep",
    time_unit: Annotated[
        str, typer.Option(help="Lakes: the unit of an integer time column since 1970: s, ms, us or ns.")
    ] = "",
    partition_by: Annotated[
        str, typer.Option(help="Lakes and topics: partitions by hour or day. Default: day; of a topic by its times.")
    ] = "",
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            help="Lakes: a column that identifies a row when the lake rewrites files; may be repeated. Default: what the "
            "lake declares.",
        ),
    ] = None,
    lake_version: Annotated[
        str,
        typer.Option(
            help="Lakes: this version of a Delta table, or snapshot of an Iceberg table. Default: the newest."
        ),
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", help="Lakes and topics: go on and bring each new version, or all new messages.")
    ] = False,
    every: Annotated[
        str,
        typer.Option(
            help="With --follow: lakes, the wait between looks at the log, default 60s; topics, the time that a batch collects "
            "messages, default 10s."
        ),
    ] = "",
    schema: Annotated[
        str,
        typer.Option(
            help="Topics: the schema file (JSON) of the messages. Default: inferred from the first ones, then that of the table."
        ),
    ] = "",
    start: Annotated[
        str, typer.Option("--from", help="Topics: where a new table begins, earliest or latest. Default: earliest.")
    ] = "",
    client_config: Annotated[
        str,
        typer.Option(
            help="Topics: a file of client properties (key=value), such as security.protocol and sasl.password, by librdkafka's "
            "names. Its values are not printed or stored."
        ),
    ] = "",
    batch_messages: Annotated[
        int, typer.Option(help="Topics: the most messages of a batch, which is a version. Default: 100000.")
    ] = 0,
    batch_bytes: Annotated[str, typer.Option(help="Topics: the most bytes of a batch. Default: 64MiB.")] = "",
    max_reject_share: Annotated[
        float | None,
        typer.Option(
            help="Topics: fail when more than this share of a batch is rejected. Default: 0.05.", show_default=False
        ),
    ] = None,
    accept_lost: Annotated[
        bool,
        typer.Option("--accept-lost", help="Topics: go on after messages that Kafka deleted before they were read."),
    ] = False,
    commit_group: Annotated[
        str,
        typer.Option(help="Topics: also set the offsets of this consumer group, for monitors. They are never read."),
    ] = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Register a folder of hive-partitioned Parquet, a Delta or Iceberg table, or a topic of Kafka. Run it again to bring what is new."""
    from pipelines.kafka.location import is_topic
    from warehouse.lakes.open_lake import is_lake
    from warehouse.tables.manifests import find_table

    lake = LakeCommand(
        time_column, time_unit, partition_by, tuple(key or ()), lake_version, follow, every, invalid_text
    )
    topic = TopicCommand(
        schema, start, client_config, batch_messages, batch_bytes, max_reject_share, accept_lost, commit_group
    )
    if is_topic(folder):
        others = {"--time-unit": time_unit, "--key": key, "--lake-version": lake_version, "--move": move,
                  "--outside-times": outside_times != "keep", "--invalid-text": invalid_text != "refuse"}  # fmt: skip
        _refuse_others(others, "a topic of Kafka", folder)
        shared = SharedOptions(time_column, partition_by, follow, every)
        with open_warehouse(home, creates=True) as warehouse:
            add_topic(warehouse, name, folder, topic, shared, as_json=as_json)
        return
    if topic.given:
        raise InputError("this option needs a topic of Kafka", where=topic.given, value=folder, allowed="kafka://host:port/topic",
                         next_step="check the location, or leave the option out")  # fmt: skip
    with open_warehouse(home, creates=True) as warehouse:
        place = resolved(warehouse, folder)
        if is_lake(warehouse.storage, place):
            if move or outside_times != "keep":
                option = "--move" if move else "--outside-times"
                raise InputError("this option needs a folder of partitions: a lake's rows are copied by their time", where=option,
                                 value=folder, next_step="leave it out")  # fmt: skip
            add_lake(warehouse, name, place.rstrip("/"), lake, as_json=as_json)
            return
        if lake.given:
            raise InputError("this option needs a lake: a folder with a lake's log", where=lake.given, value=folder,
                             allowed="a folder with _delta_log or metadata/*.metadata.json, or iceberg://CATALOG/NAMESPACE.TABLE",
                             next_step="check the path, or leave the option out")  # fmt: skip
        with warehouse.catalog.read() as connection:
            known = find_table(connection, name)
        if known is not None and not move:
            _check_root(warehouse, known, folder)
        emit(register(warehouse, name, folder, time_column, invalid_text, outside_times), as_json=as_json)


def _refuse_others(options: Mapping[str, object], what: str, place: str) -> None:
    """Raise :class:`InputError` for the first given option that this place does not have."""
    given = next((option for option, value in options.items() if value), "")
    if given:
        raise InputError(f"this option must go without {what}", where=given, value=place, next_step="leave it out")


def register(
    warehouse: Warehouse,
    name: str,
    folder: str,
    time_column: str,
    invalid_text: str = "refuse",
    outside_times: str = "keep",
) -> RegisteredScreen:
    """Register a table, or its new files, with progress."""
    from headrace.views.tables import registered

    with progress_bar(f"registering {name}", "bytes") as report:
        return registered(
            warehouse,
            name,
            folder,
            time_column,
            progress=report,
            invalid_text=invalid_text,
            outside_times=outside_times,
        )


@app.command("import")
def import_(
    name: Annotated[str, typer.Argument(autocompletion=table_names, help="Name of the table to create or extend.")],
    files: Annotated[
        list[str],
        typer.Argument(
            help="TSV, CSV or JSONL files, also compressed (gzip, bzip2, xz, zstd, LZ4); or Parquet files of any layout; "
            "name=value folders are columns. After a --: options of Beam, as Beam takes them."
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
    from headrace.views import tables
    from pipelines.ingest.job import ImportConfig
    from pipelines.parsing.sources import find_files, level_names, time_level_names
    from pipelines.runners.runner import RunnerOptions

    files, beam_options = split_beam_options(files)
    options = RunnerOptions(runner, flags=beam_options)
    local = Path(home_folder(home, "importing logs", creates=True))
    found = find_files(files)
    config = ImportConfig(
        tuple(files),
        log_of(files, schema, ParquetOptions(time_column, time_unit, partition_by, invalid_text)),
        output=_local_output(output) or str(local / "tables" / name),
        rejects=str(local / "rejects" / name),
        max_reject_share=max_reject_share,
        longest_line_bytes=longest_line_bytes,
        unique_by=tuple(column for column in unique_by.split(",") if column),
        levels=level_names(found),
    )
    imported = _import_files(home, name, config, options, schema or files[0])
    with open_warehouse(home, creates=True) as warehouse:
        registered = register(warehouse, name, config.output, config.time_column, invalid_text)
    emit(tables.imported(config, imported, registered, time_level_names(found)), as_json=as_json)


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


def _check_import(warehouse: Warehouse, name: str, config: ImportConfig, where: str) -> None:
    """Raise, before anything is written, if the imported columns do not fit the known table."""
    from pipelines.parsing.parquet import ParquetLog
    from warehouse.tables.evolution.evolved import check_log_schema
    from warehouse.tables.followed import refuse_followed
    from warehouse.tables.manifests import find_table
    from warehouse.tables.register import check_table_name
    from warehouse.tables.table import ColumnSchema

    check_table_name(warehouse, name)
    with warehouse.catalog.read() as connection:
        refuse_followed(connection, name, "an import")
        table = find_table(connection, name)
    if table is None:
        return
    _check_root(warehouse, table, config.output)
    columns = [ColumnSchema(field.name, str(field.type)) for field in config.arrow_schema]
    paths = config.schema.column_files if isinstance(config.schema, ParquetLog) else {}
    check_log_schema(warehouse.catalog, table, columns, where, config.time_column, paths)


def _local_output(output: str) -> str:
    if "://" in output:
        raise InputError("the output of an import must be a local folder", where="--output", value=output,
                         next_step="import into a folder, copy it to the bucket, and register that: headrace table add")  # fmt: skip
    return output


def _check_root(warehouse: Warehouse, table: Table, root: str) -> None:
    if resolved(warehouse, table.root) != resolved(warehouse, root):
        raise InputError("the folder must be the one of the registered table", where=f"table {table.name}", value=root,
                         allowed=table.root, next_step="use another table name, or --move if the files moved")  # fmt: skip


@app.command("ls")
@listing(watch=False)
def list_(home: Home = "", as_json: AsJson = False) -> None:
    """List the tables."""
    from headrace.views.tables import listed

    with open_warehouse(home) as warehouse:
        screen = listed(warehouse)
    emit(screen, as_json=as_json)


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(autocompletion=table_names, help="Name of the table.")],
    table_version: Annotated[
        int, typer.Option(help="Show this version of the table. Default: the newest.", show_default=False)
    ] = 0,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Show a table's columns and partitions."""
    from headrace.views.tables import shown

    with open_warehouse(home) as warehouse:
        screen = shown(warehouse, name, table_version)
    emit(screen, as_json=as_json)


@app.command("joins")
def joins(
    name: Annotated[
        str,
        typer.Argument(autocompletion=table_names, help="Name of the table. Default: all tables.", show_default=False),
    ] = "",
    evict_unread: Annotated[
        bool,
        typer.Option("--evict-unread", help="Evict the columns that no live model reads. A dry run without --yes."),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Evict them; without this, only show what would be evicted.")
    ] = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Show the columns that models join from other tables, where they have values, and what failed."""
    from headrace.views.joins import evicted, listed

    if yes and not evict_unread:
        raise InputError(
            "--yes must go with --evict-unread", where="--yes", value="--yes", next_step="add --evict-unread"
        )
    with open_warehouse(home) as warehouse:
        screen = evicted(warehouse, name, dry_run=not yes) if evict_unread else listed(warehouse, name)
    emit(screen, as_json=as_json)


@app.command("column")
def column(
    name: Annotated[str, typer.Argument(autocompletion=table_names, help="Name of the table.")],
    column: Annotated[str, typer.Argument(help="One of its columns.")],
    files: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Also write the files that may hold values of the column to this CSV file: kind, path, bytes.",
        ),
    ] = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Show what reads a column and would break without it, and which files hold its values."""
    from headrace.views.columns import used

    with open_warehouse(home) as warehouse:
        screen = used(warehouse, name, column)
    if files:
        write_output(files, screen.files_csv(), option="--files")
    emit(screen, as_json=as_json)
