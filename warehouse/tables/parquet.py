"""Raw Parquet files: reading their schema, their fragments and columns."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.errors import DataError, InputError, InvalidText, TypeMismatch, UnknownColumn, nearest
from warehouse.errors import ChangedData, CorruptFile
from warehouse.files.digests import logical_type, table_digests
from warehouse.storage.errors import storage_error
from warehouse.storage.object_reader import ObjectFile
from warehouse.storage.storage import Storage
from warehouse.tables.evolution.known_values import NOTHING_KNOWN, KnownValues
from warehouse.tables.hive_levels import NO_LEVELS
from warehouse.tables.overlays import read_overlays
from warehouse.tables.table import ColumnSchema, Fragment

#: Called with the first invalid text of a column. It raises, or returns to have invalid bytes replaced by U+FFFD.
OnInvalidText = Callable[[InvalidText], None]


#: Called with the file, the number of the first row in it, and the validated rows of a fragment.
OnRows = Callable[[str, int, pa.Table], None]


def ignore_rows(path: str, first_row: int, rows: pa.Table) -> None:
    """Check nothing."""


def refuse_invalid_text(error: InvalidText) -> None:
    """Raise the error."""
    raise error


def invalid_text_rule(rule: str, replaced: list[str]) -> OnInvalidText:
    """The callback for the rule ``refuse`` or ``replace``, which appends replaced columns to ``replaced``.

    Raises :class:`InputError` for another rule.
    """

    def refuse(error: InvalidText) -> None:
        error.next_step += ", or replace invalid bytes by U+FFFD: --invalid-text replace"
        raise error

    def replace(error: InvalidText) -> None:
        replaced.append(error.where)

    if rule not in ("refuse", "replace"):
        raise InputError("the rule for invalid text must be refuse or replace", where="--invalid-text", value=rule,
                         allowed="refuse, replace")  # fmt: skip
    return refuse if rule == "refuse" else replace


#: Times of the type INT96, which Spark writes unless asked otherwise. Nanoseconds hold the years 1678 to 2262 only, and Arrow's
#: reader would wrap others silently.
_INT96_UNIT = "us"
#: Fewer rows are decoded in less time than threads take to start.
_WORTH_THREADS_ROWS = 1 << 12


def read_schema(storage: Storage, path: str) -> tuple[ColumnSchema, ...]:
    """The columns of one file, in file order. Reads the footer only.

    Raises :class:`CorruptFile` for a truncated file, another format, repeated names or names that are not UTF-8, and
    :class:`TypeMismatch` for a type without a digest.
    """
    with opened(storage, path) as file:
        schema = file.schema_arrow
        columns = tuple(ColumnSchema(field.name, str(field.type)) for field in schema)
    if len(set(schema.names)) != len(schema.names):
        raise CorruptFile("the column names of a Parquet file must be unique", where=path, value=schema.names)
    for field in schema:
        try:
            logical_type(field.type)
        except TypeMismatch as error:
            raise TypeMismatch(error.what, where=f"{path}, column {field.name}", value=error.value,
                               allowed=error.allowed, next_step="drop the column or store it as text") from error  # fmt: skip
    return columns


def read_fragments(
    storage: Storage,
    path: str,
    fragment_rows: int,
    threads: int = 0,
    on_invalid_text: OnInvalidText = refuse_invalid_text,
    on_rows: OnRows = ignore_rows,
    *,
    known: KnownValues = NOTHING_KNOWN,
    levels: Mapping[str, str | None] = NO_LEVELS,
) -> tuple[Fragment, ...]:
    """Read a file once and digest every column with values of every fragment; an empty file has no fragments.

    Digests of replaced text are those of the text with U+FFFD, as :func:`read_columns` returns it. ``known``: the values of the
    table. ``levels``: the values of columns that the file's folders state; a column of the file goes before. Raises
    :class:`CorruptFile` and the errors of ``on_invalid_text`` and ``on_rows``.
    """
    fragments = []
    first_row = 0
    with opened(storage, path) as file:
        groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
        names = set(file.schema_arrow.names)
        for chosen in gather_row_groups([group.num_rows for group in groups], fragment_rows):
            rows = sum(groups[index].num_rows for index in chosen)
            table = file.read_row_groups(list(chosen), use_threads=rows >= _WORTH_THREADS_ROWS)
            if table.num_rows != rows:
                raise CorruptFile("a Parquet file must have the rows of its footer", where=path,
                                  value=table.num_rows, next_step="write the file again")  # fmt: skip
            table = _validate_text(table, path, first_row, on_invalid_text)
            on_rows(path, first_row, table)
            stated = {name: value for name, value in levels.items() if value is not None and name not in names}
            for name, value in stated.items():
                table = table.append_column(name, pa.repeat(value, table.num_rows))
            stored = known.stored(table, table_digests(table, threads))
            first_row += table.num_rows
            size_bytes = sum(_compressed_bytes(groups[index]) for index in chosen)
            fragments.append(Fragment(stored.identity, path, chosen, table.num_rows, size_bytes, stored.digests,
                                      levels=stated, digest_types=stored.digest_types))  # fmt: skip
    return tuple(fragments)


def _compressed_bytes(group: Any) -> int:
    return sum(group.column(index).total_compressed_size for index in range(group.num_columns))


def _validate_text(table: pa.Table, path: str, first_row: int, on_invalid_text: OnInvalidText) -> pa.Table:
    """The table with valid text, as kernels need it; ``first_row`` is the number of its first row in the file."""
    columns = [
        _validate_column_text(table.column(name), f"{path}, column {name}", first_row, on_invalid_text)
        for name in table.column_names
    ]
    return pa.table(columns, names=table.column_names)


def _validate_column_text(
    column: pa.ChunkedArray, where: str, first_row: int, on_invalid_text: OnInvalidText
) -> pa.ChunkedArray:
    from transforms.kernels.text_validity import check_array, replaced

    try:
        check_array(column)
    except InvalidText as error:
        row = None if error.row is None else error.row + first_row
        on_invalid_text(InvalidText(row, error.text, where=where, next_step="write the column as UTF-8"))
        return replaced(column)
    except DataError as error:
        raise CorruptFile(error.what, where=where, value=error.value, next_step=error.next_step) from error
    return column


def read_whole(storage: Storage, path: str, on_invalid_text: OnInvalidText = refuse_invalid_text) -> pa.Table:
    """Every row and column of a file. Raises :class:`CorruptFile` and the errors of ``on_invalid_text``."""
    with opened(storage, path) as file:
        names = file.schema_arrow.names
        if len(set(names)) != len(names):
            raise CorruptFile("the column names of a Parquet file must be unique", where=path, value=names)
        return _validate_text(file.read(use_threads=True), path, 0, on_invalid_text)


def read_arrow_schema(storage: Storage, path: str) -> pa.Schema:
    """The names and types of a file's columns, without metadata. Reads the footer only. Raises :class:`CorruptFile`."""
    with opened(storage, path) as file:
        schema = file.schema_arrow
        return pa.schema([pa.field(field.name, field.type) for field in schema])


