"""Reading raw columns of a fragment, verified by their registered digests."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from warehouse.errors import ChangedData
from warehouse.files.digests import column_digest, logical_type
from warehouse.storage.storage import Storage
from warehouse.tables.parquet import check_text, read_columns
from warehouse.tables.stored_types import parse_stored_type
from warehouse.tables.table import Fragment
from warehouse.tables.widening import cast_exactly


def read_raw(
    storage: Storage, fragment: Fragment, columns: Sequence[str], verify: bool = True, *, coded: Sequence[str] = ()
) -> pa.Table:
    """Raw columns of a fragment with overlays applied, for all events, including deleted ones.

    A column that files of the table hold in several types has the widest one.

    With ``verify`` their digests are compared with the manifest's; overlays are always verified. Text in ``coded`` may be
    returned as a dictionary, from which a plan computes the same result faster. Raises :class:`ChangedData` for a file that was
    changed, :class:`~transforms.errors.InvalidText` if the change is invalid text, :class:`~warehouse.errors.CorruptFile`,
    :class:`~warehouse.errors.OverlayDamaged` and :class:`~transforms.errors.UnknownColumn`.
    """
    if fragment.members:
        return _joined(
            [read_raw(storage, one, columns, verify, coded=coded) for one in fragment.members], fragment.rows
        )
    table = read_columns(storage, fragment, columns, coded)
    if table.num_rows != fragment.rows:
        raise _changed(fragment, "rows", table.num_rows, fragment.rows)
    if verify:
        overlaid = {overlay.column for overlay in fragment.overlays}
        for name in columns:
            if name in overlaid:
                continue
            found = _digest(table.column(name), fragment.digest_types.get(name))
            if found != fragment.digests.get(name):
                if name not in fragment.levels:
                    check_text(storage, fragment, name)
                raise _changed(fragment, f"column {name}", found, fragment.digests.get(name))
    return _widened(table, fragment) if fragment.types or fragment.digest_types else table


def _digest(column: pa.ChunkedArray, digest_type: str | None) -> str:
    """The digest of a column in its own type or, of equal values, in another; a text that is no digest if they are not equal."""
    kind = None if digest_type is None else parse_stored_type(digest_type)
    if kind is not None:
        narrow = cast_exactly(column, kind)
        return f"values that are not all of type {kind}" if narrow is None else column_digest(narrow)
    return column_digest(column)


def _widened(table: pa.Table, fragment: Fragment) -> pa.Table:
    """The columns in the types of the table. Raises :class:`ChangedData` for a value that has no place there."""
    for at, name in enumerate(table.column_names):
        spelled = fragment.types.get(name) or fragment.digest_types.get(
            name
        )  # an untyped column has the table's type there
        wanted = None if spelled is None else parse_stored_type(spelled)
        stored = table.column(at)
        if wanted is None or logical_type(stored.type) == logical_type(wanted):
            continue
        try:
            table = table.set_column(at, name, stored.cast(wanted))
        except pa.ArrowException as error:
            raise _changed(fragment, f"column {name}", str(error).splitlines()[0][:200], spelled) from error
    return table


def _joined(parts: Sequence[pa.Table], rows: int) -> pa.Table:
    """The rows of all parts, in order, each column of one type."""
    names = parts[0].column_names
    if not names:
        return pa.table({"rows": pa.nulls(rows)}).select([])
    return pa.table([_joined_column([part.column(name) for part in parts]) for name in names], names=names)


def _joined_column(parts: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """The values of all parts; parts of different types, such as text with and without a dictionary, become those of one.

    Dictionaries stay those of their parts: a plan joins them, and Arrow cannot where one holds a null.
    """
    if len({part.type for part in parts}) > 1:
        plain = [part.cast(part.type.value_type) if pa.types.is_dictionary(part.type) else part for part in parts]
        parts = [part.cast(plain[0].type) for part in plain]
    return pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type)


def _changed(fragment: Fragment, what: str, found: object, registered: object) -> ChangedData:
    return ChangedData("the file changed since it was registered", where=f"{fragment.path}, {what}", value=found,
                       allowed=str(registered), next_step="register the table again: headrace table add")  # fmt: skip
