"""The lake or the topic of Kafka that a table follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, func, select

from transforms.errors import InputError
from warehouse.catalog import schema
from warehouse.tables.lake_folders import LakeFormat


@dataclass(frozen=True, slots=True)
class FollowedLake:
    """The lake of a table, at the version whose rows the table has.

    Attributes:
        location: the folder, URI, or name in a catalog.
        format: ``delta`` or ``iceberg``.
        lake_id: the identity of the lake's table.
        version: the version of Delta, or the snapshot of Iceberg.
        partition_by: ``hour`` or ``day``.
        time_unit: the unit of a time column of integers; else empty.
        keys: the columns that identify a row through changes.
    """

    location: str
    format: LakeFormat
    lake_id: str
    version: str
    partition_by: str
    time_unit: str
    keys: tuple[str, ...]


def followed_lake(connection: Connection, table: str) -> FollowedLake | None:
    """The lake that a table follows; None for a table of files."""
    row = connection.execute(select(schema.lakes).where(schema.lakes.c.table_name == table)).first()
    if row is None:
        return None
    return FollowedLake(
        row.location, row.format, row.lake_id, row.version, row.partition_by, row.time_unit, tuple(row.keys)
    )


#: Where a table's first version begins in each partition of the topic.
Start = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class FollowedTopic:
    """The topic of Kafka that feeds a table.

    Attributes:
        brokers: ``host:port`` of brokers, separated by commas.
        topic: its name.
        topic_id: the identity that Kafka gave it when it was created; empty if the brokers give none.
        start: where the table begins.
        schema: the document of the schema by which messages become rows; None before the first ones.
    """

    brokers: str
    topic: str
    topic_id: str
    start: Start
    schema: Mapping[str, object] | None

    @property
    def location(self) -> str:
        """The topic as ``headrace table add`` takes it."""
        return f"kafka://{self.brokers}/{self.topic}"


def followed_topic(connection: Connection, table: str) -> FollowedTopic | None:
    """The topic that feeds a table, or will feed one that has no version yet; None for other tables."""
    of = schema.kafka_topics
    row = connection.execute(select(of).where(of.c.table_name == table)).first()
    return None if row is None else FollowedTopic(row.brokers, row.topic, row.topic_id, row.start, row.schema)


def topic_offsets(connection: Connection, table: str, version: int | None = None) -> dict[int, int]:
    """The offset after the last message in a version of a table, by partition of its topic; of the newest version by default."""
    of = schema.kafka_offsets
    mine = of.c.table_name == table
    if version is not None:
        mine = mine & (of.c.table_version <= version)
    newest = select(of.c.partition, func.max(of.c.table_version).label("version")).where(mine).group_by(of.c.partition)
    at = newest.subquery()
    joined = (of.c.table_name == table) & (of.c.partition == at.c.partition) & (of.c.table_version == at.c.version)
    rows = connection.execute(select(of.c.partition, of.c.next_offset).join(at, joined).order_by(of.c.partition))
    return {row.partition: row.next_offset for row in rows}


def refuse_followed(connection: Connection, table: str, command: str) -> None:
    """Raise :class:`InputError` for a table that follows a lake or a topic, whose files are not those of a folder."""
    topic = followed_topic(connection, table)
    if topic is not None:
        raise InputError(f"{command} needs a table of files: a topic of Kafka feeds this table", where=f"table {table}",
                         value=topic.location,
                         next_step=f"headrace table add {table} {topic.location} brings its newest messages")  # fmt: skip
    lake = followed_lake(connection, table)
    if lake is not None:
        raise InputError(f"{command} needs a table of files: this table follows a lake", where=f"table {table}",
                         value=lake.location,
                         next_step=f"headrace table add {table} {lake.location} brings its newest rows")  # fmt: skip
