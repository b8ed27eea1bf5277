"""``headrace table append|overlay|fix|delete|history``: changes of a table's data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.completions import table_names
from headrace.cli.options.listings import listing
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.cli.options.text_files import sources_of
from headrace.terminal.output import emit
from headrace.terminal.quantities import moment_of
from transforms.errors import InputError

if TYPE_CHECKING:
    from datetime import datetime

    from headrace.screens.changes import ChangeScreen
    from warehouse.changes.outcome import Change

Name = Annotated[str, typer.Argument(autocompletion=table_names, help="Name of the table.")]
On = Annotated[
    list[str] | None, typer.Option("--on", help="A key column that matches rows with events; may be repeated.")
]
Columns = Annotated[
    list[str] | None, typer.Option("--column", help="Only this column of the file; may be repeated. Default: all.")
]
Start = Annotated[str, typer.Option(help="Search only partitions from this time on (ISO 8601, UTC).")]
End = Annotated[str, typer.Option(help="Search only partitions that start before this time.")]
InvalidText = Annotated[
    str, typer.Option(help="Text that is not UTF-8: refuse the file, or replace invalid bytes by U+FFFD.")
]
Why = Annotated[str, typer.Option(help="The reason, stored in the table's history.")]
Schema = Annotated[
    str,
    typer.Option(
        help="The schema file of a text file. Default: the schema of the table's import, or the names of its columns."
    ),
]
RejectShare = Annotated[float, typer.Option(help="Text files: fail when more than this share of the rows is rejected.")]
UniqueBy = Annotated[
    str,
    typer.Option(help="COLUMN[,COLUMN]: skip rows whose key occurs in their partition or in an earlier new row."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change and be computed; change nothing.")]


def add_commands(app: typer.Typer) -> None:
    """Add these commands to the group ``table``."""
    for name, command in (("append", append), ("overlay", overlay), ("fix", fix), ("delete", delete),
                          ("history", history)):  # fmt: skip
        app.command(name)(command)


def append(
    name: Name,
    files: Annotated[
        list[str],
        typer.Argument(
            help="Parquet files, folders of them, or CSV, TSV and JSONL (also compressed), with the table's columns."
        ),
    ],
    partition: Annotated[
        str, typer.Option(help="The partition of all rows, date=YYYY-MM-DD/hour=HH. Default: by the time column.")
    ] = "",
    create: Annotated[bool, typer.Option("--create", help="Create partitions that do not exist yet.")] = False,
    unique_by: UniqueBy = "",
    schema: Schema = "",
    max_reject_share: RejectShare = 0.05,
    invalid_text: InvalidText = "refuse",
    why: Why = "",
    dry_run: DryRun = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Add late rows, as new files in the table's folder. Only the new rows are computed."""
    from warehouse.changes.append import append_rows

    keys = [column for column in unique_by.split(",") if column]
    with open_warehouse(home) as warehouse:
        sources, notes = sources_of(warehouse, home, name, files, schema=schema, max_reject_share=max_reject_share,
                                    dry_run=dry_run, whole_rows=True)  # fmt: skip
        done = append_rows(
            warehouse, name, sources, partition=partition, create=create, why=why, dry_run=dry_run,
            invalid_text=invalid_text, unique_by=keys,
        )  # fmt: skip
    emit(_screen(done, notes=notes), as_json=as_json)


