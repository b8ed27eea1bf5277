"""Delta tables: the log by deltalake, the data files by Arrow.

deltalake's own scan gives no positions of rows in their files, which deletion vectors and refreshes need.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from transforms.arrays import Bools
from transforms.errors import DataError, InputError, TypeMismatch
from warehouse.lakes.reader_errors import translated_lake_errors
from warehouse.lakes.snapshot import LakeFile
from warehouse.storage.object_clients import missing_extra
from warehouse.storage.object_locations import without_credentials
from warehouse.storage.storage import Storage
from warehouse.tables.parquet import opened_source, read_ahead

#: Features of a table that reading it must know, and that this reader knows.
READER_FEATURES = frozenset(
    {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening",
     "typeWidening-preview"}
)  # fmt: skip
_PHYSICAL_NAME = "delta.columnMapping.physicalName"


class DeltaSnapshot:
    """One version of a Delta table; see :class:`warehouse.lakes.snapshot.LakeSnapshot`."""

    format: Final = "delta"
    keys: tuple[str, ...] = ()

    def __init__(self, storage: Storage, root: str, table: Any) -> None:
        self._storage, self._root = storage, root.rstrip("/")
        self.lake_id, self.version = str(table.metadata().id), str(table.version())
        document = json.loads(table.schema().to_json())
        self.schema = pa.schema([field.remove_metadata() for field in pa.schema(table.schema().to_arrow())])
        mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
        self._fields: Mapping[str, Any] = {field["name"]: field if mapped else None for field in document["fields"]}
        self.operation = _operation(table)
        self._deleted = _deletions(table)
        actions = pa.table(table.get_add_actions())
        self._partitions = _partition_values(actions, table.metadata().partition_columns)
        paths = [unquote(path) for path in actions.column("path").to_pylist()]
        rows = actions.column("num_records").to_pylist()
        self._values = dict(zip(paths, self._partitions, strict=True))
        self._masks = {path: self._deleted[where] for path in paths if (where := self._named(path)) is not None}
        self.files = tuple(
            LakeFile(path, _state(self._masks.get(path)), count)
            for path, count in sorted(zip(paths, rows, strict=True))
        )
        if len(self._masks) != len(self._deleted):
            raise DataError("every deletion vector must belong to a live file", where=self._root, value=len(self._deleted),
                            allowed=str(len(self._masks)), next_step="check the table with the tool that wrote it")  # fmt: skip

    def rows(self, file: LakeFile, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """All rows of a file, a row group at a time."""
        names = list(columns) if columns is not None else self.schema.names
        values = self._values[file.path]
        with opened_source(self._storage, self._absolute(file.path)) as (source, parquet):
            stored = set(parquet.schema_arrow.names)
            physical = {name: self._physical(name) for name in names if name not in values}
            read = [name for name in physical.values() if name in stored]
            for group in range(parquet.num_row_groups):
                read_ahead(source, parquet.metadata, [group], read)
                table = parquet.read_row_group(group, columns=read)
                arrays = [
                    self._column(name, values, table, physical.get(name, ""), f"{self._root}/{file.path}")
                    for name in names
                ]
                yield pa.table(arrays, schema=pa.schema([self.schema.field(name) for name in names]))

    def deleted(self, file: LakeFile) -> Bools | None:
        """True for every deleted row of a file; None if none is."""
        return self._masks.get(file.path)

    def _column(self, name: str, values: Mapping[str, Any], table: pa.Table, physical: str, where: str) -> Any:
        kind = self.schema.field(name).type
        if name in values:
            value = values[name]
            return (
                pa.nulls(table.num_rows, kind)
                if value is None
                else pa.repeat(pa.scalar(value).cast(kind), table.num_rows)
            )
        if physical not in table.column_names:
            return pa.nulls(table.num_rows, kind)
        column = table.column(physical).combine_chunks()
        field = self._fields[name]
        if field is not None:
            column = _logical(column, field["type"])
        try:
            # Other writers' times have nanoseconds, which a Delta table does not.
            return column.cast(kind, safe=not pat.is_timestamp(kind))
        except pa.ArrowException as error:
            raise TypeMismatch("a column of a data file must have the type of the table", where=f"{where}, column {name}",
                               value=str(column.type), allowed=str(kind)) from error  # fmt: skip

    def _physical(self, name: str) -> str:
        field = self._fields[name]
        return name if field is None else _physical_name(field)

    def _absolute(self, path: str) -> str:
        return path if "://" in path or path.startswith("/") else f"{self._root}/{path}"

    def _named(self, path: str) -> str | None:
        """The spelling of a file in the deletion vectors."""
        absolute = without_credentials(self._absolute(path))
        found = (name for name in (absolute, f"file://{absolute}") if name in self._deleted)
        return next(found, None)


def open_delta(storage: Storage, root: str, log: str, version: str) -> DeltaSnapshot:
    """A version of the Delta table in a folder, the newest one by default.

    Raises :class:`~transforms.errors.StorageError` without deltalake and for a store that fails, :class:`InputError` for a version
    that is no number, and :class:`DataError` for a table that cannot be read.
    """
    try:
        from deltalake import DeltaTable
    except ImportError as error:
        raise missing_extra("deltalake", "delta", log) from error
    if version and not (version.isascii() and version.isdigit()):
        raise InputError("a version of a Delta table must be a number", where="--lake-version", value=version)
    with translated_lake_errors("a Delta", root, (OSError,)):
        table = DeltaTable(without_credentials(root), version=int(version) if version else None,
                           storage_options=storage.delta_options(root) or None)  # fmt: skip
        features = set(table.protocol().reader_features or ())
        if unknown := features - READER_FEATURES:
            raise DataError("a Delta table must need only features that this reader knows", where=log,
                            value=", ".join(sorted(unknown)), allowed=", ".join(sorted(READER_FEATURES)),
                            next_step="write a copy without them")  # fmt: skip
        return DeltaSnapshot(storage, root, table)


def _operation(table: Any) -> str:
    """The operation that made the version; empty if the log does not have it any more."""
    for entry in table.history(1):
        if entry.get("version") == table.version():
            return str(entry.get("operation", ""))
    return ""


def _deletions(table: Any) -> dict[str, Bools]:
    """The deleted rows of each file that has some, by its URI without the percent-encoding."""
    if "deletionVectors" not in set(table.protocol().reader_features or ()):
        return {}
    found: dict[str, Bools] = {}
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        for path, kept in zip(batch.column("filepath"), batch.column("selection_vector"), strict=True):
            found[unquote(path.as_py())] = ~np.asarray(kept.values.to_numpy(zero_copy_only=False), np.bool_)
    return found


def _partition_values(actions: pa.Table, columns: Sequence[str]) -> list[dict[str, Any]]:
    if not columns:
        return [{} for _ in range(actions.num_rows)]
    values = actions.column("partition").combine_chunks()
    found = {name: values.field(name).to_pylist() for name in columns}
    return [{name: found[name][row] for name in columns} for row in range(actions.num_rows)]


def _state(mask: Bools | None) -> str:
    if mask is None:
        return ""
    return hashlib.sha256(len(mask).to_bytes(8, "big") + np.packbits(mask).tobytes()).hexdigest()


def _physical_name(field: Mapping[str, Any]) -> str:
    return str(field["metadata"].get(_PHYSICAL_NAME, field["name"]))


def _logical(array: pa.Array, kind: Any) -> pa.Array:
    """The array with the names that the table has for fields of structs, at any depth."""
    if not isinstance(kind, dict):
        return array
    if kind["type"] == "struct":
        children = {field.name: child for field, child in zip(array.type, array.flatten(), strict=True)}
        found = [(field, children.get(_physical_name(field))) for field in kind["fields"]]
        present = [(field["name"], _logical(child, field["type"])) for field, child in found if child is not None]
        return pa.StructArray.from_arrays(
            [child for _, child in present], [name for name, _ in present], mask=array.is_null()
        )
    if kind["type"] == "array":
        items = _logical(array.values, kind["elementType"])
        return type(array).from_arrays(array.offsets, items, mask=array.is_null())
    keys, values = _logical(array.keys, kind["keyType"]), _logical(array.items, kind["valueType"])
    return pa.MapArray.from_arrays(array.offsets, keys, values)
