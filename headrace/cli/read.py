"""``headrace model read``: write a model's inputs to a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.quantities import moment_of
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.terminal.output import emit
from headrace.terminal.progress import Report, progress_bar

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.reading import Reading
    from headrace.screens.reading import ReadScreen


def read(
    name: Annotated[str, typer.Argument(help="Name of the model, or NAME@VERSION. Default: its newest version.")],
    output: Annotated[str, typer.Option(help="The file to write: *.parquet, *.csv or *.jsonl.")],
    start: Annotated[str, typer.Option(help="Read partitions from this time on (ISO 8601, UTC).")] = "",
    end: Annotated[str, typer.Option(help="Read partitions that start before this time.")] = "",
    column: Annotated[
        list[str] | None, typer.Option(help="A raw column to write with the inputs; may be repeated.")
    ] = None,
    time: Annotated[bool, typer.Option("--time", help="Write the table's time column too.")] = False,
    label: Annotated[bool, typer.Option("--label/--no-label", help="Write the label too.")] = True,
    table_version: Annotated[
        int, typer.Option(help="Read this version of the table. Default: the newest.", show_default=False)
    ] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Write a model's inputs, one row per event. Memos are loaded, the rest is computed."""
    from headrace.reading import opened_reading, parsed_name
    from headrace.table_files import check_output, write_tables

    kind = check_output(output, force=force)
    model, version = parsed_name(name)
    first, last = moment_of("--start", start), moment_of("--end", end)
    with (
        open_warehouse(home) as warehouse,
        opened_reading(
            warehouse,
            model,
            version,
            first,
            last,
            holder="headrace model read",
            columns=column or (),
            label=label,
            time=time,
            table_version=table_version or None,
        ) as reading,
        progress_bar(f"reading {model}", "events") as report,
    ):
        rows, size_bytes = write_tables(_reported(reading, report), output, force=force)
    emit(_screen(reading, output, kind, rows, size_bytes), as_json=as_json)


def _screen(reading: Reading, output: str, kind: str, rows: int, size_bytes: int) -> ReadScreen:
    from headrace.screens.reading import ReadScreen

    solution = reading.solution
    return ReadScreen(
        model=solution.model,
        version=solution.model_version,
        table=solution.table,
        table_version=solution.table_version,
        output=output,
        format=kind,
        rows=rows,
        partitions=len(solution.partitions),
        first_partition=solution.partitions[0].key,
        last_partition=solution.partitions[-1].key,
        columns=(
            *(item.name for item in solution.inputs),
            *([reading.label] if reading.label else []),
            *reading.columns,
        ),
        columns_read={action: solution.count(action) for action in ("load", "compute", "raw")},
        size_bytes=size_bytes,
    )


def _reported(reading: Reading, report: Report) -> Iterator[pa.Table]:
    done, total = 0, reading.solution.rows
    for table in reading.tables():
        yield table
        done += table.num_rows
        report(done, total)
