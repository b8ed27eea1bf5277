"""Evicting joined columns that no live model reads: the next version of their table is without them.

Nothing is lost: a model that joins such a column again has it computed again. Files of the values stay for jobs that read earlier versions until
``headrace gc`` forgets them (:mod:`warehouse.joins.superseded`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, select

from warehouse.catalog import schema
from warehouse.catalog.catalog import one_of
from warehouse.changes.publish import Replacement, apply_replacements
from warehouse.models.joined_columns import joined_columns, wanted_columns
from warehouse.tables.evolution.evolved import EvolvedSchema
from warehouse.tables.evolution.refusals import HeldColumns
from warehouse.tables.manifests import PlacedFragment, current_fragments, get_table
from warehouse.tables.table import Fragment
from warehouse.tables.versions import ChangeNote
from warehouse.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class UnreadColumn:
    """A joined column with values that no live model reads.

    Attributes:
        table: The table that has it.
        column: Its name.
        fragments: The fragments with values of it.
        size_bytes: The bytes of their files that its values take.
    """

    table: str
    column: str
    fragments: int
    size_bytes: int


def unread_columns(connection: Connection, table: str = "") -> tuple[UnreadColumn, ...]:
    """The joined columns with values, of one table or of all, that no live model reads. Raises :class:`~warehouse.errors.UnknownTable`."""
    if table:
        get_table(connection, table)
    wanted = wanted_columns(connection)
    found: list[UnreadColumn] = []
    for record in joined_columns(connection, table or None):
        if (record.table, record.column) in wanted:
            continue
        if holding := _holding(current_fragments(connection, record.table), {record.column}):
            paths = {one.path for placed in holding for one in placed.fragment.overlays if one.column == record.column}
            size_bytes = _sizes(connection, record.column, sorted(paths))
            found.append(UnreadColumn(record.table, record.column, len(holding), size_bytes))
    return tuple(found)


def evict_unread(warehouse: Warehouse, table: str = "") -> tuple[UnreadColumn, ...]:
    """Evict the joined columns that no live model reads; returns what was evicted.

    Raises :class:`~warehouse.errors.UnknownTable`, and :class:`~warehouse.errors.CatalogBusy` if a table changed meanwhile.
    """
    return warehouse.catalog.run(lambda connection: _evict(connection, warehouse, table))


def _evict(connection: Connection, warehouse: Warehouse, table: str) -> tuple[UnreadColumn, ...]:
    unread = unread_columns(connection, table)
    by_table: defaultdict[str, set[str]] = defaultdict(set)
    for one in unread:
        by_table[one.table].add(one.column)
    for name, columns in sorted(by_table.items()):
        _publish(connection, warehouse, name, columns)
    return unread


def _publish(connection: Connection, warehouse: Warehouse, name: str, columns: Collection[str]) -> None:
    """The next version of a table without the columns."""
    table, current = get_table(connection, name), current_fragments(connection, name)
    holding = _holding(current, columns)
    kept = tuple(one for one in table.columns if one.name not in columns)
    rows = sum(placed.fragment.rows for placed in holding)
    note = ChangeNote("overlay", tuple(sorted(columns)), rows, len(holding), "joined columns", "evicted: no live model reads them")  # fmt: skip
    evolved = EvolvedSchema(name, "overlay", table.columns, kept, {}, (), HeldColumns([]))
    replacements = [Replacement(placed, _without(placed.fragment, columns), None) for placed in holding]
    apply_replacements(connection, warehouse, table, current, replacements, note, evolved)


def _holding(current: Sequence[PlacedFragment], columns: Collection[str]) -> list[PlacedFragment]:
    return [placed for placed in current if any(one in placed.fragment.digests for one in columns)]


def _without(fragment: Fragment, columns: Collection[str]) -> Fragment:
    digests = {name: digest for name, digest in fragment.digests.items() if name not in columns}
    overlays = tuple(one for one in fragment.overlays if one.column not in columns)
    return replace(fragment, digests=digests, overlays=overlays)


def _sizes(connection: Connection, column: str, paths: Sequence[str]) -> int:
    of = schema.overlays.c
    query = select(of.size_bytes).where(of.column_name == column, one_of(connection, of.path, paths))
    return sum(connection.execute(query).scalars())
