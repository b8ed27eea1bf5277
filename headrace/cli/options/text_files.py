"""Reads text files for the commands that change a table, and finds their schemas."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.options.session import home_location
from transforms.errors import InputError

if TYPE_CHECKING:
    from pipelines.log_schemas.columns import LogFormat
    from pipelines.log_schemas.schema import LogSchema
    from pipelines.parsing.parquet import ParquetLog
    from warehouse.changes.values import Source
    from warehouse.tables.table import Table
    from warehouse.warehouse import Warehouse

#: The schema of the newest import, in the folder of the import journals, which end in .json.
KEPT_SCHEMA = "schema.jsonc"


def keep_schema(root: str, log: LogSchema | ParquetLog) -> None:
    """Store the schema of an import, for later text files of the table; Parquet has none."""
    from pipelines.log_schemas.schema import LogSchema
    from pipelines.outputs.publication import write_atomic

    if not isinstance(log, LogSchema):
        return

    content = json.dumps(log.to_document(), indent=1, ensure_ascii=False)
    write_atomic(Path(f"{root}.imports") / KEPT_SCHEMA, content.encode())


def sources_of(
    warehouse: Warehouse,
    home: str,
    table: str,
    files: Sequence[str],
    *,
    schema: str,
    max_reject_share: float,
    dry_run: bool,
    whole_rows: bool,
) -> tuple[list[Source], tuple[str, ...]]:
    """The sources of a change, with text files as rows, and notes on rejected rows.

    ``whole_rows``: the files hold whole rows of the table, not only some columns.
    """
    from pipelines.ingest.text_rows import read_text_rows, text_format
    from warehouse.changes.values import GivenRows
    from warehouse.tables.manifests import get_table

    formats = {file: text_format(file) for file in files}
    texts = [file for file, found in formats.items() if found is not None]
    if not texts:
        if schema:
            raise InputError("a schema file must be that of text files", where="--schema", value=schema,
                             allowed="files that end in .csv, .tsv, .jsonl, .ndjson, also with .gz, .bz2, .xz, .zst or .lz4 after it")  # fmt: skip
        return list(files), ()
    with warehouse.catalog.read() as connection:
        known = get_table(connection, table)
    local = home_location(home)
    rejects = "" if dry_run or "://" in local else str(Path(local) / "rejects" / table)
    sources: list[Source] = []
    rejected, places = 0, list[str]()
    for file in files:
        if formats[file] is None:
            sources.append(file)
            continue
        read_by = _schema_for(known, file, schema, datetime.now(UTC), whole_rows=whole_rows)
        found = read_text_rows([file], read_by, rejects=rejects, max_reject_share=max_reject_share)
        sources.append(GivenRows(file, found.rows))
        rejected, places = rejected + found.rejected, [*places, *found.rejects]
    where = f", with line and reason, in {places[0]}" + (" and others" if len(places) > 1 else "") if places else ""
    return sources, (f"rows rejected{where}: {rejected:,}",) if rejected else ()


def _schema_for(table: Table, file: str, schema: str, now: datetime, *, whole_rows: bool) -> LogSchema:
    """The schema of one file: ``--schema``, the schema of the table's import, or the table's columns."""
    from pipelines.ingest.text_rows import held_columns, text_format
    from pipelines.log_schemas.schema import LogSchema

    kept = Path(f"{table.root}.imports") / KEPT_SCHEMA
    chosen = LogSchema.from_file(schema or str(kept)) if schema or kept.is_file() else None
    log_format = text_format(file)
    if chosen is None or (not schema and chosen.format != log_format):
        chosen = _of_table(table, log_format or "csv", whole_rows=whole_rows)
    if whole_rows:
        if chosen.time is not None and chosen.time.made_up is not None and chosen.time.made_up.start is not None:
            raise InputError("rows whose time is made up by their order must be imported", where=file, value=chosen.time.column,
                             next_step=f"headrace table import {table.name} {file} --schema FILE")  # fmt: skip
        return chosen.bounded(now)
    if schema:
        return replace(chosen, time=None)
    names = held_columns(file, chosen)
    if unknown := [name for name in names if name not in chosen.names]:
        raise InputError("a column of a text file must be known, or in a schema file", where=file, value=", ".join(unknown[:5]),
                         allowed=", ".join(chosen.names),
                         next_step=f"headrace table infer {file} --no-time --output values.json, then the same command with "
                         "--schema values.json")  # fmt: skip
    columns = tuple(column for column in chosen.columns if column.name in names)
    return replace(chosen, columns=columns, time=None, header=chosen.format != "jsonl")


def _of_table(table: Table, log_format: LogFormat, *, whole_rows: bool) -> LogSchema:
    from pipelines.ingest.text_rows import table_log_schema
    from warehouse.tables.readable_types import declared_types

    columns = table.file_columns if whole_rows else table.columns
    kinds = [(column.name, next(iter(declared_types(column.arrow_type)), None)) for column in columns]
    return table_log_schema(kinds, log_format)
