"""A Kafka broker of one node, which is its own controller (KRaft): listeners without passwords, with them, and with them over TLS."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
from confluent_kafka import admin

from tests.kafka.install import LIB
from tests.support.certificates import Certificates, make_certificates
from tests.support.processes import end, free_port, is_listening, start, wait_until

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
PASSWORD = "not-to-be-printed-7"
JAVA = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", f"{LIB}/*")
_ANSWER_SECS = 60.0


def settings(
    folder: Path, plain: int, sasl: int, tls: int, controller: int, certificates: Certificates
) -> dict[str, object]:
    """The broker's configuration: small, quick to begin, and quick to delete what is to be deleted."""
    chain = folder / "chain.pem"
    chain.write_bytes(certificates.key.read_bytes() + certificates.certificate.read_bytes())
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    return {
        "process.roles": "broker,controller", "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}", "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl},TLS://127.0.0.1:{tls},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl},TLS://127.0.0.1:{tls}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SASL_SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{login} user_reader="{PASSWORD}";',
        "listener.name.tls.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.tls.scram-sha-512.sasl.jaas.config": scram,
        "listener.name.tls.ssl.keystore.type": "PEM",
        "listener.name.tls.ssl.keystore.location": chain,
        "log.dirs": folder / "data", "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": 1, "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1, "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1, "group.initial.rebalance.delay.ms": 0,
        "num.network.threads": 2, "num.io.threads": 2, "log.cleaner.dedupe.buffer.size": 8_000_000,
        "log.cleaner.backoff.ms": 100, "file.delete.delay.ms": 100,
    }  # fmt: skip


@dataclass(frozen=True)
class Broker:
    """A running broker: ``address`` is its listener without passwords, ``protected`` that with them, ``encrypted`` that with them over TLS."""

    address: str
    protected: str
    encrypted: str
    certificates: Certificates
    process: subprocess.Popen[bytes]
    admin: admin.AdminClient

    def place(self, topic: str) -> str:
        return f"kafka://{self.address}/{topic}"

    def create(self, topic: str, partitions: int = 2, config: Mapping[str, str] | None = None) -> None:
        new = admin.NewTopic(topic, partitions, 1, config=dict(config or {}))
        self.admin.create_topics([new])[topic].result(_ANSWER_SECS)
        wait_until(lambda: len(self._partitions(topic)) == partitions, f"{topic} is made", {"broker": self.process})

    def _partitions(self, topic: str) -> list[int]:
        found = self.admin.list_topics(topic, timeout=_ANSWER_SECS).topics[topic]
        return [] if found.error else [one.id for one in found.partitions.values() if one.leader >= 0]

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(_ANSWER_SECS)
        wait_until(lambda: not self._partitions(topic), f"{topic} is gone", {"broker": self.process})

    def add_partitions(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([admin.NewPartitions(topic, partitions)])[topic].result(_ANSWER_SECS)
        wait_until(lambda: len(self._partitions(topic)) == partitions, f"{topic} has grown", {"broker": self.process})

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the messages before an offset, as retention does."""
        asked = confluent_kafka.TopicPartition(topic, partition, before)
        self.admin.delete_records([asked])[asked].result(_ANSWER_SECS)

    def produce(self, topic: str, values: Sequence[object], partition: int = 0, **settings: str) -> None:
        """Messages, each a JSON object, bytes as they are, or None."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.address, "log_level": 0, **settings})
        for number, value in enumerate(values):
            content = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            producer.produce(topic, content, key=str(number).encode(), partition=partition)
        assert producer.flush(_ANSWER_SECS) == 0

    def transact(self, topic: str, values: Sequence[object], partition: int, *, commits: bool) -> None:
        """Messages of one transaction, which is committed or aborted."""
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.address, "log_level": 0, "transactional.id": f"tests-{topic}"}
        )
        producer.init_transactions(_ANSWER_SECS)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, json.dumps(value).encode(), partition=partition)
        assert producer.flush(_ANSWER_SECS) == 0
        producer.commit_transaction(_ANSWER_SECS) if commits else producer.abort_transaction(_ANSWER_SECS)
        # The answer comes before the marker is in the topic.
        wait_until(
            lambda: self._has_no_open_transaction(topic, partition), "the marker is written", {"broker": self.process}
        )

    def _has_no_open_transaction(self, topic: str, partition: int) -> bool:
        asked = confluent_kafka.TopicPartition(topic, partition)
        levels = confluent_kafka.IsolationLevel.READ_COMMITTED, confluent_kafka.IsolationLevel.READ_UNCOMMITTED
        latest = [
            self.admin.list_offsets({asked: admin.OffsetSpec.latest()}, isolation_level=level)[asked].result(_ANSWER_SECS).offset
            for level in levels
        ]  # fmt: skip
        return bool(latest[0] == latest[1])

    def group_offset(self, group: str, topic: str, partition: int) -> int:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.address, "group.id": group, "log_level": 0})
        try:
            (found,) = consumer.committed([confluent_kafka.TopicPartition(topic, partition)], _ANSWER_SECS)
            return int(found.offset)
        finally:
            consumer.close()


@contextmanager
def running(folder: Path) -> Iterator[Broker]:
    """The broker, with its configuration, log and messages in ``folder``; it is gone at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    plain, sasl, tls, controller = (free_port() for _ in range(4))
    certificates = make_certificates(folder / "certificates")
    properties = folder / "server.properties"
    lines = (f"{key}={value}\n" for key, value in settings(folder, plain, sasl, tls, controller, certificates).items())
    properties.write_text("".join(lines))
    made = [*JAVA, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties),
            "--add-scram", f"SCRAM-SHA-512=[name=reader,password={PASSWORD}]"]  # fmt: skip
    subprocess.run(made, check=True, capture_output=True)
    process = start([*JAVA, "kafka.Kafka", str(properties)], folder / "broker.log")
    try:
        wait_until(lambda: all(map(is_listening, (plain, sasl, tls))), "the broker listens", {"broker": process})
        client = admin.AdminClient({"bootstrap.servers": f"127.0.0.1:{plain}", "log_level": 0})
        address, protected, encrypted = (f"127.0.0.1:{port}" for port in (plain, sasl, tls))
        yield Broker(address, protected, encrypted, certificates, process, client)
    finally:
        end(process)