def row_batches(
    storage: Storage,
    path: str,
    batch_rows: int,
    on_invalid_text: OnInvalidText = refuse_invalid_text,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.Table]:
    """The rows of a file in batches of at most ``batch_rows``, of all columns or some. Raises as :func:`read_whole` does."""
    first_row = 0
    with opened(storage, path) as file:
        for batch in file.iter_batches(batch_size=batch_rows, columns=columns):
            table = _validate_text(pa.Table.from_batches([batch]), path, first_row, on_invalid_text)
            first_row += table.num_rows
            yield table


def row_count(storage: Storage, path: str) -> int:
    """The rows of a file. Reads the footer only. Raises :class:`CorruptFile`."""
    with opened(storage, path) as file:
        return int(file.metadata.num_rows)


def gather_row_groups(rows: Sequence[int], most_rows: int) -> list[tuple[int, ...]]:
    """Ranges of consecutive row groups with at most ``most_rows`` rows; a larger row group is a range by itself."""
    ranges: list[tuple[int, ...]] = []
    gathered: list[int] = []
    total = 0
    for index, count in enumerate(rows):
        if gathered and total + count > most_rows:
            ranges.append(tuple(gathered))
            gathered, total = [], 0
        gathered.append(index)
        total += count
    if total:
        ranges.append(tuple(gathered))
    return ranges


