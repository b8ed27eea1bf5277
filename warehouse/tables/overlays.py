"""Reading a fragment's overlays and its deletion vector."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from transforms.joins.column_names import is_joined
from warehouse.errors import MemoDamaged, OverlayDamaged
from warehouse.files.arrow_file import read_arrow_columns
from warehouse.storage.storage import Storage
from warehouse.tables.stored_types import parse_stored_type
from warehouse.tables.table import Fragment, Overlay


def read_overlays(storage: Storage, fragment: Fragment, columns: Collection[str]) -> dict[str, pa.Array]:
    """The verified values of the overlaid ones of ``columns``, by name; value i belongs to event i.

    Raises :class:`OverlayDamaged`.
    """
    chosen = [overlay for overlay in fragment.overlays if overlay.column in columns]
    found = {one.column: pa.nulls(fragment.rows, _type_of(one)) for one in chosen if one.is_absent}
    by_path: dict[str, dict[str, str]] = {}
    for one in chosen:
        if not one.is_absent:
            by_path.setdefault(one.path, {})[one.column] = one.checksum
    for path, checksums in by_path.items():
        found.update(_read(storage, path, checksums, fragment.rows))
    return found


def live_mask(storage: Storage, fragment: Fragment) -> pa.BooleanArray | None:
    """True for every live event; None if no event is deleted. Raises :class:`OverlayDamaged`."""
    deleted = read_deletions(storage, fragment)
    return None if deleted is None else pc.invert(deleted)


def read_deletions(storage: Storage, fragment: Fragment) -> pa.BooleanArray | None:
    """True for every deleted event; None if no event is deleted. Raises :class:`OverlayDamaged`."""
    vector = fragment.deletions
    if vector is None:
        return None
    return _read(storage, vector.path, {vector.column: vector.checksum}, fragment.rows)[vector.column]


def _type_of(overlay: Overlay) -> pa.DataType:
    """The type of a column without values; that of nulls for a type whose text does not state it, which no model reads."""
    return parse_stored_type(overlay.arrow_type) or pa.null()


def _read(storage: Storage, path: str, checksums: dict[str, str], rows: int) -> dict[str, pa.Array]:
    try:
        read = read_arrow_columns(storage, path, checksums, rows=rows)
    except MemoDamaged as error:
        if all(map(is_joined, checksums)) and not storage.exists(path):
            raise OverlayDamaged("joined columns of an earlier version of a table can be read until headrace gc forgets them", where=path,
                                 value="a file that is not there", next_step="read the newest version, or after a loss of files: headrace verify") from error  # fmt: skip
        raise OverlayDamaged("the file of a change does not have the bytes that were registered", where=path,
                             value=f"{error.what}: {error.value}",
                             next_step="restore the file from a backup, or make the change again") from error  # fmt: skip
    for column, array in read.items():
        if len(array) != rows:
            raise OverlayDamaged("a change must have the rows of its fragment", where=f"{path}, column {column}",
                                 value=len(array), allowed=str(rows))  # fmt: skip
    return read
