"""``headrace table infer``: write a schema file from a sample of a log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.session import AsJson, Home
from headrace.terminal.output import emit, emit_line
from transforms.errors import InputError

if TYPE_CHECKING:
    from pipelines.inference.event_time import TimeOptions
    from pipelines.inference.infer import Inferred

_DEFAULT_OUTPUT = "schema.json"


def infer(
    files: Annotated[
        list[str],
        typer.Argument(
            help="TSV, CSV or JSONL files, also compressed: gzip, bzip2, xz, zstd, LZ4; or kafka://host:port/topic."
        ),
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
    client_config: Annotated[
        str, typer.Option("--client-config", help="Of a topic: the file of client properties.", show_default=False)
    ] = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Sample a log or a topic and write a schema file for it, with comments where a choice is uncertain."""
    from headrace.screens.inferred import SchemaText
    from headrace.views.inferred_schemas import inferred_schema
    from pipelines.inference.event_time import TimeOptions
    from pipelines.inference.infer import infer_schema
    from pipelines.inference.schema_file import schema_text
    from pipelines.kafka.location import is_topic
    from pipelines.outputs.publication import write_atomic

    del home  # every command has it; a schema file belongs to no warehouse
    if output != "-" and Path(output).exists():
        raise InputError("the schema file must not exist yet", where="--output", value=output,
                         next_step="name another file, or remove this one")  # fmt: skip
    if any(map(is_topic, files)):
        inferred = _inferred_topic(files, rows, TimeOptions(time_column, row_order, no_time), client_config)
    elif client_config:
        raise InputError("--client-config must go with a topic", where="--client-config", value=client_config,
                         allowed="kafka://host:port/topic", next_step="leave it out")  # fmt: skip
    else:
        inferred = infer_schema(files, rows=rows, time=TimeOptions(time_column, row_order, no_time))
    text = schema_text(inferred)
    if output == "-" and not as_json:
        emit_line(SchemaText(text), as_json=False)
        return
    if output != "-":
        write_atomic(Path(output), text.encode())
    emit(inferred_schema(inferred, output), as_json=as_json)


def _inferred_topic(files: list[str], rows: int, time: TimeOptions, client_config: str) -> Inferred:
    from pipelines.kafka.client_properties import read_properties
    from pipelines.kafka.location import parse_topic
    from pipelines.kafka.messages import TIME
    from pipelines.kafka.sampled_topic import infer_topic
    from pipelines.kafka.topic import Topic

    if len(files) > 1:
        raise InputError("a topic must be sampled alone", where="FILES", value=" ".join(files)[:200],
                         allowed="one kafka://host:port/topic", next_step="write a schema file for each")  # fmt: skip
    for option, is_given in (("--row-order", time.by_row_order), ("--no-time", time.is_none)):
        if is_given:
            raise InputError("the event time of messages must be a field, or the time that Kafka has for them", where=option, value=True,
                             next_step=f"give --time-column {TIME} in its place")  # fmt: skip
    location = parse_topic(files[0])
    topic = Topic(location, read_properties(client_config) if client_config else {})
    try:
        return infer_topic(topic, location, rows=rows, time_column=time.column)
    finally:
        topic.close()


def missing_schema(files: list[str], schema: str) -> InputError:
    """The error of an import without a schema file; it names the command that writes one."""
    output = schema or _DEFAULT_OUTPUT
    command = f"headrace table infer {' '.join(files[:3])}{' …' if len(files) > 3 else ''} --output {output}"
    return InputError("an import of text must have a schema file", where="--schema", value=schema or "none given",
                      next_step=f"{command} writes one from a sample; check it, then run this again with --schema {output}")  # fmt: skip
