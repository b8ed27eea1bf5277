"""Iceberg tables by pyiceberg: from a catalog, or from the newest metadata file of a folder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from sqlalchemy.exc import OperationalError

from transforms.arrays import Bools, Ints
from transforms.errors import DataError, InputError
from warehouse.lakes.reader_errors import translated_lake_errors
from warehouse.lakes.row_codes import row_codes
from warehouse.lakes.snapshot import LakeFile
from warehouse.storage.object_clients import missing_extra
from warehouse.storage.storage import Storage

#: ``iceberg://CATALOG/NAMESPACE.TABLE``.
SCHEME = "iceberg://"
_METADATA = re.compile(r"v?(\d+)(?:-[0-9a-fA-F-]+)?(?:\.gz)?\.metadata\.json")
_HINT = "version-hint.text"


@dataclass(frozen=True)
class _Deletes:
    """The delete files of one data file: by position, and by equal values."""

    by_position: tuple[Any, ...]
    by_value: tuple[Any, ...]

    @property
    def state(self) -> str:
        """A digest of what they are; empty for none."""
        named = sorted(
            f"{one.file_path} {getattr(one, 'content_offset', None)}" for one in (*self.by_position, *self.by_value)
        )
        return hashlib.sha256("\n".join(named).encode()).hexdigest() if named else ""


class IcebergSnapshot:
    """One snapshot of an Iceberg table; see :class:`warehouse.lakes.snapshot.LakeSnapshot`."""

    format: Final = "iceberg"

    def __init__(self, table: Any, version: str, where: str) -> None:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        self._table, self._where = table, where
        snapshot = table.snapshot_by_id(int(version)) if version else table.current_snapshot()
        if snapshot is None:
            raise DataError("an Iceberg table must have the snapshot", where=where, value=version or "no snapshot",
                            next_step="write rows to it, or name another --lake-version")  # fmt: skip
        self.lake_id, self.version = str(table.metadata.table_uuid), str(snapshot.snapshot_id)
        self.operation = snapshot.summary.operation.value if snapshot.summary is not None else ""
        self._projection = table.scan(snapshot_id=snapshot.snapshot_id).projection()
        self.schema = _usual_types(schema_to_pyarrow(self._projection, include_field_ids=False))
        self.keys = tuple(sorted(self._projection.identifier_field_names()))
        self._data, self._deletes = _plan(table, snapshot)
        self._position_deletes: dict[str, Any] = {}
        self.files = tuple(
            LakeFile(path, self._deletes[path].state, int(self._data[path].record_count)) for path in sorted(self._data)
        )

    def rows(self, file: LakeFile, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """All rows of a file, in pieces."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.table import FileScanTask

        names = list(columns) if columns is not None else self.schema.names
        schema = pa.schema([self.schema.field(name) for name in names])
        with _translated(self._where):
            scan = ArrowScan(self._table.metadata, self._table.io, self._projection.select(*names), AlwaysTrue())
            for batch in scan.to_record_batches([FileScanTask(self._data[file.path])]):
                yield pa.Table.from_batches([batch]).select(names).cast(schema)

    def deleted(self, file: LakeFile) -> Bools | None:
        """True for every deleted row of a file; None if none is."""
        deletes = self._deletes[file.path]
        if not deletes.state:
            return None
        mask = np.zeros(int(self._data[file.path].record_count), np.bool_)
        with _translated(self._where):
            for one in deletes.by_position:
                mask[self._positions(one, file.path)] = True
        by_columns: dict[tuple[int, ...], list[Any]] = {}
        for one in deletes.by_value:
            by_columns.setdefault(tuple(one.equality_ids), []).append(one)
        for ids, files in by_columns.items():
            mask |= self._equal(file, ids, files)
        return mask

    def _positions(self, delete_file: Any, path: str) -> Ints:
        """The positions in a data file that a file of position deletes, or a deletion vector, names."""
        if delete_file.file_path not in self._position_deletes:
            self._position_deletes[delete_file.file_path] = _read_positions(self._table.io, delete_file)
        found: Ints = self._position_deletes[delete_file.file_path].get(path, np.zeros(0, np.int64))
        return found

    def _equal(self, file: LakeFile, ids: Sequence[int], delete_files: Sequence[Any]) -> Bools:
        """The rows of a data file whose values of some columns are those of a row of a delete file."""
        names = [self._projection.find_column_name(one) for one in ids]
        if None in names or any("." in str(name) for name in names):
            raise DataError("equality deletes must be by columns of the table", where=self._where, value=str(list(ids)),
                            next_step="compact the table: CALL system.rewrite_data_files with delete-file-threshold 1")  # fmt: skip
        schema = pa.schema([self.schema.field(str(name)) for name in names])
        with _translated(self._where):
            deleted = pa.concat_tables([_read_values(self._table.io, one, ids, schema) for one in delete_files])
        rows = pa.concat_tables([schema.empty_table(), *self.rows(file, schema.names)])
        both = pa.concat_tables([deleted, rows])
        codes = row_codes(both.columns, both.num_rows)
        return np.isin(codes[deleted.num_rows :], codes[: deleted.num_rows])


