"""Bringing messages into a table: their rows and their offsets, in one transaction.

A process that is killed before the transaction leaves the version before, and after it the version with all messages of the batch,
each once: the next run reads on from the offsets in the catalog, which nothing else may move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlalchemy import Connection, delete, insert, select, update

from transforms.errors import InputError
from warehouse.catalog import schema
from warehouse.changes.new_rows import rows_folder, stored_columns, write_rows
from warehouse.changes.outcome import AffectedFragment, Recompute, find_recomputes
from warehouse.changes.publish import NewFile, apply_new_files, create_table
from warehouse.errors import CatalogBusy
from warehouse.kafka.offsets import OffsetRange, ranges_text
from warehouse.tables.evolution.evolved import EvolvedSchema, FileSchema, evolved_schema
from warehouse.tables.evolution.fragment_schema import FragmentSchema
from warehouse.tables.evolution.schema_changes import SchemaChange
from warehouse.tables.followed import FollowedTopic, followed_lake, followed_topic, topic_offsets
from warehouse.tables.fragment_sizes import fragment_sizes
from warehouse.tables.manifests import PlacedFragment, current_fragments, find_table
from warehouse.tables.overflow import check_overflow, overflowing_types, refuse_overflow
from warehouse.tables.parquet import invalid_text_rule, read_schema
from warehouse.tables.partitions import partition_range
from warehouse.tables.register import check_table_name
from warehouse.tables.table import Table
from warehouse.tables.versions import ChangeNote, TableChangeKind
from warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class KnownTopic:
    """The table in the catalog, if it has a version, and its topic with the offsets, if it has begun."""

    table: Table | None
    topic: FollowedTopic | None
    offsets: Mapping[int, int]

    @property
    def kept(self) -> Mapping[int, int] | None:
        """The offsets of the table; None before it has begun."""
        return self.offsets if self.topic is not None else None


@dataclass(frozen=True)
class Batch:
    """Messages as rows, and their offsets.

    Attributes:
        table: the table's name.
        topic: the topic, with the schema of the rows.
        before: the offsets of the table before.
        ranges: the offsets of the batch, of partitions that moved.
        time_column: the column of event times.
        parts: the rows by partition of the table, in time order.
    """

    table: str
    topic: FollowedTopic
    before: Mapping[int, int]
    ranges: tuple[OffsetRange, ...]
    time_column: str
    parts: Mapping[str, pa.Table]

    @property
    def rows(self) -> int:
        """Its rows."""
        return sum(rows.num_rows for rows in self.parts.values())


@dataclass(frozen=True)
class Appended:
    """What a batch made of its table: the version, and what models must compute."""

    version: int
    recompute: tuple[Recompute, ...] = ()
    schema_changes: tuple[SchemaChange, ...] = ()
    notes: tuple[str, ...] = ()


def known_topic(warehouse: Warehouse, name: str) -> KnownTopic:
    """The table and its topic. Raises :class:`InputError` for a table of files or of a lake, and a name that no table can have."""
    check_table_name(warehouse, name)
    with warehouse.catalog.read() as connection:
        table, topic = find_table(connection, name), followed_topic(connection, name)
        lake = followed_lake(connection, name)
        offsets = topic_offsets(connection, name) if topic is not None else {}
    if table is not None and topic is None:
        what = "a lake" if lake is not None else "files"
        raise InputError(f"a table of {what} must not become one of a topic", where=f"table {name}",
                         allowed=table.root if lake is None else lake.location, next_step="use another table name")  # fmt: skip
    return KnownTopic(table, topic, offsets)


def begin_topic(warehouse: Warehouse, name: str, topic: FollowedTopic, offsets: Mapping[int, int]) -> None:
    """Keep the offsets at which a table begins, before it has a version; those of an earlier beginning are replaced.

    Raises :class:`CatalogBusy` if another process made the table meanwhile.
    """

    def write(connection: Connection) -> None:
        if find_table(connection, name) is not None:
            raise _busy(name, warehouse.catalog.where)
        _write_topic(connection, name, topic)
        connection.execute(delete(schema.kafka_offsets).where(schema.kafka_offsets.c.table_name == name))
        ranges = [OffsetRange(partition, offset, offset) for partition, offset in offsets.items()]
        _write_offsets(connection, name, 0, ranges)

    warehouse.catalog.run(write)


def append_batch(warehouse: Warehouse, batch: Batch) -> Appended:
    """Write a batch and return the table's version; a batch without rows moves the offsets of the version that is there.

    Raises :class:`~warehouse.errors.SchemaDrift` for columns that do not fit the table or its live models, and
    :class:`~warehouse.errors.CatalogBusy` if another process changed the table or took the messages meanwhile.
    """
    known = known_topic(warehouse, batch.table)
    if not batch.parts:
        return Appended(warehouse.catalog.run(lambda connection: _move(connection, warehouse, batch, known.table)))
    written: list[NewFile] = []
    try:
        with warehouse.catalog.read() as connection:
            current = current_fragments(connection, batch.table)
        evolved = None if known.table is None else _evolved(warehouse, known.table, current, batch)
        overflowing = overflowing_types(evolved.columns) if evolved is not None else {}

        def on_rows(path: str, first_row: int, rows: pa.Table) -> None:
            check_overflow(rows, overflowing, batch.topic.location, f"table {batch.table!r}")

        rule = invalid_text_rule("refuse", [])
        for partition, rows in batch.parts.items():
            written.append(write_rows(warehouse, batch.table, partition, rows, rule, on_rows))
        columns = read_schema(warehouse.storage, written[0].file.path)
        folder = f"{warehouse.storage.root}/{rows_folder(batch.table)}"
        table = known.table or Table(batch.table, folder, columns, batch.time_column, 0)
        recompute = () if evolved is None else _recomputes(warehouse, batch.table, written, evolved)
    except BaseException:
        for file in written:
            warehouse.storage.delete(file.file.path)
        raise
    version = warehouse.catalog.run(
        lambda connection: _publish(connection, warehouse, batch, table, evolved, current, written)
    )
    with warehouse.catalog.read() as connection:
        small = fragment_sizes(connection, batch.table).warning(batch.table)
    return Appended(version, recompute, () if evolved is None else evolved.changes, (small,) if small else ())


def _publish(
    connection: Connection,
    warehouse: Warehouse,
    batch: Batch,
    table: Table,
    evolved: EvolvedSchema | None,
    current: Sequence[PlacedFragment],
    files: Sequence[NewFile],
) -> int:
    _check_offsets(connection, warehouse, batch)
    fragments = sum(len(file.fragments) for file in files)
    kind: TableChangeKind = "append" if table.version else "register"
    note = ChangeNote(kind, (), batch.rows, fragments, batch.topic.location, f"offsets {ranges_text(batch.ranges)}")
    if table.version:
        assert evolved is not None
        before = replace(table, columns=evolved.before)
        version = apply_new_files(connection, warehouse, before, current, files, note, evolved)
    else:
        version = create_table(connection, warehouse, table, files, note).version
    _write_topic(connection, batch.table, batch.topic)
    _write_offsets(connection, batch.table, version, batch.ranges)
    return version


def _move(connection: Connection, warehouse: Warehouse, batch: Batch, table: Table | None) -> int:
    """Move the offsets of the newest version; before the first one those of the start."""
    _check_offsets(connection, warehouse, batch)
    now = find_table(connection, batch.table)
    if (now is None) != (table is None):
        raise _busy(batch.table, warehouse.catalog.where)
    version = 0 if now is None else now.version
    _write_topic(connection, batch.table, batch.topic)
    _write_offsets(connection, batch.table, version, batch.ranges)
    return version


def _check_offsets(connection: Connection, warehouse: Warehouse, batch: Batch) -> None:
    """Raise :class:`CatalogBusy` unless the table is at the offsets that the batch was read from."""
    of = schema.kafka_topics.c
    connection.execute(select(of.table_name).where(of.table_name == batch.table).with_for_update()).scalar()
    if topic_offsets(connection, batch.table) != dict(batch.before):
        raise _busy(batch.table, warehouse.catalog.where)


def _busy(table: str, where: str) -> CatalogBusy:
    return CatalogBusy("another process brought messages into this table meanwhile", where=where, value=table,
                       next_step="run the command again; let one process at a time feed a table")  # fmt: skip


def _write_topic(connection: Connection, table: str, topic: FollowedTopic) -> None:
    of = schema.kafka_topics
    values = {"brokers": topic.brokers, "topic": topic.topic, "topic_id": topic.topic_id, "start": topic.start,
              "schema": topic.schema}  # fmt: skip
    if followed_topic(connection, table) is None:
        connection.execute(insert(of).values(table_name=table, **values))
    else:
        connection.execute(update(of).where(of.c.table_name == table).values(**values))


def _write_offsets(connection: Connection, table: str, version: int, ranges: Sequence[OffsetRange]) -> None:
    """Write the offsets of a version; of a partition that has some at this version, move the end."""
    of = schema.kafka_offsets
    mine = (of.c.table_name == table) & (of.c.table_version == version)
    there = {row.partition: row.first_offset for row in connection.execute(select(of).where(mine))}
    new = []
    for one in ranges:
        if one.partition in there:
            values = {"first_offset": min(there[one.partition], one.next), "next_offset": one.next}
            connection.execute(update(of).where(mine, of.c.partition == one.partition).values(**values))
        else:
            new.append({"table_name": table, "table_version": version, "partition": one.partition,
                        "first_offset": one.first, "next_offset": one.next})  # fmt: skip
    if new:
        connection.execute(insert(of), new)


def _evolved(warehouse: Warehouse, table: Table, current: Sequence[PlacedFragment], batch: Batch) -> EvolvedSchema:
    """The table's columns with those of the batch: new ones, and those of a wider type."""
    columns = stored_columns(next(iter(batch.parts.values())).schema)
    files = [FileSchema(batch.topic.location, partition, columns) for partition in batch.parts]
    placed = [(one.partition, one.fragment) for one in current]
    found = evolved_schema(warehouse.catalog, table, table.name, "feed", files, batch.time_column, placed)
    refuse_overflow(warehouse.storage, found, (one.fragment for one in current))
    return found


def _recomputes(
    warehouse: Warehouse, table: str, files: Sequence[NewFile], evolved: EvolvedSchema
) -> tuple[Recompute, ...]:
    columns = FragmentSchema(evolved.columns)
    affected = [
        AffectedFragment(
            None, PlacedFragment(0, file.partition, 0, *partition_range(file.partition), 0, columns.of(one))
        )
        for file in files
        for one in file.fragments
    ]
    with warehouse.catalog.read() as connection:
        return find_recomputes(connection, warehouse.config, table, affected, warehouse.clock(), evolved.columns)
