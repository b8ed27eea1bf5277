"""Joined columns in the catalog: how the columns that models join from other tables are made."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, delete, select, update

from transforms.errors import listed
from transforms.joins.columns_read import other_columns, own_columns
from transforms.joins.definition import JoinDefinition
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of
from warehouse.errors import NotJoined
from warehouse.tables.manifests import PlacedFragment, current_fragments


@dataclass(frozen=True)
class JoinedRecord:
    """A joined column of a table.

    Attributes:
        table: The table that has the column.
        column: Its name.
        definition: How it is made.
        created_at: When a model was first submitted with it, in epoch seconds.
        failed_at: The versions of its table and of the other one at which it failed; None if it did not.
        error: Why it failed; empty if it did not.
    """

    table: str
    column: str
    definition: JoinDefinition
    created_at: float
    failed_at: tuple[int, int] | None = None
    error: str = ""

    @property
    def other_table(self) -> str:
        """The table whose rows are joined."""
        return self.definition.table

    @cached_property
    def own_columns(self) -> frozenset[str]:
        """The columns of its table that it is computed from, beside the time."""
        return frozenset(column.name for column in own_columns(self.definition))

    @cached_property
    def other_columns(self) -> frozenset[str]:
        """The columns of the other table that it is computed from, beside the time."""
        known_at = self.definition.known_at
        read = frozenset(column.name for column in other_columns(self.definition))
        return read | {known_at} if known_at else read


def joined_columns(
    connection: Connection, table: str | None = None, *, other_table: str | None = None
) -> tuple[JoinedRecord, ...]:
    """All joined columns, those of one table, or those that read another one, by table and name."""
    of = schema.joined_columns.c
    query = select(schema.joined_columns).order_by(of.table_name, of.column_name)
    if table is not None:
        query = query.where(of.table_name == table)
    if other_table is not None:
        query = query.where(of.other_table == other_table)
    return tuple(_record(row) for row in connection.execute(query))


def wanted_columns(connection: Connection) -> dict[tuple[str, str], tuple[str, ...]]:
    """The joined columns that inputs of live models read, by table and name, each with the models."""
    models, inputs, columns = schema.models.c, schema.model_inputs.c, schema.component_columns.c
    query = (
        select(models.table_name, columns.column_name, models.name)
        .join(schema.model_inputs, inputs.model == models.id)
        .join(schema.component_columns, columns.fingerprint == inputs.fingerprint)
        .where(models.live.is_(True))
        .distinct()
    )
    found: dict[tuple[str, str], set[str]] = {}
    # By name: a warehouse has many components, and few of them read joined columns.
    for names in chunks(sorted(connection.execute(select(schema.joined_columns.c.column_name).distinct()).scalars())):
        for table, column, model in connection.execute(query.where(one_of(connection, columns.column_name, names))):
            found.setdefault((table, column), set()).add(model)
    return {place: tuple(sorted(names)) for place, names in found.items()}


_WORK = "headrace work --until-idle computes them; headrace table joins shows what failed"


def require_joined(
    columns: Collection[str], fragments: Sequence[PlacedFragment], where: str, next_step: str = _WORK
) -> None:
    """Raise :class:`~warehouse.errors.NotJoined` unless these joined columns have values over all of the fragments."""
    wanted = frozenset(columns)
    lacking = [placed for placed in fragments if not wanted <= placed.fragment.digests.keys()] if wanted else []
    if lacking:
        missing = sorted(frozenset().union(*(wanted - placed.fragment.digests.keys() for placed in lacking)))
        raise NotJoined("joined columns must be computed before they are read", where=where,
                        value=f"{listed(missing)}, without values in {len(lacking):,} of {len(fragments):,} fragments, the first in {lacking[0].partition}",
                        next_step=next_step)  # fmt: skip


def last_view(connection: Connection, table: str, column: str, checksum: str) -> Any | None:
    """The row of ``joined_views`` of the newest view with these values."""
    of = schema.joined_views.c
    query = select(schema.joined_views).where(of.table_name == table, of.column_name == column, of.checksum == checksum)
    return connection.execute(query.order_by(of.computed_at.desc(), of.other_version.desc()).limit(1)).first()


def forget_views(connection: Connection, before: float) -> int:
    """Delete views that were computed before a time and whose values no current fragment has, so that they would be computed again; returns how many."""
    of = schema.joined_views
    kept: set[tuple[str, str, str]] = set()
    for one in joined_columns(connection):
        for placed in current_fragments(connection, one.table):
            checksum = placed.fragment.digests.get(one.column)
            if checksum is not None:
                kept.add((one.table, one.column, checksum))
    query = select(of.c.view, of.c.table_name, of.c.column_name, of.c.checksum).where(of.c.computed_at < before)
    gone = [view for view, *place in connection.execute(query) if tuple(place) not in kept]
    for chunk in chunks(gone):
        connection.execute(delete(of).where(one_of(connection, of.c.view, chunk)))
    return len(gone)


def record_failure(connection: Connection, record: JoinedRecord, versions: tuple[int, int], error: str) -> None:
    """Note that a joined column failed at these versions of its table and the other one; it is computed again once either has changed."""
    _write_failure(connection, record.table, record.column, versions, error)


def forget_failure(connection: Connection, table: str, column: str) -> None:
    """Let a joined column that failed be computed again."""
    _write_failure(connection, table, column, (None, None), None)


def _write_failure(
    connection: Connection, table: str, column: str, versions: tuple[int, int] | tuple[None, None], error: str | None
) -> None:
    of = schema.joined_columns
    mine = [of.c.table_name == table, of.c.column_name == column]
    if error is None:
        mine.append(of.c.error.is_not(None))
    values = {"failed_version": versions[0], "failed_other_version": versions[1], "error": error}
    connection.execute(update(of).where(*mine).values(**values))


def _record(row: Any) -> JoinedRecord:
    return JoinedRecord(
        table=row.table_name, column=row.column_name, definition=JoinDefinition.from_document(row.document),
        created_at=row.created_at, error=row.error or "",
        failed_at=None if row.error is None else (row.failed_version, row.failed_other_version),
    )  # fmt: skip
