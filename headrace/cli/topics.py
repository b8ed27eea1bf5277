"""``headrace table add`` of a topic of Kafka: the messages that are there, or also those that come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from headrace.terminal.output import emit, emit_line, say
from headrace.terminal.quantities import bytes_of, span_of
from headrace.terminal.stopping import ended_by_signals
from transforms.errors import Busy, InputError, StorageError
from warehouse.errors import MissingFile

if TYPE_CHECKING:
    from pipelines.kafka.feed import Feed, FeedOptions
    from warehouse.warehouse import Warehouse

#: With ``--follow``, the time that a batch collects messages.
EVERY = "10s"
_MOST_BATCH_BYTES = 1 << 30
_STARTS = ("earliest", "latest")


@dataclass(frozen=True, slots=True)
class TopicCommand:
    """The options of ``headrace table add`` that only a topic has.

    Attributes:
        schema: the schema file of the messages.
        start: where a new table begins; empty for the earliest message.
        client_config: the file of client properties.
        batch_messages: the most messages of a batch; 0 for the default.
        batch_bytes: the most bytes of a batch; empty for the default.
        max_reject_share: the most rejected messages of a batch; None for the default.
        accept_lost: go on after messages that Kafka deleted.
        commit_group: the consumer group whose offsets are set.
    """

    schema: str = ""
    start: str = ""
    client_config: str = ""
    batch_messages: int = 0
    batch_bytes: str = ""
    max_reject_share: float | None = None
    accept_lost: bool = False
    commit_group: str = ""

    @property
    def given(self) -> str:
        """The first given option, or ""."""
        options = {
            "--schema": self.schema,
            "--from": self.start,
            "--client-config": self.client_config,
            "--batch-messages": self.batch_messages,
            "--batch-bytes": self.batch_bytes,
            "--max-reject-share": self.max_reject_share is not None,
            "--accept-lost": self.accept_lost,
            "--commit-group": self.commit_group,
        }
        return next((option for option, value in options.items() if value), "")


@dataclass(frozen=True, slots=True)
class SharedOptions:
    """The options that a topic has in common with a lake."""

    time_column: str = ""
    partition_by: str = ""
    follow: bool = False
    every: str = ""


def add_topic(
    warehouse: Warehouse, name: str, place: str, command: TopicCommand, shared: SharedOptions, *, as_json: bool
) -> None:
    """Add the table, or bring its newest messages, and print what came; with ``follow`` again and again."""
    from pipelines.kafka.client_properties import read_properties
    from pipelines.kafka.feed import Feed
    from pipelines.kafka.location import parse_topic
    from pipelines.kafka.topic import Topic

    location = parse_topic(place)
    options = _feed_options(command, shared)
    every_secs = span_of("--every", shared.every or EVERY)
    if shared.every and not shared.follow:
        raise InputError("--every must go with --follow: it is the time of a batch", where="--every", value=shared.every,
                         next_step="add --follow, or leave it out")  # fmt: skip
    if every_secs <= 0:
        raise InputError("the time of a batch must be longer than 0", where="--every", value=shared.every)
    properties = read_properties(command.client_config) if command.client_config else {}
    topic = Topic(location, properties, command.commit_group)
    try:
        feed = Feed(warehouse, name, location, topic, options)
        if shared.follow:
            with ended_by_signals():
                _follow(feed, every_secs, as_json=as_json)
        else:
            _bring_once(feed, as_json=as_json)
    finally:
        topic.close()


def _bring_once(feed: Feed, *, as_json: bool) -> None:
    from headrace.screens.topics import TopicScreen

    emit(TopicScreen(feed.catch_up()), as_json=as_json)


def _follow(feed: Feed, every_secs: float, *, as_json: bool) -> None:
    """Print a line for each batch that brought messages. What may pass at the first look ends the command, as a wrong host does."""
    from headrace.screens.topics import TopicScreen

    emit_line(TopicScreen(feed.catch_up()), as_json=as_json)
    while True:
        with _patient():
            fed = feed.bring(every_secs, None)
            if fed.ranges:
                emit_line(TopicScreen(fed), as_json=as_json)
                for note in fed.notes:
                    say(note)


@contextmanager
def _patient() -> Iterator[None]:
    """What may pass is reported and tried again: the next batch begins at the offsets of the table's version."""
    try:
        yield
    except (StorageError, Busy, MissingFile) as error:
        say(f"tried again: {error}")


def _feed_options(command: TopicCommand, shared: SharedOptions) -> FeedOptions:
    from pipelines.kafka.feed import FeedOptions
    from pipelines.log_schemas.schema import LogSchema
    from warehouse.tables.followed import Start

    if command.start and command.start not in _STARTS:
        raise InputError("a table must begin at the earliest or the latest message", where="--from", value=command.start,
                         allowed=", ".join(_STARTS))  # fmt: skip
    if shared.partition_by not in ("", "hour", "day"):
        raise InputError("partitions must be hours or days", where="--partition-by", value=shared.partition_by,
                         allowed="hour, day")  # fmt: skip
    for option, value in {"--time-column": shared.time_column, "--partition-by": shared.partition_by}.items():
        if command.schema and value:
            raise InputError("the schema file must say this, if there is one", where=option, value=value,
                             next_step='set it in the file, "time" or "partition_by", or leave --schema out')  # fmt: skip
    most_bytes = bytes_of("--batch-bytes", command.batch_bytes)
    if most_bytes is not None and not 1 <= most_bytes <= _MOST_BATCH_BYTES:
        raise InputError("a batch must have from 1 byte to 1 GiB", where="--batch-bytes", value=command.batch_bytes,
                         allowed="such as 64MiB")  # fmt: skip
    if command.batch_messages < 0:
        raise InputError(
            "a batch must have at least one message", where="--batch-messages", value=command.batch_messages
        )
    share = command.max_reject_share
    if share is not None and not 0 <= share <= 1:
        raise InputError("max_reject_share must be a share", where="--max-reject-share", value=share, allowed="0 to 1")
    defaults = FeedOptions()
    return FeedOptions(
        start=cast(Start, command.start) if command.start else None,
        schema=LogSchema.from_file(command.schema) if command.schema else None,
        time_column=shared.time_column,
        partition_by=shared.partition_by,
        most_messages=command.batch_messages or defaults.most_messages,
        most_bytes=most_bytes or defaults.most_bytes,
        max_reject_share=defaults.max_reject_share if share is None else share,
        accept_lost=command.accept_lost,
        sets_group=bool(command.commit_group),
    )
