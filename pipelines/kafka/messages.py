"""Messages of one partition as rows: one JSON object each, read by the rules of an import. Nothing here reads or writes.

A row has three columns beside those of the schema: the partition and the offset of its message, and the time that Kafka has for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.inference.json_values import json_rows
from pipelines.log_schemas.columns import plausible_range_us
from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing.blocks import BLOCK_BYTES, LineBlock
from pipelines.parsing.json_lines import parse_json_block
from pipelines.parsing.rejects import Reject
from pipelines.parsing.typed_rows import OUT_OF_RANGE
from transforms.columns.arrow_types import arrow_type
from transforms.errors import InputError
from transforms.types import Dense, DType

PARTITION, OFFSET, TIME = "kafka_partition", "kafka_offset", "kafka_time"
#: The columns that each row has of its message.
MESSAGE_COLUMNS = pa.schema([(PARTITION, pa.int32()), (OFFSET, pa.int64()), (TIME, arrow_type(Dense(DType.TIMESTAMP)))])
_LINES_LOOKED_AT = 1_000
#: A message in the wire format of a schema registry begins with a zero byte and the number of its schema.
_REGISTRY = b"\0"
#: The end of the year 9999; a time that a producer set beyond it is none.
_LAST_MS = 253_402_300_799_999


@dataclass(frozen=True)
class Messages:
    """Messages of one partition, in order of their offsets.

    Attributes:
        partition: its number.
        offsets: int64 [messages].
        times_ms: int64 [messages], milliseconds since 1970; -1 for a message without a time.
        values: the values; None for a message without one (a tombstone).
    """

    partition: int
    offsets: Sequence[int]
    times_ms: Sequence[int]
    values: Sequence[bytes | None]


@dataclass(frozen=True)
class MessageRows:
    """The rows of messages.

    Attributes:
        table: the schema's columns, and those of the messages.
        rejects: messages that are no row, each with its offset as the line.
        empty: the number of messages without a value, or with blanks alone.
        notes: counts of changed values, by the change.
        unknown: fields at the top of the first objects that the schema does not have.
    """

    table: pa.Table
    rejects: tuple[Reject, ...]
    empty: int
    notes: Mapping[str, int]
    unknown: tuple[str, ...]


def table_schema(schema: LogSchema) -> pa.Schema:
    """The columns of the table. Raises :class:`InputError` for a field with the name of a message's column."""
    for name in schema.names:
        if name in MESSAGE_COLUMNS.names:
            raise InputError("a field must have another name than the columns that each message has", where="schema", value=name,
                             allowed=f"any name but {', '.join(MESSAGE_COLUMNS.names)}",
                             next_step='rename the column in the schema file: "name" and "path"')  # fmt: skip
    return pa.schema([*schema.read_schema, *MESSAGE_COLUMNS])


def check_format(schema: LogSchema, where: str) -> None:
    """Raise :class:`InputError` unless the schema is of JSON objects in UTF-8 whose time is a field, if it has one."""
    if schema.format != "jsonl" or schema.encoding != "utf-8":
        raise InputError("messages must be JSON objects in UTF-8", where=where, value=f"{schema.format}, {schema.encoding}",
                         allowed="jsonl, utf-8", next_step=_OTHER_FORMATS)  # fmt: skip
    if schema.time is not None and schema.time.made_up is not None:
        raise InputError("the event time of messages must be a field, or the time that Kafka has for them", where=f"{where}, time",
                         next_step=f"name a field in the schema file; or leave time out and give --time-column {TIME}")  # fmt: skip


_OTHER_FORMATS = (
    "Avro and Protobuf are not read: have a job write them as JSON to another topic, or as Parquet with Kafka Connect, and "
    "import the files"
)


def check_sample(values: Sequence[bytes], where: str) -> None:
    """Raise :class:`InputError` for messages of a schema registry, or of another format than JSON objects."""
    registered = sum(value.startswith(_REGISTRY) for value in values)
    if registered * 2 > len(values):
        raise InputError("messages must be JSON objects, these have the wire format of a schema registry (Avro, Protobuf or JSON Schema)",
                         where=where, value=values[0][:16], allowed="one JSON object a message", next_step=_OTHER_FORMATS)  # fmt: skip
    objects = sum(value.strip()[:1] == b"{" for value in values)
    if objects * 2 < len(values):
        raise InputError("messages must be JSON objects", where=where, value=values[0][:60], allowed="one JSON object a message",
                         next_step=_OTHER_FORMATS)  # fmt: skip


