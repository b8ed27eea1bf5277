"""Reading raw columns of a fragment, verified by their registered digests."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from warehouse.errors import ChangedData
from warehouse.files.digests import column_digest
from warehouse.storage.storage import Storage
from warehouse.tables.parquet import check_text, read_columns
from warehouse.tables.table import Fragment


def read_raw(
    storage: Storage, fragment: Fragment, columns: Sequence[str], verify: bool = True, *, coded: Sequence[str] = ()
) -> pa.Table:
    """Raw columns of a fragment with overlays applied, for all events, including deleted ones.

    With ``verify`` their digests are compared with the manifest's; overlays are always verified. Text in ``coded`` may be
    returned as a dictionary, from which a plan computes the same result faster. Raises :class:`ChangedData` for a file that was
    changed, :class:`~transforms.errors.InvalidText` if the change is invalid text, :class:`~warehouse.errors.CorruptFile`,
    :class:`~warehouse.errors.OverlayDamaged` and :class:`~transforms.errors.UnknownColumn`.
    """
    table = read_columns(storage, fragment, columns, coded)
    if table.num_rows != fragment.rows:
        raise _changed(fragment, "rows", table.num_rows, fragment.rows)
    if verify:
        overlaid = {overlay.column for overlay in fragment.overlays}
        for name in columns:
            if name in overlaid:
                continue
            found = column_digest(table.column(name))
            if found != fragment.digests.get(name):
                check_text(storage, fragment, name)
                raise _changed(fragment, f"column {name}", found, fragment.digests.get(name))
    return table


def _changed(fragment: Fragment, what: str, found: object, registered: object) -> ChangedData:
    return ChangedData("the file changed since it was registered", where=f"{fragment.path}, {what}", value=found,
                       allowed=str(registered), next_step="register the table again: headrace table add")  # fmt: skip
