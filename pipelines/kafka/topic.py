"""A topic of Kafka as its brokers answer: its partitions, their offsets, and messages from given offsets on.

Only messages of committed transactions are read. Positions are given, never looked up in a consumer group, and an offset that Kafka
does not have is an error, never a jump.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pipelines.kafka.location import TopicLocation
from pipelines.kafka.messages import Messages
from transforms.errors import DataError, HeadraceError, InputError, StorageError
from warehouse.kafka.offsets import Bounds, advance

_INSTALL = "pip install 'headrace[kafka]'"
_ANSWER_SECS = 20.0
#: Without a message and without the end of the topic for so long, the brokers are taken for unreachable.
_SILENCE_SECS = 60.0
_CONSUMED_AT_ONCE = 1_000
#: The assumed size of a message before any was read.
_FIRST_BYTES = 16 << 10
_QUEUE_KIB = 64 << 10
#: What Kafka answers for a topic of brokers that give no identities.
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_NOT_ALLOWED = frozenset(
    ("TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "_AUTHENTICATION",
     "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE")
)  # fmt: skip
_NO_TOPIC = frozenset(("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID"))
_PROPERTY = re.compile(r'configuration property:? "?([A-Za-z0-9._]+)|\b((?:ssl|sasl)\.[a-z.]+)')


class OffsetGone(StorageError):
    """Kafka deleted the next message of a partition between the look at the topic and the read."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic at one moment.

    Attributes:
        topic_id: its identity; empty if the brokers give none.
        bounds: by partition.
    """

    topic_id: str
    bounds: Mapping[int, Bounds]


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The most messages, bytes of their values, and seconds of a batch; None for as long as it takes."""

    messages: int
    size_bytes: int
    secs: float | None = None


@dataclass
class _Read:
    """Messages of one partition while they are read."""

    offsets: list[int] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)


@dataclass(frozen=True)
class ReadBatch:
    """Messages by partition, and the next offset of every partition."""

    messages: tuple[Messages, ...]
    next: Mapping[int, int]

    @property
    def count(self) -> int:
        """The number of messages."""
        return sum(len(one.offsets) for one in self.messages)


