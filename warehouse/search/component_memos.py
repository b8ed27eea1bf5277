"""The memos of a component over the current data, by partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import and_, func, select

from warehouse.catalog import schema
from warehouse.catalog.fragment_rows import is_unit
from warehouse.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class PartitionMemos:
    """The memos of a component over the fragments of one partition; those over a merged fragment are at its first partition.

    Attributes:
        table: The table.
        partition: The partition.
        start_at: Its first second.
        states: The number of memos by state; a memo that a worker computes is PENDING.
        rows: Rows of the ready ones.
        size_bytes: Bytes of the ready ones.
    """

    table: str
    partition: str
    start_at: float
    states: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    size_bytes: int = 0


def component_memos(warehouse: Warehouse, fingerprint: str, newest: int) -> tuple[PartitionMemos, ...]:
    """The newest partitions with memos of a component, in time order; none for an unknown one.

    Memos over data that was replaced since are left out.
    """
    memos, fragments, manifests = schema.memos.c, schema.fragments.c, schema.manifests.c
    is_placed = and_(
        manifests.table_name == fragments.table_name,
        manifests.partition == fragments.partition,
        manifests.current.is_(True),
    )
    of_component = (
        select(fragments.table_name, fragments.partition, manifests.start_at, memos.state, memos.rows, memos.size_bytes)
        .join(schema.fragments, fragments.id == memos.fragment)
        .join(schema.manifests, is_placed)
        .where(memos.fingerprint == fingerprint, is_unit(memos.fragment))
        .subquery()
    )
    of = of_component.c
    places = (
        select(of.table_name, of.partition, of.start_at)
        .distinct()
        .order_by(of.start_at.desc(), of.table_name, of.partition)
        .limit(newest)
        .subquery()
    )
    query = (
        select(of.table_name, of.partition, of.start_at, of.state, func.count(), func.sum(of.rows), func.sum(of.size_bytes))
        .join(places, and_(places.c.table_name == of.table_name, places.c.partition == of.partition))
        .group_by(of.table_name, of.partition, of.start_at, of.state)
        .order_by(of.start_at, of.table_name, of.partition, of.state)
    )  # fmt: skip
    found: dict[tuple[str, str], PartitionMemos] = {}
    with warehouse.catalog.read() as connection:
        for table, partition, start_at, state, count, rows, size_bytes in connection.execute(query):
            before = found.get((table, partition), PartitionMemos(table, partition, start_at))
            found[table, partition] = PartitionMemos(
                table,
                partition,
                start_at,
                {**before.states, state: count},
                before.rows + int(rows or 0),
                before.size_bytes + int(size_bytes or 0),
            )
    return tuple(found.values())