def open_iceberg(storage: Storage, location: str, log: str, version: str) -> IcebergSnapshot:
    """A snapshot of an Iceberg table, the newest one by default.

    ``location``: ``iceberg://CATALOG/NAMESPACE.TABLE``, or a folder, in which the metadata file with the highest number is the
    newest. Raises :class:`~transforms.errors.StorageError` without pyiceberg and for a store or catalog that fails,
    :class:`InputError` for a snapshot that is no number, and :class:`DataError` for a table that cannot be read.
    """
    try:
        import pyiceberg.table  # noqa: F401 - only to know whether it is installed
    except ImportError as error:
        raise missing_extra("pyiceberg", "iceberg", log or location) from error
    if version and not version.lstrip("-").isdigit():
        raise InputError(
            "a snapshot of an Iceberg table must be the number of its id", where="--lake-version", value=version
        )
    with _translated(location):
        table = _from_catalog(location) if location.startswith(SCHEME) else _from_folder(storage, location)
        return IcebergSnapshot(table, version, location)


def newest_metadata(names: Sequence[str], hint: str) -> str | None:
    """The newest of the names of metadata files: by the hint, else the one with the highest number.

    The hint of a Hadoop table, a number, is written after the file that it names, so that newer ones may follow.
    """
    found = {name: match for name in names if (match := _METADATA.fullmatch(name))}
    known = hint if hint in found else ""
    number = int(hint) if hint.isascii() and hint.isdigit() else None
    while number is not None:
        spelled = (f"v{number}.metadata.json", f"v{number}.gz.metadata.json", f"{number}.metadata.json")
        here = next((name for name in spelled if name in found), None)
        known, number = here or known, number + 1 if here else None
    return known or max(found, key=lambda name: (int(found[name][1]), name), default=None)


def _translated(where: str) -> AbstractContextManager[None]:
    from pyiceberg.exceptions import ServerError, ServiceUnavailableError, TooManyRequestsError

    passing = (OperationalError, ServerError, ServiceUnavailableError, TooManyRequestsError)
    return translated_lake_errors("an Iceberg", where, passing)


def _from_catalog(location: str) -> Any:
    from pyiceberg.catalog import load_catalog

    catalog, _, name = location.removeprefix(SCHEME).partition("/")
    if not catalog or "." not in name:
        raise InputError("an Iceberg table of a catalog must have its namespace", value=location,
                         allowed=f"{SCHEME}CATALOG/NAMESPACE.TABLE, with the catalog in .pyiceberg.yaml or the environment")  # fmt: skip
    return load_catalog(catalog).load_table(name)


def _from_folder(storage: Storage, root: str) -> Any:
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.serializers import FromInputFile
    from pyiceberg.table import StaticTable

    from warehouse.lakes.iceberg_files import FolderFiles

    here = root.rstrip("/")
    folder = f"{here}/metadata"
    hint = (
        storage.read_bytes(f"{folder}/{_HINT}").decode("ascii", "replace").strip()
        if storage.exists(f"{folder}/{_HINT}")
        else ""
    )
    name = newest_metadata([file.path.rpartition("/")[2] for file in storage.list(folder)], hint)
    if name is None:
        raise DataError("an Iceberg table must have a metadata file", where=folder, allowed="N-UUID.metadata.json or vN.metadata.json")  # fmt: skip
    files, at = FolderFiles(storage, here), f"{folder}/{name}"
    metadata = FromInputFile.table_metadata(files.new_input(at))
    files.written = str(metadata.location).rstrip("/")
    return StaticTable(("static-table", at), metadata, at, files, NoopCatalog("static-table"))