def read_columns(storage: Storage, fragment: Fragment, columns: Sequence[str], coded: Sequence[str] = ()) -> pa.Table:
    """The current values of a fragment's columns: overlaid ones from their overlays, others from its folders or the file.

    Invalid text is replaced by U+FFFD; its digest shows whether it was registered so. Text columns in ``coded`` that the file
    stores as codes of a small dictionary are returned as Arrow dictionaries, which are cheaper to read and to compute with.

    Raises :class:`UnknownColumn`, :class:`CorruptFile`, :class:`ChangedData` and :class:`~warehouse.errors.OverlayDamaged`.
    """
    made = {*fragment.levels, *(one.column for one in fragment.overlays if one.is_absent)}
    if fragment.rows > _ROWS_UNCHECKED and not made.isdisjoint(columns):
        _check_rows(storage, fragment)
    changed = read_overlays(storage, fragment, columns)
    for name in columns:
        if name in fragment.levels and name not in changed:
            changed[name] = _level_column(fragment.levels[name], fragment.rows, is_coded=name in coded)
    stored = [column for column in columns if column not in changed]
    if not stored and columns:
        return pa.table([changed[column] for column in columns], names=list(columns))
    table = _read_stored(storage, fragment, stored, coded)
    if not changed:
        return table
    if table.num_rows != fragment.rows:
        raise ChangedData("the file must have the rows that were registered", where=fragment.path, value=table.num_rows,
                          allowed=str(fragment.rows), next_step="register the table again: headrace table add")  # fmt: skip
    arrays = [changed[column] if column in changed else table.column(column) for column in columns]
    return pa.table(arrays, names=list(columns))


def _level_column(value: str, rows: int, *, is_coded: bool) -> pa.Array:
    if is_coded:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value]))
    return pa.repeat(value, rows)


#: A longer column that no file holds is created only after a check of the file's rows: a solution may state any number.
_ROWS_UNCHECKED = 1 << 22


def _check_rows(storage: Storage, fragment: Fragment) -> None:
    with opened(storage, fragment.path) as file:
        groups = range(file.metadata.num_row_groups)
        rows = sum(file.metadata.row_group(index).num_rows for index in fragment.row_groups if index in groups)
    if rows != fragment.rows:
        raise ChangedData("the file must have the rows that were registered", where=fragment.path, value=rows,
                          allowed=str(fragment.rows), next_step="register the table again: headrace table add")  # fmt: skip


def check_text(storage: Storage, fragment: Fragment, column: str) -> None:
    """Raise :class:`InvalidText`, with the row in the fragment, if a column of its file holds invalid text."""
    _read_stored(storage, fragment, [column], (), refuse_invalid_text)


def _replace_invalid_text(error: InvalidText) -> None:
    """Replace it; the column's digest shows whether it was registered so."""


def _read_stored(
    storage: Storage,
    fragment: Fragment,
    columns: Sequence[str],
    coded: Sequence[str],
    on_invalid_text: OnInvalidText = _replace_invalid_text,
) -> pa.Table:
    with opened_source(storage, fragment.path) as (source, file):
        names = file.schema_arrow.names
        check_columns(columns, names, fragment.path)
        if any(index >= file.metadata.num_row_groups for index in fragment.row_groups):
            raise CorruptFile("the file must have the row groups that were registered", where=fragment.path,
                              value=file.metadata.num_row_groups, next_step="register the table again")  # fmt: skip
        read = read_groups(source, file, fragment.row_groups, columns, coded)
    return _validate_text(read, fragment.path, 0, on_invalid_text)


def check_columns(columns: Sequence[str], found: Sequence[str], where: str) -> None:
    """Raise :class:`UnknownColumn`, with the nearest names, unless a file has all of ``columns``."""
    held = set(found)
    for column in columns:
        if column not in held:
            raise UnknownColumn(
                "the file has no such column", where=where, value=column, allowed=nearest(column, found)
            )


@contextlib.contextmanager
def opened(storage: Storage, path: str) -> Iterator[Any]:
    """The ``ParquetFile`` at a path. Raises :class:`CorruptFile` and the errors of the storage, also for what its reads raise."""
    with opened_source(storage, path) as (_, file):
        yield file


@contextlib.contextmanager
def opened_source(storage: Storage, path: str) -> Iterator[tuple[Any, Any]]:
    """(the source, the Parquet file over it); raises as :func:`opened` does."""
    with storage.open_input(path) as source:
        try:
            yield source, pq.ParquetFile(source, pre_buffer=True, coerce_int96_timestamp_unit=_INT96_UNIT)
        except UnicodeDecodeError as error:
            raise CorruptFile("a column name in a Parquet file must be UTF-8", where=path, value=error.object[:200],
                              next_step="rename the column and write the file again") from error  # fmt: skip
        except pa.ArrowException as error:
            raise _corrupt(path, error) from error
        except OSError as error:
            # Arrow reports damaged pages as OSError without an errno; the operating system always sets one.
            if error.errno is None:
                raise _corrupt(path, error) from error
            raise storage_error(error, path, "read") from error