def overlay(
    name: Name,
    values: Annotated[
        str,
        typer.Argument(
            help="With --on a Parquet, CSV, TSV or JSONL file; without, a folder that mirrors the table's files."
        ),
    ],
    on: On = None,
    column: Columns = None,
    start: Start = "",
    end: End = "",
    schema: Schema = "",
    max_reject_share: RejectShare = 0.05,
    why: Why = "",
    dry_run: DryRun = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Add column values that arrived later, such as labels. Memos that do not read the columns stay."""
    from warehouse.changes.overlay import overlay_columns

    first, last = moment_of("--start", start), moment_of("--end", end)
    with open_warehouse(home) as warehouse:
        (source,), notes = sources_of(warehouse, home, name, [values], schema=schema, max_reject_share=max_reject_share,
                                      dry_run=dry_run, whole_rows=False)  # fmt: skip
        done = overlay_columns(
            warehouse, name, source, on=on or (), columns=column or (), start=first, end=last, why=why, dry_run=dry_run
        )
    emit(_screen(done, first, last, notes), as_json=as_json)


def fix(
    name: Name,
    values: Annotated[
        str,
        typer.Argument(
            help="With --on a Parquet, CSV, TSV or JSONL file; without, a folder that mirrors the table's files."
        ),
    ],
    why: Annotated[str, typer.Option(help="The reason, stored in the table's history.")],
    on: On = None,
    column: Columns = None,
    start: Start = "",
    end: End = "",
    schema: Schema = "",
    max_reject_share: RejectShare = 0.05,
    dry_run: DryRun = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Correct columns of the table. Only the components that read them are computed again."""
    from warehouse.changes.overlay import fix_columns

    first, last = moment_of("--start", start), moment_of("--end", end)
    with open_warehouse(home) as warehouse:
        (source,), notes = sources_of(warehouse, home, name, [values], schema=schema, max_reject_share=max_reject_share,
                                      dry_run=dry_run, whole_rows=False)  # fmt: skip
        done = fix_columns(
            warehouse, name, source, why=why, on=on or (), columns=column or (), start=first, end=last, dry_run=dry_run
        )
    emit(_screen(done, first, last, notes), as_json=as_json)


def delete(
    name: Name,
    where: Annotated[
        list[str] | None, typer.Option("--where", help="COLUMN=VALUE; may be repeated, then all must hold.")
    ] = None,
    on: On = None,
    keys: Annotated[str, typer.Option(help="A Parquet, CSV, TSV or JSONL file of keys; --on names its columns.")] = "",
    start: Start = "",
    end: End = "",
    schema: Schema = "",
    max_reject_share: RejectShare = 0.05,
    why: Why = "",
    dry_run: DryRun = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Delete events: from the next version on no training reads them. Their bytes stay in the files."""
    from warehouse.changes.deletion import delete_rows

    conditions = [_condition(text) for text in where or ()]
    first, last = moment_of("--start", start), moment_of("--end", end)
    with open_warehouse(home) as warehouse:
        sources, notes = sources_of(warehouse, home, name, [keys] if keys else [], schema=schema,
                                    max_reject_share=max_reject_share, dry_run=dry_run, whole_rows=False)  # fmt: skip
        done = delete_rows(
            warehouse, name, where=conditions, on=on or (), keys=sources[0] if sources else "", start=first, end=last,
            why=why, dry_run=dry_run,
        )  # fmt: skip
    emit(_screen(done, first, last, notes), as_json=as_json)


@listing(watch=False)
def history(name: Name, home: Home = "", as_json: AsJson = False) -> None:
    """Show the versions of a table: the time, the change and the reason of each."""
    from headrace.views import tables

    with open_warehouse(home) as warehouse:
        screen = tables.history(warehouse, name)
    emit(screen, as_json=as_json)


def _range_note(done: Change, first: datetime | None, last: datetime | None) -> tuple[str, ...]:
    """A note that unknown keys may belong to events outside the searched range."""
    if not done.unknown_keys or first is last is None:
        return ()
    return ("only the partitions between --start and --end were searched for keys",)


def _condition(text: str) -> tuple[str, str]:
    column, separator, value = text.partition("=")
    if not separator or not column:
        raise InputError("a condition must be COLUMN=VALUE", where="--where", value=text)
    return column, value


def _screen(
    done: Change, first: datetime | None = None, last: datetime | None = None, notes: tuple[str, ...] = ()
) -> ChangeScreen:
    from headrace.screens.changes import ChangeScreen

    return ChangeScreen(replace(done, notes=(*notes, *done.notes, *_range_note(done, first, last))))
