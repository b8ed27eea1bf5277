"""``headrace table infer``: write a schema file from a sample of a log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.session import AsJson, Home
from headrace.terminal.output import emit, emit_line
from transforms.errors import InputError

if TYPE_CHECKING:
    from headrace.screens.inferred import InferredScreen
    from pipelines.inference.infer import Inferred

_DEFAULT_OUTPUT = "schema.json"


def infer(
    files: Annotated[
        list[str], typer.Argument(help="TSV, CSV or JSONL files, also compressed: gzip, bzip2, xz, zstd, LZ4.")
    ],
    output: Annotated[
        str, typer.Option(help="The schema file to write; - prints it. An existing file is not replaced.")
    ] = _DEFAULT_OUTPUT,
    rows: Annotated[int, typer.Option(help="The number of rows to sample.")] = 20_000,
    time_column: Annotated[
        str, typer.Option(help="The column of the event time. Default: the one that holds times in 99 % of the rows.")
    ] = "",
    row_order: Annotated[
        bool, typer.Option("--row-order", help="Make event times up from the order of rows, 100,000 per hour.")
    ] = False,
    no_time: Annotated[
        bool, typer.Option("--no-time", help="The files hold values for a table's events: no event time is needed.")
    ] = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Sample a log and write a schema file for it, with comments where a choice is uncertain."""
    from headrace.screens.inferred import SchemaText
    from pipelines.inference.event_time import TimeOptions
    from pipelines.inference.infer import infer_schema
    from pipelines.inference.schema_file import schema_text
    from pipelines.outputs.publication import write_atomic

    del home  # every command has it; a schema file belongs to no warehouse
    if output != "-" and Path(output).exists():
        raise InputError("the schema file must not exist yet", where="--output", value=output,
                         next_step="name another file, or remove this one")  # fmt: skip
    inferred = infer_schema(files, rows=rows, time=TimeOptions(time_column, row_order, no_time))
    text = schema_text(inferred)
    if output == "-" and not as_json:
        emit_line(SchemaText(text), as_json=False)
        return
    if output != "-":
        write_atomic(Path(output), text.encode())
    emit(_screen(inferred, output), as_json=as_json)


def _screen(inferred: Inferred, output: str) -> InferredScreen:
    from headrace.screens.inferred import InferredColumnRow, InferredScreen

    return InferredScreen(
        output=output,
        files=inferred.files,
        rows=inferred.rows,
        rejected=inferred.rejected,
        reject=inferred.reject,
        about_rows=inferred.about_rows,
        schema=inferred.schema.to_document(),
        columns=tuple(
            InferredColumnRow(
                one.column.name, _type_text(one.column.to_document()), one.missing_share(inferred.schema.null), one.distinct,
                one.examples, one.unsure, one.label,
            )
            for one in inferred.columns
        ),
        labels=inferred.labels,
        unsure=inferred.unsure,
    )  # fmt: skip


def _type_text(column: dict[str, object]) -> str:
    """A column's type as text: ``list of int64, by "|"``."""
    kind = str(column["type"])
    if column.get("list"):
        return f"list of {kind}"
    if "separator" in column:
        return f'list of {kind}, by "{column["separator"]}"'
    if column.get("json"):
        return "JSON text"
    form = column.get("unit") or column.get("format")
    return kind if form is None else f"{kind}, {form}"


def missing_schema(files: list[str], schema: str) -> InputError:
    """The error of an import without a schema file; it names the command that writes one."""
    output = schema or _DEFAULT_OUTPUT
    command = f"headrace table infer {' '.join(files[:3])}{' …' if len(files) > 3 else ''} --output {output}"
    return InputError("an import of text must have a schema file", where="--schema", value=schema or "none given",
                      next_step=f"{command} writes one from a sample; check it, then run this again with --schema {output}")  # fmt: skip