def read_groups(
    source: Any,
    file: pq.ParquetFile,
    groups: Sequence[int],
    columns: Sequence[str],
    coded: Sequence[str] = (),
    *,
    threads: bool = True,
) -> pa.Table:
    """Columns of row groups of an opened file; text in ``coded`` as :func:`read_columns` says.

    ``threads`` lets Arrow decode several columns at a time. Raises what Arrow's reader raises.
    """
    read_ahead(source, file.metadata, groups, columns)
    decoded: dict[str, pa.ChunkedArray] = {}
    if sound := _sound_columns(file.metadata, groups, [name for name in coded if name in columns]):
        from warehouse.tables.text_pages import read_text  # compiled code

        codes = _stored_as_codes(file.metadata, groups[0], sound)
        if codes:
            file = pq.ParquetFile(
                source,
                metadata=file.metadata,
                read_dictionary=codes,
                pre_buffer=True,
                coerce_int96_timestamp_unit=_INT96_UNIT,
            )
        decoded = read_text(source, file, groups, sound)
    others = [name for name in columns if name not in decoded]
    if others or not decoded:
        read = file.read_row_groups(list(groups), columns=others, use_threads=threads)
        decoded |= {name: read.column(name) for name in others}
        if not columns:
            return read.select([])
    return pa.table([decoded[name] for name in columns], names=list(columns))


def read_ahead(source: Any, metadata: Any, groups: Sequence[int], columns: Sequence[str]) -> None:
    """Request the bytes of all columns at the same time where each request is a round trip to an object store."""
    if not isinstance(source, ObjectFile) or not columns or not _asks_for_bytes(metadata, groups, columns):
        return
    paths = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    prefixes = tuple(f"{name}." for name in columns)
    indices = [index for index, path in enumerate(paths) if path in columns or path.startswith(prefixes)]
    chunks = (metadata.row_group(group).column(index) for group in groups for index in indices)
    source.read_ahead((_first_byte(chunk), _first_byte(chunk) + chunk.total_compressed_size) for chunk in chunks)


def _first_byte(chunk: Any) -> int:
    at: int = chunk.data_page_offset
    return min(at, chunk.dictionary_page_offset) if chunk.dictionary_page_offset else at


#: Text columns with fewer bytes per value are stored as codes: plain text takes 4 bytes and its own.
_CODED_BYTES = 6


def _stored_as_codes(metadata: Any, group: int, names: Sequence[str]) -> list[str]:
    """Those of some sound columns that are stored as codes of a small dictionary."""
    index_of = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    first = metadata.row_group(group)
    found = {name: first.column(index_of[name]) for name in names}
    return [
        name
        for name, column in found.items()
        if column.physical_type == "BYTE_ARRAY" and column.total_uncompressed_size < _CODED_BYTES * column.num_values
    ]


def _sound_columns(metadata: Any, groups: Sequence[int], names: Sequence[str]) -> list[str]:
    """The columns whose metadata in all of the row groups can be read.

    For another column ``RowGroupMetaData.column`` ends the process: its C++ exception is not caught. A read catches it before
    the first byte is requested, so a file without bytes distinguishes the two.
    """
    flat = {metadata.schema.column(index).path for index in range(metadata.num_columns)}
    names = [name for name in names if name in flat]
    if not names or not groups or _asks_for_bytes(metadata, groups, names):
        return list(names) if groups else []
    return [name for name in names if _asks_for_bytes(metadata, groups, [name])]


def _asks_for_bytes(metadata: Any, groups: Sequence[int], names: Sequence[str]) -> bool:
    file = pq.ParquetFile(pa.PythonFile(_NoBytes(), mode="r"), metadata=metadata, pre_buffer=True)
    try:
        file.read_row_groups(list(groups), columns=list(names), use_threads=False)
    except _ByteAsked as asked:
        asked.__traceback__ = None  # the file keeps the error: with its frames, and so all their values, for ever
        return True
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        error.__traceback__ = None
        return False  # the read that follows raises the error
    return False


class _ByteAsked(Exception):
    """A byte of a :class:`_NoBytes` was requested."""


class _NoBytes(io.RawIOBase):
    """A file of any size without readable bytes."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (_ANY_BYTES if whence == io.SEEK_END else 0)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        raise _ByteAsked

    _at = 0


_ANY_BYTES = 1 << 62


def _corrupt(path: str, error: Exception) -> CorruptFile:
    return CorruptFile("the file is not a complete Parquet file", where=path, value=str(error).splitlines()[0][:200],
                       next_step="write the file again; nothing was changed")  # fmt: skip
