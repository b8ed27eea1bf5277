"""Leave out rows whose key is already in their partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from transforms.columns.arrays import one_array
from transforms.errors import DataError, InputError, nearest
from warehouse.changes.unique import unseen_rows
from warehouse.tables.hive_levels import is_side_file
from warehouse.tables.widening import widest_type

#: The name under which an import counts rows that were left out for their key.
REPEATED = "rows left out, since their key is in their partition already"


def check_keys(keys: Sequence[str], schema: pa.Schema) -> None:
    """Raise :class:`InputError` unless every key is a plain column of the log."""
    for name in keys:
        if name not in schema.names:
            raise InputError("a key must be a column of the schema file", where="--unique-by", value=name,
                             allowed=nearest(name, schema.names), next_step="correct --unique-by")  # fmt: skip
        if pa.types.is_nested(schema.field(name).type):
            raise InputError("a key must be a number, a text or a time", where=f"--unique-by, column {name}",
                             value=str(schema.field(name).type), next_step="choose another column")  # fmt: skip


def without_known_keys(rows: pa.Table, folder: Path, keys: Sequence[str]) -> pa.Table:
    """The rows whose key is neither in the Parquet files of ``folder`` nor in an earlier row; rows without a key are kept.

    A file without a key column has no keys. Raises :class:`DataError` for a file whose keys differ in type from those of the rows.
    """
    if not keys or not rows.num_rows:
        return rows
    new = {name: one_array(rows.column(name)) for name in keys}
    known = []
    held_files = (path for path in folder.glob("*.parquet") if not is_side_file(path.name)) if folder.is_dir() else ()
    for path in sorted(held_files):
        try:
            held = _keys_of(path, new)
        except (pa.ArrowException, KeyError) as error:
            raise DataError("a file of the partition must hold the keys", where=str(path), value=", ".join(keys),
                            next_step="leave out --unique-by, or name columns that every file has") from error  # fmt: skip
        if held is not None:
            known.append(held)
            new = {name: array.cast(held[name].type) for name, array in new.items()}
    known = [{name: array.cast(new[name].type) for name, array in held.items()} for held in known]
    unseen = unseen_rows(new, known)
    return rows if unseen.all() else rows.filter(pa.array(unseen))


def _keys_of(path: Path, new: Mapping[str, pa.Array]) -> dict[str, pa.Array] | None:
    """The keys in a file, in types that hold those of the new rows too; None for a file without a key column."""
    file = pq.ParquetFile(path)
    if not set(new) <= set(file.schema_arrow.names):
        return None
    stored = file.read(columns=list(new))
    found = {}
    for name, array in new.items():
        kind = widest_type(array.type, stored.column(name).type)
        if kind is None:
            raise KeyError(name)
        found[name] = one_array(stored.column(name).cast(kind))
    return found
