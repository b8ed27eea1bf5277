"""A sample of a topic: its newest messages, from which a schema is inferred without a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from pipelines.inference.infer import Inferred
from pipelines.kafka.inferred import infer_messages, utc_now
from pipelines.kafka.location import TopicLocation
from pipelines.kafka.topic import BatchLimits, Topic
from transforms.errors import InputError
from warehouse.kafka.offsets import Bounds

#: The most bytes of the values of a sample.
_MOST_BYTES = 64 << 20


def newest_offsets(bounds: Mapping[int, Bounds], rows: int) -> dict[int, int]:
    """Where to begin in each partition for about ``rows`` messages of all of them: as many offsets before the end of each as it has.

    What a partition lacks of its share others add. Pure.
    """
    begins: dict[int, int] = {}
    left, partitions = rows, sorted(bounds, key=lambda one: (bounds[one].end - bounds[one].earliest, one))
    for place, partition in enumerate(partitions):
        one = bounds[partition]
        taken = min(one.end - one.earliest, -(-left // (len(partitions) - place)))
        begins[partition] = one.end - taken
        left -= taken
    return begins


def infer_topic(
    topic: Topic, location: TopicLocation, *, rows: int, time_column: str = "", clock: Callable[[], datetime] = utc_now
) -> Inferred:
    """The schema of a topic by about ``rows`` of its newest messages, at most 64 MiB. Nothing is written anywhere.

    ``time_column``: of event times; ``kafka_time`` for the time that Kafka has; empty to infer it.

    Raises :class:`InputError` for a topic without a message that has a value, and what inference and :meth:`Topic.read` raise.
    """
    if rows < 1:
        raise InputError(
            "the number of rows must be positive", where="--rows", value=rows, next_step="give --rows such as 10000"
        )
    bounds = topic.look().bounds
    topic.seek(newest_offsets(bounds, rows))
    ends = {partition: one.end for partition, one in bounds.items()}
    read = topic.read(BatchLimits(rows, _MOST_BYTES), ends)
    if not any(value is not None and value.strip() for one in read.messages for value in one.values):
        raise InputError("a topic must have messages with values to infer a schema from", where=str(location), value=f"{read.count} messages without one",
                         next_step="wait for messages, or write the schema file by hand (docs/importing.md)")  # fmt: skip
    return infer_messages(read.messages, location, time_column, "", clock(), rows=rows, command="headrace table infer")
