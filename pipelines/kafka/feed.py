"""The loop of batches: look at the topic, read messages, make rows of them, and commit the rows with their offsets.

The table's version is the only truth about what was read. Each batch begins at the offsets in the catalog, and the topic is looked at
again after the read: messages of a topic that was made again meanwhile are never taken for those of the old one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import pyarrow as pa

from pipelines.kafka.inferred import infer_messages, utc_now
from pipelines.kafka.location import TopicLocation
from pipelines.kafka.messages import TIME, MessageRows, check_format, message_rows, table_schema
from pipelines.kafka.topic import BatchLimits, OffsetGone, ReadBatch, Topic, TopicState
from pipelines.log_schemas.schema import LogSchema
from pipelines.outputs.partitions import sort_by_time, split_by_partition
from pipelines.parsing.blocks import LONGEST_LINE_BYTES
from pipelines.parsing.rejects import check_share, count_reasons, rejects_document
from transforms.errors import InputError
from warehouse.changes.outcome import Recompute
from warehouse.kafka.commit import Batch, KnownTopic, append_batch, begin_topic, known_topic
from warehouse.kafka.offsets import OffsetRange, check_same, check_topic_id, lag, next_offsets, ranges_text
from warehouse.tables.evolution.schema_changes import SchemaChange
from warehouse.tables.followed import FollowedTopic, Start
from warehouse.warehouse import Warehouse

#: A share of fewer messages says little: as many are rejected without an error as of so many.
_FEW_MESSAGES = 1_000


@dataclass(frozen=True)
class FeedOptions:
    """How a topic becomes a table. Empty values are the defaults, or those that the table was made with.

    Attributes:
        start: where a new table begins.
        schema: the schema of the messages; None to infer it from the first ones, or for that of the table.
        time_column: the column of event times, if the schema is inferred; ``kafka_time`` for the time that Kafka has.
        partition_by: ``hour`` or ``day``, if the schema is inferred.
        most_messages: the most messages of a batch.
        most_bytes: the most bytes of the values of a batch.
        max_reject_share: above this share of rejected messages a batch is an error.
        longest_bytes: a longer message is rejected.
        accept_lost: go on after messages that Kafka deleted before they were read.
        sets_group: whether the offsets of the client's consumer group are set after each batch.
    """

    start: Start | None = None
    schema: LogSchema | None = None
    time_column: str = ""
    partition_by: str = ""
    most_messages: int = 100_000
    most_bytes: int = 64 << 20
    max_reject_share: float = 0.05
    longest_bytes: int = LONGEST_LINE_BYTES
    accept_lost: bool = False
    sets_group: bool = False


@dataclass(frozen=True)
class Fed:
    """What one or more batches brought.

    Attributes:
        table: the table's name.
        topic: the topic.
        before: the table's version before; 0 for a table without one.
        version: the table's version now.
        messages: the messages that were read.
        rows: the rows of them.
        rejected: messages that are no row.
        empty: messages without a value.
        ranges: the offsets of the messages, by partition.
        lag: how many offsets the table is behind the topic.
        lost: the offsets of messages that Kafka deleted before they were read.
        recompute: what models must compute.
        schema_changes: columns that are new or of a wider type.
        rejects: the reject files.
        notes: remarks for the user.
        advice: remarks on the table as it is now, which hold for many batches.
    """

    table: str
    topic: str
    before: int
    version: int
    messages: int = 0
    rows: int = 0
    rejected: int = 0
    empty: int = 0
    ranges: tuple[OffsetRange, ...] = ()
    lag: int = 0
    lost: tuple[OffsetRange, ...] = ()
    recompute: tuple[Recompute, ...] = ()
    schema_changes: tuple[SchemaChange, ...] = ()
    rejects: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    def joined(self, later: Fed) -> Fed:
        """This and a later batch as one; ``recompute`` and ``advice`` are those of the later one."""
        first = {one.partition: one.first for one in (*later.ranges, *self.ranges)}
        ends = {one.partition: one.next for one in (*self.ranges, *later.ranges)}
        return replace(
            later,
            before=self.before,
            messages=self.messages + later.messages,
            rows=self.rows + later.rows,
            rejected=self.rejected + later.rejected,
            empty=self.empty + later.empty,
            ranges=tuple(OffsetRange(partition, first[partition], ends[partition]) for partition in sorted(ends)),
            lost=(*self.lost, *later.lost),
            schema_changes=(*self.schema_changes, *later.schema_changes),
            rejects=(*self.rejects, *later.rejects),
            notes=tuple(dict.fromkeys((*self.notes, *later.notes))),
        )


@dataclass(frozen=True)
class _Rows:
    """The rows of a batch by the table's partition, with its rejects by the topic's partition."""

    parts: Mapping[str, pa.Table]
    found: Mapping[int, MessageRows]

    @property
    def rows(self) -> int:
        return sum(one.table.num_rows for one in self.found.values())

    @property
    def rejected(self) -> int:
        return sum(len(one.rejects) for one in self.found.values())


@dataclass
class Feed:
    """Brings the messages of a topic into a table, batch by batch.

    Attributes:
        warehouse: the warehouse.
        name: the table's name.
        location: the topic's place.
        topic: its client.
        options: how messages become rows.
        clock: the time in UTC.
    """

    warehouse: Warehouse
    name: str
    location: TopicLocation
    topic: Topic
    options: FeedOptions
    clock: Callable[[], datetime] = utc_now
    _told: set[str] = field(default_factory=set)

    def catch_up(self) -> Fed:
        """Bring all messages that are in the topic now, in batches."""
        ends = {partition: bounds.end for partition, bounds in self.topic.look().bounds.items()}
        done = self.bring(None, ends)
        while not self._is_at(ends):
            done = done.joined(self.bring(None, ends))
        return done

    def _is_at(self, ends: Mapping[int, int]) -> bool:
        kept = known_topic(self.warehouse, self.name).offsets
        return all(kept.get(partition, 0) >= end for partition, end in ends.items())

    def bring(self, secs: float | None, until: Mapping[int, int] | None) -> Fed:
        """Bring one batch: what comes within ``secs``, or all up to the offsets ``until``; at most as the options say.

        Raises :class:`~transforms.errors.DataError` for messages that Kafka deleted before they were read, and for a topic that was made
        again; :class:`~pipelines.errors.TooManyRejects`; and :class:`~transforms.errors.StorageError` for brokers that do not answer.
        The table is then as it was.
        """
        state = self.topic.look()
        known, begins = self._begun(state)
        place = str(self.location)
        plan = next_offsets(known.kept, state.bounds, begins, place, accept_lost=self.options.accept_lost)
        self.topic.seek(plan.offsets)
        limits = BatchLimits(self.options.most_messages, self.options.most_bytes, secs)
        try:
            read = self.topic.read(limits, until)
        except OffsetGone:
            self._check_lost(known, begins)
            raise
        state = self.topic.look()
        assert known.topic is not None
        check_topic_id(known.topic.topic_id, state.topic_id, place, self.name)
        ranges = tuple(
            OffsetRange(partition, plan.offsets[partition], end)
            for partition, end in sorted(read.next.items())
            if end != known.offsets.get(partition, 0)
        )
        fed = self._commit(known, known.topic, read, ranges) if ranges else self._nothing(known)
        if ranges and self.options.sets_group:
            fed = self._with_group(fed, read.next)
        lost = (f"lost, as --accept-lost allows: {ranges_text(plan.lost)}",) if plan.lost else ()
        return replace(fed, lag=lag(read.next, state.bounds), lost=plan.lost, notes=(*lost, *fed.notes))

    def _begun(self, state: TopicState) -> tuple[KnownTopic, Start]:
        """The table with its topic and offsets; those of a new table are written first."""
        known, options, place = known_topic(self.warehouse, self.name), self.options, str(self.location)
        topic = known.topic
        if topic is not None and known.table is None and not self._continues(topic, known.offsets, state):
            topic = None
        if topic is None:
            start = options.start or "earliest"
            begun = FollowedTopic(self.location.brokers, self.location.topic, state.topic_id, start, None)
            begin_topic(self.warehouse, self.name, begun, next_offsets(None, state.bounds, start, place).offsets)
            return known_topic(self.warehouse, self.name), start
        self._check_topic(topic, known)
        check_topic_id(topic.topic_id, state.topic_id, place, self.name)
        now = replace(topic, brokers=self.location.brokers, topic_id=state.topic_id or topic.topic_id)
        return replace(known, topic=now), topic.start

    def _continues(self, topic: FollowedTopic, kept: Mapping[int, int], state: TopicState) -> bool:
        """Whether a start that was written before the first version still holds.

        That at the newest messages holds for the same topic, that at the earliest ones while Kafka has them: no row is missed yet.
        """
        same = (topic.topic, topic.topic_id) == (self.location.topic, state.topic_id)
        if not same or self.options.start not in (None, topic.start):
            return False
        return topic.start == "latest" or all(
            kept.get(partition, 0) >= bounds.earliest for partition, bounds in state.bounds.items()
        )

    def _check_topic(self, topic: FollowedTopic, known: KnownTopic) -> None:
        """Raise :class:`InputError` for another topic, or other options, than the table was made with."""
        is_same = topic.topic == self.location.topic and (
            bool(topic.topic_id) or topic.brokers == self.location.brokers
        )
        if not is_same:
            raise InputError("the topic must be the one that feeds the table", where=f"table {self.name}", value=str(self.location),
                             allowed=topic.location, next_step="use another table name")  # fmt: skip
        check_same("--from", self.options.start or "", topic.start, self.name)
        if known.table is not None:
            check_same("--time-column", self.options.time_column, known.table.time_column or "", self.name)
        if topic.schema is not None:
            stored = LogSchema.from_document(topic.schema)
            check_same("--partition-by", self.options.partition_by, stored.partition_by, self.name)

    def _check_lost(self, known: KnownTopic, begins: Start) -> None:
        """Raise the error that names the messages that were deleted while the topic was read, unless they are accepted."""
        bounds = self.topic.look().bounds
        next_offsets(known.kept, bounds, begins, str(self.location), accept_lost=self.options.accept_lost)

    def _commit(self, known: KnownTopic, topic: FollowedTopic, read: ReadBatch, ranges: tuple[OffsetRange, ...]) -> Fed:
        schema, unsure = self._schema(known, topic, read)
        rows = self._rows(schema, read) if schema is not None else _Rows({}, {})
        rejects = self._write_rejects(ranges, rows)
        self._check_rejects(rows, is_new=known.table is None)
        time_column = _time_column(schema) if schema is not None else ""
        topic = replace(topic, schema=None if schema is None else schema.to_document())
        batch = Batch(self.name, topic, known.offsets, ranges, time_column, rows.parts)
        done = append_batch(self.warehouse, batch)
        empty = sum(one.empty for one in rows.found.values()) if schema is not None else read.count
        before = 0 if known.table is None else known.table.version
        return Fed(
            self.name, str(self.location), before, done.version, read.count, rows.rows, rows.rejected, empty, ranges,
            recompute=done.recompute, schema_changes=done.schema_changes, rejects=rejects,
            notes=(*unsure, *self._notes(rows)), advice=done.notes,
        )  # fmt: skip

    def _nothing(self, known: KnownTopic) -> Fed:
        version = 0 if known.table is None else known.table.version
        return Fed(self.name, str(self.location), version, version)

    def _with_group(self, fed: Fed, offsets: Mapping[int, int]) -> Fed:
        why = self.topic.set_group_offsets(offsets)
        note = f"the consumer group's offsets were not set, which changes nothing in the table: {why}"
        return replace(fed, notes=(*fed.notes, note)) if why else fed

    def _schema(
        self, known: KnownTopic, topic: FollowedTopic, read: ReadBatch
    ) -> tuple[LogSchema | None, tuple[str, ...]]:
        """The schema of the messages, with doubts about an inferred one; None before the first message with a value."""
        given = self.options.schema
        stored = None if topic.schema is None else LogSchema.from_document(topic.schema)
        if given is not None:
            check_format(given, "--schema")
            if known.table is not None:
                check_same("--schema, time", _time_column(given), known.table.time_column or "", self.name)
            if stored is not None:
                check_same("--schema, partition_by", given.partition_by, stored.partition_by, self.name)
            return given, ()
        if stored is not None:
            return stored, ()
        if not any(value is not None and value.strip() for one in read.messages for value in one.values):
            return None, ()
        options = self.options
        found = infer_messages(read.messages, self.location, options.time_column, options.partition_by, self.clock())
        return found.schema, found.unsure

    def _rows(self, schema: LogSchema, read: ReadBatch) -> _Rows:
        now = self.clock()
        found = {one.partition: message_rows(one, schema, now, self.options.longest_bytes) for one in read.messages}
        tables = [one.table for one in found.values()] or [table_schema(schema).empty_table()]
        column = _time_column(schema)
        ordered = sort_by_time(pa.concat_tables(tables), column)
        return _Rows(dict(split_by_partition(ordered, column, schema.partition_by)), found)

    def _write_rejects(self, ranges: tuple[OffsetRange, ...], rows: _Rows) -> tuple[str, ...]:
        """Write the reject files. A batch that is read again writes the same names again, so none is there twice."""
        written = []
        for one in ranges:
            path = f"rejects/{self.name}/{one.partition}-{one.first:020}.jsonl"
            found = rows.found.get(one.partition)
            if found is not None and found.rejects:
                place = f"{self.location}, partition {one.partition}"
                self.warehouse.storage.write_atomic(path, rejects_document(found.rejects, place, "offset"))
                written.append(path)
            else:
                self.warehouse.storage.delete(path)
        return tuple(written)

    def _check_rejects(self, rows: _Rows, *, is_new: bool) -> None:
        few = self.options.max_reject_share * max(rows.rows + rows.rejected, _FEW_MESSAGES)
        if rows.rejected <= few and (rows.rows or not is_new):
            return
        reasons: Counter[str] = Counter()
        example = ""
        for partition, one in rows.found.items():
            reasons.update(count_reasons(one.rejects))
            if one.rejects and not example:
                example = one.rejects[0].sentence(f"{self.location}, partition {partition}", "offset")
        folder = f"rejects/{self.name} in the home"
        check_share(rows.rows, reasons, self.options.max_reject_share, folder, example)

    def _notes(self, rows: _Rows) -> tuple[str, ...]:
        """Counts of changed values, and, once each, fields that the schema does not have."""
        counts: Counter[str] = Counter()
        for one in rows.found.values():
            counts.update(one.notes)
        new = [name for one in rows.found.values() for name in one.unknown if name not in self._told]
        self._told.update(new)
        fields = ", ".join(dict.fromkeys(new))
        unknown = (
            f"messages have fields that the schema does not have: {fields}; --schema with them makes columns of them"
        )
        return (*(f"{what}: {count:,}" for what, count in counts.items()), *([unknown] if new else []))


def _time_column(schema: LogSchema) -> str:
    return TIME if schema.time is None else schema.time.column
