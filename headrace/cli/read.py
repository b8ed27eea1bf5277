"""``headrace model read``: write a model's inputs to a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.completions import model_names
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.terminal.output import emit
from headrace.terminal.progress import Report, progress_bar
from headrace.terminal.quantities import moment_of

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.reading import Reading


def read(
    name: Annotated[
        str,
        typer.Argument(
            autocompletion=model_names, help="Name of the model, or NAME@VERSION. Default: its newest version."
        ),
    ],
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
    from headrace.views.reading import written_inputs

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
    emit(written_inputs(reading, output, kind, rows, size_bytes), as_json=as_json)


def _reported(reading: Reading, report: Report) -> Iterator[pa.Table]:
    done, total = 0, reading.solution.rows
    for table in reading.tables():
        yield table
        done += table.num_rows
        report(done, total)
