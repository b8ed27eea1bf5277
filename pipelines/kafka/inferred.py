"""The schema of a topic's messages, inferred from a sample by the rules of ``headrace table infer``."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from pipelines.inference.event_time import TimeOptions
from pipelines.inference.infer import SAMPLE_ROWS, Inferred, infer_schema
from pipelines.kafka.location import TopicLocation
from pipelines.kafka.messages import TIME, Messages, check_format, check_sample, one_line
from pipelines.log_schemas.schema import PartitionBy
from pipelines.outputs.partitions import suited_partitions
from transforms.errors import HeadraceError


def infer_messages(
    messages: Sequence[Messages],
    location: TopicLocation,
    time_column: str,
    partition_by: str,
    now: datetime,
    *,
    rows: int = SAMPLE_ROWS,
    command: str = "headrace table add",
) -> Inferred:
    """The schema of messages, by at most so many ``rows`` of them. Raises what inference raises, with the topic as the place.

    Args:
        messages: of some partitions, at least one with a value.
        location: the topic.
        time_column: the column of event times; ``kafka_time`` for the time that Kafka has; empty to infer it.
        partition_by: ``hour`` or ``day``; empty to choose it.
        now: the time of the import.
        rows: of the sample.
        command: what an error names as the command to repeat.
    """
    values = _sample(messages, rows)
    check_sample(values, str(location))
    of_kafka = time_column == TIME
    options = TimeOptions(is_none=True) if of_kafka else TimeOptions(column=time_column)
    with tempfile.TemporaryDirectory(prefix="headrace-kafka-") as folder:
        path = Path(folder) / f"{location.topic}.jsonl"
        path.write_bytes(b"".join(one_line(value) + b"\n" for value in values))
        try:
            found = infer_schema([str(path)], rows=rows, time=options, clock=lambda: now)
        except HeadraceError as error:
            raise _of_topic(error, str(path), str(location), command) from None
    schema = found.schema
    if partition_by:
        schema = replace(schema, partition_by=cast(PartitionBy, partition_by))
    elif of_kafka:
        schema = replace(schema, partition_by=_suited(messages))
    check_format(schema, str(location))
    return replace(found, schema=schema, files=(str(location),), about_rows=None)


def _sample(messages: Sequence[Messages], rows: int) -> list[bytes]:
    """Values of all partitions in turn, as many of each as there are."""
    share = max(rows // max(len(messages), 1), 1)
    return [value for one in messages for value in one.values[:share] if value is not None and value.strip()]


def _suited(messages: Sequence[Messages]) -> PartitionBy:
    times = [time for one in messages for time in one.times_ms if time >= 0]
    return suited_partitions(timedelta(milliseconds=max(times) - min(times)), len(times)) if times else "day"


def _of_topic(error: HeadraceError, path: str, topic: str, command: str) -> HeadraceError:
    """The error with the topic in place of the file of the sample."""
    for name in ("where", "value", "allowed", "next_step", "what"):
        said = getattr(error, name)
        if isinstance(said, str):
            setattr(error, name, said.replace(path, topic).replace("headrace table infer", command))
    return error


def utc_now() -> datetime:
    """This machine's time in UTC."""
    return datetime.now(UTC)
