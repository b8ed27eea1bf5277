"""Messages as rows: every message is a row, a reject or empty, exactly once."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.kafka.inferred import infer_messages
from pipelines.kafka.location import TopicLocation
from pipelines.kafka.messages import Messages, check_format, check_sample, message_rows, table_schema
from pipelines.log_schemas.schema import LogSchema
from transforms.errors import HeadraceError, InputError

NOW = datetime(2026, 3, 2, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
COLUMNS = [{"name": "id", "type": "int64", "required": True}, {"name": "time", "type": "timestamp"}]
SCHEMA = LogSchema.from_document({"format": "jsonl", "columns": COLUMNS, "time": {"column": "time"}})
UNTIMED = LogSchema.from_document({"format": "jsonl", "columns": COLUMNS[:1]})
TOPIC = TopicLocation("a:1", "clicks")


def messages(*values: bytes | None, first: int = 100, step: int = 3, time_ms: int = NOW_MS) -> Messages:
    """Messages with gaps between their offsets."""
    return Messages(4, [first + step * one for one in range(len(values))], [time_ms] * len(values), values)


def good(number: int, **more: object) -> bytes:
    return json.dumps({"id": number, "time": "2026-03-01T10:00:00Z", **more}).encode()


VALUES = st.one_of(
    st.none(),
    st.binary(max_size=30),
    st.integers(-(2**70), 2**70).map(good),
    st.text(max_size=8).map(lambda text: json.dumps({"id": text, "time": text}, indent=1).encode()),
    st.integers(0, 9).map(lambda number: good(number)[:-1]),
    st.integers(0, 9).map(lambda number: b" \r\n" + good(number).replace(b",", b",\n\r ") + b"\n"),
)


@given(st.lists(VALUES, max_size=12), st.booleans())
def test_every_message_is_counted_once(values: list[bytes | None], timed: bool) -> None:
    given_messages = messages(*values)
    found = message_rows(given_messages, SCHEMA if timed else UNTIMED, NOW, 1000)
    seen = [*found.table["kafka_offset"].to_pylist(), *(one.line for one in found.rejects)]
    assert len(seen) == len(set(seen))
    assert set(seen) <= set(given_messages.offsets)
    assert len(seen) + found.empty == len(values)
    for offset, number in zip(found.table["kafka_offset"].to_pylist(), found.table["id"].to_pylist(), strict=True):
        value = values[(offset - 100) // 3]
        assert value is not None
        assert int(json.loads(value)["id"]) == number


def test_a_value_of_several_lines_is_one_row_and_a_line_break_in_a_string_is_none() -> None:
    found = message_rows(
        messages(b'{"id":\n1,\r\n"time":"2026-03-01T10:00:00Z"}', b'{"id":2,"time":"2026-03-01\n"}'), SCHEMA, NOW, 999
    )
    assert found.table["kafka_offset"].to_pylist() == [100]
    assert [(one.line, one.what) for one in found.rejects] == [(103, "not a JSON object")]


def test_the_columns_of_a_message() -> None:
    found = message_rows(messages(good(7)), SCHEMA, NOW, 999).table
    assert found.schema == table_schema(SCHEMA)
    row = found.to_pylist()[0]
    assert (row["kafka_partition"], row["kafka_offset"], row["kafka_time"]) == (4, 100, NOW)
    clash = LogSchema.from_document({"format": "jsonl", "columns": [{"name": "kafka_time", "type": "string"}]})
    with pytest.raises(InputError, match="must have another name"):
        table_schema(clash)


@pytest.mark.parametrize(("time_ms", "kept"), [(NOW_MS, 1), (-1, 0), (NOW_MS + 800 * 86_400_000, 0), (2**61, 0)])
def test_without_an_event_time_that_of_kafka_counts(time_ms: int, kept: int) -> None:
    found = message_rows(messages(good(7), time_ms=time_ms), UNTIMED, NOW, 999)
    assert (found.table.num_rows, len(found.rejects)) == (kept, 1 - kept)


def test_a_long_message_is_one_reject_and_others_are_read() -> None:
    found = message_rows(messages(good(1), good(2, text="x" * 5000), good(3)), SCHEMA, NOW, 999)
    assert found.table["id"].to_pylist() == [1, 3]
    assert found.rejects[0].sentence("t", "offset").startswith("t, offset 103: the message is too long, got '5")
    assert len(found.rejects[0].raw) <= 1000


def test_fields_without_a_column_are_named() -> None:
    found = message_rows(messages(good(1), good(2, price=1), good(3, price=2, shop="a")), SCHEMA, NOW, 999)
    assert found.unknown == ("price", "shop")


def test_a_schema_is_inferred_from_a_sample() -> None:
    sample = [messages(*(good(one, user={"country": "DE"}) for one in range(50))), messages(None, good(3))]
    schema = infer_messages(sample, TOPIC, "", "", NOW).schema
    assert (schema.time.column, schema.names) == ("time", ("id", "time", "user_country"))  # type: ignore[union-attr]
    of_kafka = infer_messages(sample, TOPIC, "kafka_time", "day", NOW).schema
    assert (of_kafka.time, of_kafka.partition_by) == (None, "day")
    with pytest.raises(HeadraceError) as caught:
        infer_messages([messages(*(b'{"id": %d}' % one for one in range(9)))], TOPIC, "", "", NOW)
    assert "/tmp" not in str(caught.value)


def test_other_formats_are_refused_by_name() -> None:
    with pytest.raises(InputError, match="wire format of a schema registry") as caught:
        check_sample([b"\0\0\0\0\x07abc"] * 3, str(TOPIC))
    assert "Avro and Protobuf are not read" in caught.value.next_step
    with pytest.raises(InputError, match="must be JSON objects"):
        check_sample([b"1,2,3"] * 3, str(TOPIC))
    delimited = LogSchema.from_document({"format": "csv", "columns": COLUMNS})
    with pytest.raises(InputError, match="JSON objects in UTF-8"):
        check_format(delimited, "--schema")
    made_up = {"format": "jsonl", "columns": COLUMNS[:1], "time": {"column": "t", "fixed": "2026-03-01T00:00:00Z"}}
    with pytest.raises(InputError, match="must be a field"):
        check_format(LogSchema.from_document(made_up), "--schema")


def test_many_messages_are_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.kafka.messages.BLOCK_BYTES", 200)
    found = message_rows(messages(*map(good, range(40)), b"[]"), SCHEMA, NOW, 999)
    assert found.table["id"].to_pylist() == list(range(40))
    assert [one.line for one in found.rejects] == [220]
