"""Row deletes of Iceberg tables, which pyiceberg reads but does not write: by position, and by equal values."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import StaticTable
from pyiceberg.typedef import Record

_numbers = itertools.count(1)
_ID_OF_PATH, _ID_OF_POSITION = 2147483546, 2147483545


def catalog(folder: Path) -> SqlCatalog:
    """A catalog with the namespace ``ns`` in a folder."""
    made = SqlCatalog("c", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    made.create_namespace("ns")
    return made


class _DeleteWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def _newest(root: Path) -> Path:
    return max((root / "metadata").glob("*.metadata.json"), key=lambda path: int(path.name.split("-")[0].removeprefix("v").split(".")[0]))  # fmt: skip


def data_files(root: Path) -> dict[str, Any]:
    """The live data files of the newest snapshot, by path."""
    table = StaticTable.from_metadata(str(_newest(root)))
    return {task.file.file_path: task.file for task in table.scan().plan_files()}


def delete_positions(root: Path, positions: dict[str, Sequence[int]]) -> None:
    """Commit a file of position deletes for each data file, as a merge-on-read DELETE does."""
    files = []
    known = data_files(root)
    for path, rows in positions.items():
        schema = pa.schema(
            [pa.field("file_path", pa.string(), metadata={"PARQUET:field_id": str(_ID_OF_PATH)}),
             pa.field("pos", pa.int64(), metadata={"PARQUET:field_id": str(_ID_OF_POSITION)})]
        )  # fmt: skip
        table = pa.table([[path] * len(rows), list(rows)], schema=schema)
        files.append(_file(root, table, DataFileContent.POSITION_DELETES, known[path].partition, None))
    _commit(root, files)


def delete_equal(root: Path, rows: pa.Table, partition: Record) -> None:
    """Commit a file of equality deletes, as Flink does for an upsert; by the columns of ``rows``."""
    table = StaticTable.from_metadata(str(_newest(root)))
    ids = [table.schema().find_field(name).field_id for name in rows.column_names]
    fields = [field.with_metadata({"PARQUET:field_id": str(one)}) for field, one in zip(rows.schema, ids, strict=True)]
    _commit(root, [_file(root, rows.cast(pa.schema(fields)), DataFileContent.EQUALITY_DELETES, partition, ids)])


def _file(root: Path, table: pa.Table, content: DataFileContent, partition: Record, ids: list[int] | None) -> DataFile:
    path = root / "data" / f"deletes-{next(_numbers)}.parquet"
    pq.write_table(table, path)
    return DataFile.from_args(
        content=content, file_path=f"file://{path}", file_format=FileFormat.PARQUET, partition=partition, record_count=table.num_rows,
        file_size_in_bytes=path.stat().st_size, equality_ids=ids, column_sizes={}, value_counts={}, null_value_counts={},
        nan_value_counts={}, lower_bounds={}, upper_bounds={}, key_metadata=None, split_offsets=None, sort_order_id=None,
    )  # fmt: skip


def _commit(root: Path, files: Sequence[DataFile]) -> None:
    newest, io = _newest(root), PyArrowFileIO()
    table = StaticTable.from_metadata(str(newest))
    before, snapshot_id = table.current_snapshot(), time.time_ns() // 1000
    assert before is not None
    sequence = table.metadata.last_sequence_number + 1
    number = next(_numbers)
    writer = _DeleteWriter(
        table.spec(), table.schema(), io.new_output(f"{root}/metadata/deletes-{number}.avro"), snapshot_id, "null"
    )
    with writer:
        for file in files:
            writer.add_entry(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, sequence_number=None,
                                                     file_sequence_number=None, data_file=file))  # fmt: skip
    manifest = writer.to_manifest_file()
    where = f"{root}/metadata/snap-{number}.avro"
    with write_manifest_list(2, io.new_output(where), snapshot_id, before.snapshot_id, sequence, "null") as listing:
        listing.add_manifests([*before.manifests(table.io), manifest])
    document = json.loads(newest.read_text())
    document["snapshots"].append(
        {"snapshot-id": snapshot_id, "parent-snapshot-id": before.snapshot_id, "sequence-number": sequence,
         "timestamp-ms": time.time_ns() // 1_000_000, "manifest-list": f"file://{where}", "schema-id": document["current-schema-id"],
         "summary": {"operation": "delete"}}
    )  # fmt: skip
    document |= {"current-snapshot-id": snapshot_id, "last-sequence-number": sequence,
                 "refs": {"main": {"snapshot-id": snapshot_id, "type": "branch"}}}  # fmt: skip
    version = int(newest.name.split("-")[0]) + 1
    (root / "metadata" / f"{version:05}-0b6a4d6b-7a7f-4a39-9a2b-2f3c6c5f2d11.metadata.json").write_text(
        json.dumps(document)
    )