def _plan(table: Any, snapshot: Any) -> tuple[dict[str, Any], dict[str, _Deletes]]:
    """The live data files by path, and the delete files of each.

    pyiceberg plans no scan of a table with equality deletes. They apply to files with a lower sequence number of their partition, or
    of all partitions if their own specification has none.
    """
    from pyiceberg.manifest import DataFileContent
    from pyiceberg.table.delete_file_index import DeleteFileIndex

    data, by_value, by_position = list[Any](), list[Any](), DeleteFileIndex()
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            file = entry.data_file
            if file.content == DataFileContent.DATA:
                data.append(entry)
            elif file.content == DataFileContent.POSITION_DELETES:
                by_position.add_delete_file(entry, partition_key=file.partition)
            else:
                by_value.append(entry)
    files, deletes = {}, {}
    for entry in data:
        file, number = entry.data_file, entry.sequence_number or 0
        positions = by_position.for_data_file(number, file, partition_key=file.partition)
        values = [
            one.data_file
            for one in by_value
            if (one.sequence_number or 0) > number and _applies(table, one.data_file, file)
        ]
        files[file.file_path] = file
        deletes[file.file_path] = _Deletes(tuple(positions), tuple(values))
    return files, deletes


def _applies(table: Any, delete_file: Any, data_file: Any) -> bool:
    if table.specs()[delete_file.spec_id].is_unpartitioned():
        return True
    return bool(delete_file.spec_id == data_file.spec_id and delete_file.partition == data_file.partition)


def _read_positions(io: Any, delete_file: Any) -> dict[str, Ints]:
    """The deleted positions in each data file that a delete file names."""
    from pyiceberg.manifest import FileFormat
    from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
    from pyiceberg.table.puffin import PuffinFile

    if delete_file.file_format == FileFormat.PUFFIN:
        with io.new_input(delete_file.file_path).open() as file:
            vectors = deletion_vectors_from_puffin_file(PuffinFile(file.read()))
        return {one.referenced_data_file: np.asarray(one.to_vector(), np.int64) for one in vectors}
    read = _read_parquet(io, delete_file)
    paths = read.column("file_path").combine_chunks().cast(pa.string()).dictionary_encode()
    positions = np.asarray(read.column("pos").cast(pa.int64()))
    indices = np.asarray(paths.indices)
    return {path: positions[indices == number] for number, path in enumerate(paths.dictionary.to_pylist())}


def _read_values(io: Any, delete_file: Any, ids: Sequence[int], schema: pa.Schema) -> pa.Table:
    """The rows of a file of equality deletes, by field ids, with the columns of ``schema``."""
    read = _read_parquet(io, delete_file)
    by_id = {int((field.metadata or {}).get(b"PARQUET:field_id", b"-1")): field.name for field in read.schema}
    if missing := [one for one in ids if one not in by_id]:
        raise DataError("a file of equality deletes must have the columns that it names", where=delete_file.file_path,
                        value=str(missing))  # fmt: skip
    return pa.table([read.column(by_id[one]) for one in ids], names=schema.names).cast(schema)


def _read_parquet(io: Any, delete_file: Any) -> pa.Table:
    import pyarrow.parquet as pq
    from pyiceberg.manifest import FileFormat

    if delete_file.file_format != FileFormat.PARQUET:
        raise DataError("a delete file of an Iceberg table must be Parquet or Puffin", where=delete_file.file_path,
                        value=delete_file.file_format.value,
                        next_step="compact the table: CALL system.rewrite_position_delete_files")  # fmt: skip
    with io.new_input(delete_file.file_path).open() as file:
        return pq.read_table(file)


def _usual_types(schema: pa.Schema) -> pa.Schema:
    """Text and lists with 32-bit offsets, as files have them."""
    return pa.schema([pa.field(field.name, _usual(field.type)) for field in schema])


def _usual(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(pa.field("element", _usual(kind.value_type)))
    return kind
