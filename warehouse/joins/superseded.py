"""Values of joined columns that later ones of the same fragment have superseded.

Each refresh of a joined column writes the values of the fragments where they have changed, so the values of earlier versions of the table add up. Nothing
reads these but a job that began before they were superseded, which has a pin. ``headrace gc`` forgets them, so that their files are without a reference; an
earlier version of the table cannot be read with them from then on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from itertools import pairwise

from sqlalchemy import Connection, delete, select

from transforms.joins.column_names import is_joined
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks

#: The end of what has not ended.
_STILL = float("inf")


def superseded_files(connection: Connection, before: float) -> dict[str, int]:
    """The files, with their bytes, all of whose columns are joined ones and that no version of a table has had since a time in epoch seconds."""
    of = schema.overlays.c
    sizes: defaultdict[str, int] = defaultdict(int)
    others: set[str] = set()
    for path, column, size_bytes in connection.execute(select(of.path, of.column_name, of.size_bytes)):
        sizes[path] += size_bytes
        if not is_joined(column):
            others.add(path)
    if sizes.keys() <= others:
        return {}
    until = _last_times(connection)
    return {path: size for path, size in sizes.items() if path not in others and until.get(path, _STILL) < before}


def forget_superseded(connection: Connection, before: float, files: Collection[str]) -> set[str]:
    """Forget the values in those of the files that are still superseded; returns these, which have no reference any more."""
    gone = superseded_files(connection, before).keys() & set(files)
    for chunk in chunks(sorted(gone)):
        connection.execute(delete(schema.overlays).where(schema.overlays.c.path.in_(chunk)))
    return set(gone)


def _last_times(connection: Connection) -> dict[str, float]:
    """Of each overlay file, when the last version of a table with it was followed by another one, in epoch seconds."""
    of, placed, manifests, changes = (
        schema.fragments.c,
        schema.manifest_fragments.c,
        schema.manifests.c,
        schema.changes.c,
    )
    made = {
        tuple(place): at
        for *place, at in connection.execute(select(changes.table_name, changes.table_version, changes.created_at))
    }
    versions = select(
        manifests.id, manifests.table_name, manifests.partition, manifests.table_version, manifests.current
    )
    listed = connection.execute(versions.order_by(manifests.table_name, manifests.partition, manifests.version)).all()
    ends: dict[int, float] = {}
    for one, following in pairwise(listed):
        if (one.table_name, one.partition) == (following.table_name, following.partition):
            ends[one.id] = made.get((following.table_name, following.table_version), _STILL)
    found: dict[str, float] = {}
    query = (
        select(placed.manifest, of.overlays)
        .join(schema.fragments, of.id == placed.fragment)
        .where(of.overlays.is_not(None))
    )
    for manifest, overlays in connection.execute(query):
        for path in overlays.values():
            found[path] = max(found.get(path, 0.0), ends.get(manifest, _STILL))
    return found