class Topic:
    """A client of one topic.

    Args:
        location: the brokers and the topic.
        properties: those of the client, by librdkafka's names.
        group: the consumer group whose offsets are set for others to see; empty for none.

    Raises :class:`StorageError` without the package, and :class:`InputError` for properties that the client refuses.
    """

    def __init__(self, location: TopicLocation, properties: Mapping[str, str], group: str = "") -> None:
        self._location = location
        try:
            import confluent_kafka
            from confluent_kafka import admin
        except ImportError as error:
            raise StorageError("a topic of Kafka needs the package confluent-kafka", where=str(location), value=str(error),
                               next_step=_INSTALL) from None  # fmt: skip
        self._kafka, self._admin_api = confluent_kafka, admin
        self._failure = ""
        common: dict[str, Any] = {
            **properties, "bootstrap.servers": location.brokers, "log_level": 0, "error_cb": self._on_error,
        }  # fmt: skip
        with self._refused_properties():
            self._admin = admin.AdminClient(common)
            self._consumer = confluent_kafka.Consumer(
                {
                    "check.crcs": True,
                    "queued.max.messages.kbytes": _QUEUE_KIB,
                    **common,
                    "group.id": group or "headrace",
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "error",
                    "isolation.level": "read_committed",
                    "allow.auto.create.topics": False,
                }
            )
        self._next: dict[int, int] = {}

    def close(self) -> None:
        """Leave the brokers."""
        self._consumer.close()

    def look(self) -> TopicState:
        """The topic now: one request for its partitions and two for their offsets.

        Raises :class:`DataError` for a topic that does not exist, :class:`InputError` without the right to read it, and
        :class:`StorageError` for brokers that do not answer.
        """
        name = self._location.topic
        with self._translated():
            wanted = self._kafka.TopicCollection([name])
            found = self._admin.describe_topics(wanted, request_timeout=_ANSWER_SECS)[name].result(_ANSWER_SECS + 1)
            partitions = [one.id for one in found.partitions]
            earliest = self._offsets(partitions, self._admin_api.OffsetSpec.earliest())
            latest = self._offsets(partitions, self._admin_api.OffsetSpec.latest())
        self._failure = ""  # it was no lasting one
        topic_id = str(found.topic_id)
        bounds = {partition: Bounds(earliest[partition], latest[partition]) for partition in partitions}
        return TopicState("" if topic_id == _NO_ID else topic_id, bounds)

    def _offsets(self, partitions: list[int], spec: Any) -> dict[int, int]:
        asked = {self._kafka.TopicPartition(self._location.topic, partition): spec for partition in partitions}
        committed = self._kafka.IsolationLevel.READ_COMMITTED
        answers = self._admin.list_offsets(asked, isolation_level=committed, request_timeout=_ANSWER_SECS)
        return {one.partition: int(answer.result(_ANSWER_SECS + 1).offset) for one, answer in answers.items()}

    def seek(self, offsets: Mapping[int, int]) -> None:
        """Read on from these offsets, of every partition."""
        if self._next == dict(offsets):
            return
        self._next = dict(offsets)
        with self._translated():
            self._consumer.assign(
                [self._kafka.TopicPartition(self._location.topic, partition, at) for partition, at in offsets.items()]
            )

    def read(
        self, limits: BatchLimits, until: Mapping[int, int] | None, clock: Callable[[], float] = time.monotonic
    ) -> ReadBatch:
        """The next messages, until a limit or, if given, until every partition is at its offset of ``until``.

        Raises :class:`OffsetGone` for a message that was deleted meanwhile, and the errors of :meth:`look`.
        """
        read: dict[int, _Read] = {}
        count, size_bytes, largest = 0, 0, _FIRST_BYTES
        begin = heard = clock()
        while count < limits.messages and size_bytes < limits.size_bytes:
            if until is not None and all(self._next[partition] >= end for partition, end in until.items()):
                break
            left = _SILENCE_SECS if limits.secs is None else begin + limits.secs - clock()
            if left <= 0:
                break
            room = max((limits.size_bytes - size_bytes) // largest, 1)
            with self._translated():
                got = self._consumer.consume(
                    min(_CONSUMED_AT_ONCE, limits.messages - count, room), timeout=min(left, 0.2)
                )
            for message in got:
                if self._take(message, read):
                    count += 1
                    length = len(message.value() or b"")
                    size_bytes, largest = size_bytes + length, max(largest, length)
            heard = clock() if got else heard
            if until is not None and clock() - heard > _SILENCE_SECS:
                raise self._unreachable("no message and no end of the topic")
        messages = (
            Messages(partition, one.offsets, one.times_ms, one.values) for partition, one in sorted(read.items())
        )
        return ReadBatch(tuple(messages), dict(self._next))

    def _take(self, message: Any, read: dict[int, _Read]) -> bool:
        """Add a message; whether it is one, and not the end of a partition. Raises for an error that the brokers sent."""
        error, partition = message.error(), message.partition()
        if error is not None:
            if error.code() == self._kafka.KafkaError._PARTITION_EOF:
                # Markers of transactions and compacted messages before the end have no message.
                self._next[partition] = max(self._next[partition], message.offset())
                return False
            raise self._failed(error)
        where = f"{self._location}, partition {partition}"
        self._next[partition] = advance(self._next[partition], message.offset(), where)
        one = read.setdefault(partition, _Read())
        kind, time_ms = message.timestamp()
        one.offsets.append(message.offset())
        one.times_ms.append(-1 if kind == self._kafka.TIMESTAMP_NOT_AVAILABLE else time_ms)
        one.values.append(message.value())
        return True

    def set_group_offsets(self, offsets: Mapping[int, int]) -> str:
        """Set the offsets of the consumer group, for others to see; the reason if that failed, which changes nothing else."""
        topic = self._location.topic
        try:
            self._consumer.commit(
                offsets=[self._kafka.TopicPartition(topic, partition, at) for partition, at in offsets.items()],
                asynchronous=False,
            )
        except self._kafka.KafkaException as error:
            return str(error.args[0].str())
        return ""

    def _on_error(self, error: Any) -> None:
        if not (self._failure and error.name() == "_ALL_BROKERS_DOWN"):  # a consequence of what was said before
            self._failure = f"{error.name()}: {error.str()}"

    @contextmanager
    def _refused_properties(self) -> Iterator[None]:
        """The client's message about a property has its value, which may be a secret: only the key is shown."""
        try:
            yield
        except (self._kafka.KafkaException, TypeError, ValueError) as error:
            said = error.args[0].str() if isinstance(error, self._kafka.KafkaException) else str(error)
            found = _PROPERTY.search(said)
            raise InputError("the client properties must be ones that librdkafka takes", where="--client-config",
                             value=(found[1] or found[2]) if found else "a property that it does not name",
                             next_step="see librdkafka's CONFIGURATION.md for its values") from None  # fmt: skip

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except HeadraceError:
            raise
        except self._kafka.KafkaException as error:
            raise self._failed(error.args[0]) from None
        except TimeoutError:
            raise self._unreachable("no answer in time") from None

    def _failed(self, error: Any) -> HeadraceError:
        self._admin.poll(0)  # calls back with what went wrong before the answer was missing, such as a refused password
        name, said = error.name(), f"{error.name()}: {error.str()}"
        where = str(self._location)
        if name == "_AUTO_OFFSET_RESET":
            self._next = {}  # the client has given the partition up: the next seek assigns it again
            return OffsetGone("the next message of a partition was deleted while the topic was read", where=where, value=said,
                              next_step="run the command again")  # fmt: skip
        if name in _NO_TOPIC:
            return DataError("the topic must exist", where=where, value=said,
                             next_step="check its name and the brokers; a topic that was made again needs another table name")  # fmt: skip
        if name in _NOT_ALLOWED or self._failure.startswith("_AUTHENTICATION"):
            return InputError("the client must be allowed to read the topic", where=where,
                              value=self._failure if self._failure.startswith("_AUTHENTICATION") else said,
                              next_step="check the file of --client-config, and the rights to read and describe the topic")  # fmt: skip
        # The client says it as an error of TLS, or of the transport if the connection was closed meanwhile.
        if self._failure.startswith("_SSL") or "certificate verify failed" in self._failure:
            return InputError("the brokers must show a certificate that the client trusts", where=where, value=self._failure,
                              next_step="name the authority's certificate in --client-config as ssl.ca.location, and the brokers as their certificates do")  # fmt: skip
        return self._unreachable(said)

    def _unreachable(self, said: str) -> StorageError:
        more = f"; {self._failure}" if self._failure and self._failure not in said else ""
        return StorageError("the brokers of the topic must answer", where=str(self._location), value=f"{said}{more}",
                            next_step="check the brokers, the network and --client-config, then run it again")  # fmt: skip
