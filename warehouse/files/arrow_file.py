"""Files of overlays and deletion vectors: columns of one fragment, of any Arrow type.

An Arrow IPC file with ZSTD compression; integers are stored in the fewest bytes that hold the column's values. The file's
metadata holds the original types and the columns' checksums. A checksum is the digest of the column's *logical* values
(:mod:`warehouse.files.digests`), since memo keys contain it. The same columns always give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc

from transforms.columns.arrays import compact_array
from transforms.errors import InputError
from warehouse.errors import MemoDamaged
from warehouse.files.arrow_bounds import check_arrow_file
from warehouse.files.column_files import ColumnBytes, MemoFile, size_shares
from warehouse.files.damaged_files import damaged_if_unreadable
from warehouse.files.digests import column_digest, table_digests
from warehouse.storage.storage import Storage

#: The format in the metadata of every such file; memo files once had the same format, hence its name.
FORMAT = b"headrace.memo/2"
_NARROW = (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32())


def write_arrow_file(
    storage: Storage, path: str, columns: Mapping[str, pa.Array], digests: Mapping[str, str] | None = None
) -> MemoFile:
    """Write the columns, in order and of equal length, as one file.

    ``digests``: those of the columns (:mod:`warehouse.files.digests`), if the caller has them. Raises :class:`InputError` for no
    columns or unequal lengths, and :class:`~transforms.errors.StorageError`; no partial file is left.
    """
    whole = {name: compact_array(column) for name, column in columns.items()}
    if len({len(array) for array in whole.values()}) != 1:
        raise InputError("the columns of a file must have equal lengths", where=path,
                         value={name: len(array) for name, array in whole.items()})  # fmt: skip
    narrowed = [_narrow(array) for array in whole.values()]
    digests = table_digests(pa.table(whole)) if digests is None else dict(digests)
    checksums = json.dumps(digests, sort_keys=True, separators=(",", ":")).encode("utf-8")
    original = pa.schema([pa.field(name, array.type) for name, array in whole.items()])
    types = base64.b64encode(original.serialize().to_pybytes())
    metadata = {b"format": FORMAT, b"schema": types, b"schema_sha256": hashlib.sha256(types).hexdigest().encode(),
                b"checksums": checksums}  # fmt: skip
    stored = pa.schema([pa.field(name, array.type) for name, array in zip(whole, narrowed, strict=True)], metadata)
    batch = pa.record_batch(narrowed, schema=stored)

    def write(file: IO[bytes]) -> None:
        with ipc.new_file(file, stored, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_batch(batch)

    size_bytes = storage.write_atomic(path, write)
    shares = size_shares(size_bytes, [max(array.nbytes, 1) for array in narrowed])
    return MemoFile(path, size_bytes, hashlib.sha256(checksums).hexdigest(), {
        name: ColumnBytes(digests[name], len(array), share)
        for (name, array), share in zip(whole.items(), shares, strict=True)
    })  # fmt: skip


def read_arrow_columns(
    storage: Storage, path: str, columns: Mapping[str, str], *, rows: int | None = None
) -> dict[str, pa.Array]:
    """The columns (name to expected checksum) in their original types; only their bytes are read.

    ``rows``: the rows that they must have, if known. Raises :class:`MemoDamaged` if the file is missing or truncated, lacks a
    column, or holds other values.
    """
    with damaged_if_unreadable(MemoDamaged, "a memo file cannot be read", path, "it is computed again"):
        read = _read_unverified(storage, path, list(columns), rows)
    for name, array in read.items():
        found = column_digest(array)
        if found != columns[name]:
            raise MemoDamaged("the memo does not have the values that were committed", where=f"{path}, column {name}",
                              value=found, allowed=columns[name], next_step="it is computed again")  # fmt: skip
    return read


def _read_unverified(storage: Storage, path: str, names: list[str], rows: int | None) -> dict[str, pa.Array]:
    with storage.open_input(path) as source:
        stored = ipc.open_file(source).schema
        metadata = stored.metadata or {}
        if metadata.get(b"format") != FORMAT:
            raise MemoDamaged(
                "the file is not a memo file", where=path, value=metadata.get(b"format"), allowed=FORMAT.decode()
            )
        for name in names:
            if name not in stored.names:
                raise MemoDamaged("the memo file has no such column", where=path, value=name)
        types = metadata.get(b"schema", b"")
        if hashlib.sha256(types).hexdigest().encode() != metadata.get(b"schema_sha256"):
            raise MemoDamaged("the types of the memo file are damaged", where=path, value=types[:80])
        original = ipc.read_schema(pa.py_buffer(base64.b64decode(types)))
        chosen = ipc.IpcReadOptions(included_fields=[stored.get_field_index(name) for name in names])
        check_arrow_file(source, rows)
        table = ipc.open_file(source, options=chosen).read_all()
        table.validate(full=True)  # damaged offsets must not be followed
        return {name: _widen(compact_array(table.column(name)), original.field(name).type) for name in names}


def _narrow(array: pa.Array) -> pa.Array:
    if pa.types.is_list(array.type):
        first, last = (array.offsets[0].as_py(), array.offsets[-1].as_py()) if len(array) else (0, 0)
        if first != 0 or last != len(array.values):
            array = pa.concat_arrays([array, array.slice(0, 0)])
        items = _narrow(array.values)
        if items.type == array.type.value_type:
            return array
        field = array.type.value_field.with_type(items.type)
        return pa.ListArray.from_arrays(array.offsets, items, type=pa.list_(field), mask=_mask(array))
    if pa.types.is_struct(array.type) and not array.null_count:
        parts = [_narrow(part) for part in array.flatten()]
        fields = [field.with_type(part.type) for field, part in zip(array.type.fields, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields)
    if pa.types.is_fixed_size_list(array.type) and not array.null_count:
        items = _narrow(array.flatten())
        return pa.FixedSizeListArray.from_arrays(
            items, type=pa.list_(array.type.value_field.with_type(items.type), array.type.list_size)
        )
    if pa.types.is_int64(array.type) and len(array) > array.null_count:
        lowest, highest = (int(value.as_py()) for value in pc.min_max(array).values())
        for narrow in _NARROW:
            least, most = _limits(narrow)
            if least <= lowest and highest <= most:
                return array.cast(narrow)
    return array


def _limits(integers: pa.DataType) -> tuple[int, int]:
    """The least and the greatest value. (Arrow's own function needs pandas.)"""
    if pa.types.is_unsigned_integer(integers):
        return 0, 2**integers.bit_width - 1
    return -(2 ** (integers.bit_width - 1)), 2 ** (integers.bit_width - 1) - 1


def _mask(array: pa.Array) -> Any:
    return array.is_null() if array.null_count else None


def _widen(array: pa.Array, original: pa.DataType) -> pa.Array:
    return array if array.type == original else array.cast(original)
