"""Reads text files for the commands that change a table, and finds their schemas."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
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
    from pipelines.parsing.folder_columns import with_levels
    from pipelines.parsing.sources import FoundFile, find_files
    from warehouse.changes.values import GivenRows
    from warehouse.tables.hive_levels import FolderLevels, is_side_file
    from warehouse.tables.manifests import get_table

    if whole_rows:  # a shell's pattern names side files of writers too
        files = [file for file in files if not is_side_file(os.path.basename(file))] or files
    formats = {file: text_format(file) for file in files}
    texts = [file for file, found in formats.items() if found is not None]
    if not texts:
        if schema:
            raise InputError("a schema file needs text files", where="--schema", value=schema,
                             allowed="files that end in .csv, .tsv, .jsonl, .ndjson, also with .gz, .bz2, .xz, .zst or .lz4 after it")  # fmt: skip
        return list(files), ()
    with warehouse.catalog.read() as connection:
        known = get_table(connection, table)
    local = home_location(home)
    rejects = "" if dry_run or "://" in local else str(Path(local) / "rejects" / table)
    sources: list[Source] = []
    rejected, places, notes = 0, list[str](), list[str]()
    for file in files:
        if formats[file] is None:
            sources.append(file)
            continue
        # Whole rows have the levels of their file's folders, so each file is a source of its own.
        for found in find_files([file]) if whole_rows else [FoundFile(file, FolderLevels(""))]:
            levels = found.folders.columns
            read_by, unread = _schema_for(known, found.path, schema, datetime.now(UTC), levels, whole_rows=whole_rows)
            notes += _unread_notes(found.path, unread)
            read = read_text_rows([found.path], read_by, rejects=rejects, max_reject_share=max_reject_share)
            sources.append(GivenRows(found.path, with_levels(read.rows, levels)))
            rejected, places = rejected + read.rejected, [*places, *read.rejects]
    where = f", with line and reason, in {places[0]}" + (" and others" if len(places) > 1 else "") if places else ""
    return sources, (*notes, *([f"rows rejected{where}: {rejected:,}"] if rejected else []))


def _schema_for(
    table: Table, file: str, schema: str, now: datetime, levels: Collection[str], *, whole_rows: bool
) -> tuple[LogSchema, list[str]]:
    """The schema of one file, and the columns of the file that it leaves out.

    It is ``--schema``, that of the table's import, or that of the table's columns which the file has. ``levels``: those that the
    file's folders state.
    """
    from pipelines.ingest.text_rows import held_columns, text_format
    from pipelines.log_schemas.schema import LogSchema

    kept = Path(f"{table.root}.imports") / KEPT_SCHEMA
    chosen = LogSchema.from_file(schema or str(kept)) if schema or kept.is_file() else None
    log_format = text_format(file)
    unread: list[str] = []
    if chosen is None or (not schema and chosen.format != log_format):
        chosen = _of_table(table, log_format or "csv")
        if whole_rows:
            names = held_columns(file, chosen)
            unread = [name for name in names if name not in chosen.names]
            # A later line of JSON may have a key that the first ones do not have.
            later = {one.name for one in table.file_columns} - set(levels) if log_format == "jsonl" else set[str]()
            chosen = _with_columns(chosen, {*names, *later, table.time_column})
    if whole_rows:
        if chosen.time is not None and chosen.time.made_up is not None and chosen.time.made_up.start is not None:
            raise InputError("rows whose time is made up by their order must be imported", where=file, value=chosen.time.column,
                             next_step=f"headrace table import {table.name} {file} --schema FILE")  # fmt: skip
        return chosen.bounded(now), unread
    if schema:
        return replace(chosen, time=None), []
    names = held_columns(file, chosen)
    if unknown := [name for name in names if name not in chosen.names]:
        raise InputError("a column of a text file must be known, or in a schema file", where=file, value=", ".join(unknown[:5]),
                         allowed=", ".join(chosen.names),
                         next_step=_INFER.format(file=f"{file} --no-time"))  # fmt: skip
    return replace(_with_columns(chosen, names), time=None, header=chosen.format != "jsonl"), []


_INFER = "headrace table infer {file} --output values.json, then the same command with --schema values.json"


def _unread_notes(file: str, columns: Sequence[str]) -> list[str]:
    if not columns:
        return []
    shown = ", ".join(columns[:5]) + (f" and {len(columns) - 5} more" if len(columns) > 5 else "")
    return [
        f"columns of {file} that are not read, since the table does not say how: {shown}; next: {_INFER.format(file=file)}"
    ]


def _with_columns(schema: LogSchema, names: Collection[str | None]) -> LogSchema:
    return replace(schema, columns=tuple(column for column in schema.columns if column.name in names))


def _of_table(table: Table, log_format: LogFormat) -> LogSchema:
    from pipelines.ingest.text_rows import table_log_schema
    from warehouse.tables.readable_types import declared_types

    kinds = [(column.name, next(iter(declared_types(column.arrow_type)), None)) for column in table.columns]
    return table_log_schema(kinds, log_format)
