"""Writing new rows of one partition as a Parquet file of the home."""

from __future__ import annotations

import io
import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from warehouse.changes.publish import NewFile
from warehouse.storage.layout import LAKES
from warehouse.tables.parquet import OnInvalidText, OnRows, read_fragments
from warehouse.tables.table import ColumnSchema
from warehouse.warehouse import Warehouse

ROW_GROUP_ROWS = 131_072


def rows_folder(table: str) -> str:
    """The folder of the rows of a table that follows a lake or a topic, relative to the home."""
    return f"{LAKES}/{table}/data"


def stored_columns(schema: pa.Schema) -> tuple[ColumnSchema, ...]:
    """The columns of a file with rows of this schema: Parquet has names of its own for the fields of maps and lists."""
    output = io.BytesIO()
    pq.write_table(schema.empty_table(), output)
    stored = pq.read_schema(pa.BufferReader(output.getvalue()))
    return tuple(ColumnSchema(field.name, str(field.type)) for field in stored)


def write_rows(
    warehouse: Warehouse,
    table: str,
    partition: str,
    rows: pa.Table,
    on_invalid_text: OnInvalidText,
    on_rows: OnRows,
) -> NewFile:
    """Write rows, in time order, as a file with a new name; see :func:`warehouse.tables.parquet.read_fragments` for the last two."""
    storage, config = warehouse.storage, warehouse.config
    path = f"{storage.root}/{rows_folder(table)}/{partition}/{uuid.uuid4().hex}.parquet"

    def write(output: Any) -> None:
        pq.write_table(rows, output, row_group_size=ROW_GROUP_ROWS, compression="zstd")

    storage.write_atomic(path, write)
    listed = next(file for file in storage.list(path.rpartition("/")[0]) if file.path == path)
    fragments = read_fragments(storage, path, config.fragment_rows, config.read_threads, on_invalid_text, on_rows)
    return NewFile(partition, listed, fragments)