def one_line(value: bytes) -> bytes:
    """A JSON text as one line with the same meaning.

    A line break between values is blank, as a tab is; inside a string both are errors.
    """
    return value.replace(b"\n", b"\t").replace(b"\r", b"\t")


def message_rows(messages: Messages, schema: LogSchema, now: datetime, longest_bytes: int) -> MessageRows:
    """The rows of messages by a schema; without ``schema.time`` the time of a message is that of the event."""
    of_kafka = schema.time is None
    schema = schema.bounded(now)
    tables = [table_schema(schema).empty_table()]
    rejects: list[Reject] = []
    notes: Counter[str] = Counter()
    offsets, times = np.array(messages.offsets, np.int64), np.array(messages.times_ms, np.int64)
    empty = 0
    kept: list[int] = []
    for place, value in enumerate(messages.values):
        if value is None or not value.strip(b" \t\r\n"):
            empty += 1
        elif len(value) > longest_bytes:
            rejects.append(
                Reject(messages.offsets[place], "the message is too long", value[:1000].replace(b"\n", b"\t"),
                       value=f"{len(value)} bytes", expected=f"at most {longest_bytes} bytes")
            )  # fmt: skip
        else:
            kept.append(place)
    for places in _blocks(messages, kept):
        lines = [one_line(messages.values[place] or b"") for place in places]
        parsed = parse_json_block(LineBlock(1, b"\n".join(lines) + b"\n"), schema)
        notes.update(parsed.notes)
        at = np.array(places)
        rejects += [replace(one, line=int(offsets[at[one.line - 1]])) for one in parsed.rejects]
        at = at if parsed.places is None else at[parsed.places]
        table = _with_message_columns(parsed.table, messages.partition, offsets[at], times[at])
        if of_kafka:
            table, untimed = _timed(table, now, [messages.values[place] or b"" for place in at.tolist()])
            rejects += untimed
        tables.append(table)
    rejects.sort(key=lambda one: one.line)
    return MessageRows(pa.concat_tables(tables), tuple(rejects), empty, notes, _unknown(messages, kept, schema))


def _blocks(messages: Messages, kept: Sequence[int]) -> Iterator[list[int]]:
    """Places of messages in pieces of at most a block's bytes, each of one message at least."""
    places: list[int] = []
    size_bytes = 0
    for place in kept:
        length = len(messages.values[place] or b"")
        if places and size_bytes + length > BLOCK_BYTES:
            yield places
            places, size_bytes = [], 0
        places.append(place)
        size_bytes += length
    if places:
        yield places


def _with_message_columns(table: pa.Table, partition: int, offsets: np.ndarray, times_ms: np.ndarray) -> pa.Table:
    timed = (times_ms >= 0) & (times_ms <= _LAST_MS)
    time = pa.array(np.where(timed, times_ms, 0) * 1000, pa.int64(), mask=~timed).cast(MESSAGE_COLUMNS.field(TIME).type)
    columns = [pa.array(np.full(len(offsets), partition, np.int32)), pa.array(offsets), time]
    for field, column in zip(MESSAGE_COLUMNS, columns, strict=True):
        table = table.append_column(field, column)
    return table


def _timed(table: pa.Table, now: datetime, values: Sequence[bytes]) -> tuple[pa.Table, list[Reject]]:
    """The rows with a plausible time of Kafka's, and rejects for the others."""
    first, end = plausible_range_us(now)
    times = table.column(TIME).cast(pa.int64())
    good = np.asarray(pc.fill_null(pc.and_(pc.greater_equal(times, first), pc.less(times, end)), False))
    if good.all():
        return table, []
    rejects = [
        Reject(table.column(OFFSET)[row].as_py(), OUT_OF_RANGE, values[row], TIME, str(times[row].as_py()),
               "a time of the message from 1970 until a year ahead")
        for row in np.flatnonzero(~good).tolist()
    ]  # fmt: skip
    return table.filter(pa.array(good)), rejects


def _unknown(messages: Messages, kept: Sequence[int], schema: LogSchema) -> tuple[str, ...]:
    lines = [one_line(messages.values[place] or b"") for place in kept[:_LINES_LOOKED_AT]]
    known = {column.keys[0] for column in schema.columns}
    return tuple(dict.fromkeys(key for row in json_rows(lines) for key in row if key not in known))
