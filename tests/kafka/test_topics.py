"""Tables that a topic of a real broker feeds: what is read, what is refused, and kill -9 at random moments."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pipelines.kafka.location import parse_topic
from pipelines.kafka.topic import BatchLimits, OffsetGone, Topic
from tests.kafka.install import ROOT
from tests.support.called_commands import call
from tests.support.certificates import make_certificates
from tests.support.processes import wait_until
from warehouse import Warehouse, WarehouseConfig
from warehouse.kafka.offsets import Bounds
from warehouse.tables.followed import topic_offsets
from warehouse.tables.manifests import current_fragments, get_table, table_manifests
from warehouse.tables.raw import read_raw

if TYPE_CHECKING:
    from tests.kafka.broker import Broker

pytestmark = pytest.mark.kafka


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    return str(tmp_path / "home")


def events(ids: Sequence[int], **more: object) -> list[dict[str, object]]:
    return [
        {
            "id": one,
            "time": f"2026-03-{1 + one % 5:02}T10:00:00Z",
            "clicked": one % 2,
            "user": {"country": "DE"},
            **more,
        }
        for one in ids
    ]


def rows(home: str, table: str = "log", columns: Sequence[str] = ("id", "kafka_partition", "kafka_offset")) -> pa.Table:
    with Warehouse.open(WarehouseConfig(home)) as warehouse, warehouse.catalog.read() as connection:
        placed = current_fragments(connection, table)
        return pa.concat_tables([read_raw(warehouse.storage, one.fragment, list(columns)) for one in placed])


def offsets(home: str, table: str = "log", version: int | None = None) -> dict[int, int]:
    with Warehouse.open(WarehouseConfig(home)) as warehouse, warehouse.catalog.read() as connection:
        return topic_offsets(connection, table, version)


def test_a_second_run_goes_on_at_the_offsets_of_the_version(
    broker: Broker, home: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.create("again")
    broker.produce("again", events(range(0, 60, 2)), 0)
    broker.produce("again", events(range(1, 60, 2)), 1)
    place = broker.place("again")
    first = call(capsys, "table", "add", "log", place, "--batch-messages", "40", "--commit-group", "monitor")
    assert (first["before"], first["version"], first["rows"], first["lag"]) == (0, 2, 60, 0)
    assert first["ranges"] == [{"partition": 0, "first": 0, "next": 30}, {"partition": 1, "first": 0, "next": 30}]
    assert broker.group_offset("monitor", "again", 1) == 30

    broker.produce("again", events([60, 62]), 0)
    second = call(capsys, "table", "add", "log", place)
    assert (second["version"], second["rows"], second["ranges"]) == (3, 2, [{"partition": 0, "first": 30, "next": 32}])
    assert "nothing new in" in call(capsys, "table", "add", "log", place, text=True)
    assert sorted(rows(home)["id"].to_pylist()) == [*range(61), 62]
    assert offsets(home) == {0: 32, 1: 30}
    assert sum(offsets(home, version=1).values()) == 40
    assert call(capsys, "table", "show", "log")["offsets"] == {"0": 32, "1": 30}
    assert "offsets 0: 30-31" in call(capsys, "table", "history", "log", text=True)
    refused = call(capsys, "table", "import", "log", __file__, "--schema", "none", status=2)
    assert "schema" in refused
    assert not call(capsys, "verify")["findings"]


def test_a_schema_file_is_inferred_from_the_newest_messages(
    broker: Broker, home: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A field that older messages lack is in it; the topic and the home are as before; the table takes it as it is."""
    monkeypatch.chdir(tmp_path)
    broker.create("inferred")
    broker.produce("inferred", events(range(0, 300, 2)), 0)
    broker.produce("inferred", events(range(1, 300, 2)), 1)
    broker.produce("inferred", [*events(range(300, 340), price=1.5), None], 0)
    place = broker.place("inferred")
    found = call(capsys, "table", "infer", place, "--rows", "60")
    assert (found["files"], found["rows"], found["about_rows"]) == ([place], 59, None)
    assert {one["name"]: one["type"] for one in found["columns"]}["price"] == "float64"
    assert found["schema"]["time"]["column"] == "time"
    assert not Path(home).exists()
    added = call(capsys, "table", "add", "log", place, "--schema", "schema.json", "--max-reject-share", "0")
    assert (added["rows"], added["empty"]) == (340, 1)

    shown = call(capsys, "table", "infer", place, "--time-column", "kafka_time", "--output", "kafka.json", text=True)
    assert "kafka_time, the time that Kafka has for a message" in shown
    assert f"headrace table add NAME {place} --schema kafka.json" in " ".join(shown.split())
    call(capsys, "table", "add", "other", place, "--schema", "kafka.json")
    refused = call(capsys, "table", "infer", place, "--output", "kafka.json", status=2)
    assert "must not exist yet" in refused
    broker.create("no_messages")
    broker.produce("no_messages", [None, b"  "])
    refused = call(capsys, "table", "infer", broker.place("no_messages"), "--output", "none.json", status=2)
    assert "must have messages with values" in refused
    broker.produce("no_messages", [b"a,b", b"1,2", b"3,4", b"5,6"])
    refused = call(capsys, "table", "infer", broker.place("no_messages"), "--output", "none.json", status=2)
    assert "messages must be JSON objects" in refused
    assert not Path("none.json").exists()


def test_transactions_tombstones_and_bad_messages(
    broker: Broker, home: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.create("mixed", 1)
    broker.transact("mixed", events(range(5)), 0, commits=True)
    broker.transact("mixed", events(range(100, 105)), 0, commits=False)
    broker.produce("mixed", [None, b"{not json", b"  ", *events([5])])
    broker.transact("mixed", events(range(200, 203)), 0, commits=False)
    done = call(capsys, "table", "add", "log", broker.place("mixed"))
    assert (done["rows"], done["rejected"], done["empty"], done["lag"]) == (6, 1, 2, 0)
    assert rows(home)["id"].to_pylist() == [0, 5, 1, 2, 3, 4]  # by days
    (path,) = done["rejects"]
    rejected = json.loads((Path(home) / path).read_text())
    assert (rejected["offset"], rejected["raw"]) == (13, "{not json")
    assert call(capsys, "table", "add", "log", broker.place("mixed"))["messages"] == 0


def test_messages_that_kafka_deleted_before_they_were_read(
    broker: Broker, home: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.create("expired")
    broker.produce("expired", events(range(10)))
    call(capsys, "table", "add", "log", broker.place("expired"))
    broker.produce("expired", events(range(10, 20)))
    broker.delete_records("expired", 0, 14)
    refused = call(capsys, "table", "add", "log", broker.place("expired"), status=3)
    assert "0: 10-13, at most 4 messages" in refused
    assert "--accept-lost" in refused
    done = call(capsys, "table", "add", "log", broker.place("expired"), "--accept-lost")
    assert (done["rows"], done["lost"]) == (6, [{"partition": 0, "first": 10, "next": 14}])
    assert sorted(rows(home)["id"].to_pylist()) == [*range(10), *range(14, 20)]


def test_a_message_that_is_deleted_while_the_topic_is_read(broker: Broker) -> None:
    broker.create("gone", 1)
    broker.produce("gone", events(range(10)))
    broker.delete_records("gone", 0, 4)
    topic = Topic(parse_topic(broker.place("gone")), {})
    try:
        for _ in range(2):
            topic.seek({0: 0})
            with pytest.raises(OffsetGone):
                topic.read(BatchLimits(100, 1 << 20), {0: 10})
        topic.seek({0: 4})
        assert topic.read(BatchLimits(100, 1 << 20), {0: 10}).messages[0].offsets == [4, 5, 6, 7, 8, 9]
        assert topic.look().bounds == {0: Bounds(4, 10)}
    finally:
        topic.close()


def test_compacted_messages_are_gaps_and_no_loss(broker: Broker, home: str, capsys: pytest.CaptureFixture[str]) -> None:
    quick = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}
    broker.create("compacted", 1, quick)
    for number in range(8):
        broker.produce("compacted", events([number]))  # each with the same key
        time.sleep(0.3)
    topic = Topic(parse_topic(broker.place("compacted")), {})

    def held() -> list[int]:
        topic.seek({0: 0})
        (read,) = topic.read(BatchLimits(100, 1 << 20), {0: 8}).messages
        return list(read.offsets)

    try:
        wait_until(lambda: len(held()) < 8, "the topic is compacted", {"broker": broker.process})
    finally:
        topic.close()
    done = call(capsys, "table", "add", "log", broker.place("compacted"))
    assert (done["lost"], done["lag"], offsets(home)) == ([], 0, {0: 8})
    assert 7 in rows(home)["kafka_offset"].to_pylist()


def test_a_topic_that_was_made_again_is_another_one(
    broker: Broker, home: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.create("remade")
    broker.produce("remade", events(range(3)))
    call(capsys, "table", "add", "log", broker.place("remade"))
    broker.delete("remade")
    assert "the topic must exist" in call(capsys, "table", "add", "log", broker.place("remade"), status=3)
    broker.create("remade")
    broker.produce("remade", events(range(50, 60)))
    assert "deleted and made again" in call(capsys, "table", "add", "log", broker.place("remade"), status=3)
    assert offsets(home) == {0: 3, 1: 0}


def test_partitions_that_are_added_are_read_from_their_first_message(
    broker: Broker, home: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.create("grown", 1)
    broker.produce("grown", events(range(3)))
    none = call(capsys, "table", "add", "log", broker.place("grown"), "--from", "latest")
    assert (none["version"], none["messages"]) == (0, 0)
    broker.add_partitions("grown", 2)
    broker.produce("grown", events([3]), 0)
    broker.produce("grown", events([4, 5]), 1)
    call(capsys, "table", "add", "log", broker.place("grown"))
    assert sorted(rows(home)["id"].to_pylist()) == [3, 4, 5]
    refused = call(capsys, "table", "add", "log", broker.place("grown"), "--from", "earliest", status=2)
    assert "must stay as it was" in refused


def test_messages_without_a_row_before_the_first_version_are_read_once(
    broker: Broker, home: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.create("blanks", 1)
    broker.produce("blanks", [None] * 6)
    none = call(capsys, "table", "add", "log", broker.place("blanks"), "--batch-messages", "2")
    assert (none["version"], none["messages"], none["empty"], offsets(home)) == (0, 6, 6, {0: 6})
    broker.produce("blanks", events([1]))
    done = call(capsys, "table", "add", "log", broker.place("blanks"))
    assert (done["messages"], done["ranges"]) == (1, [{"partition": 0, "first": 6, "next": 7}])


def test_new_fields_become_columns_by_a_schema_file(
    broker: Broker, home: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.create("fields", 1)
    broker.produce("fields", events(range(3)))
    call(capsys, "table", "add", "log", broker.place("fields"), "--time-column", "kafka_time")
    broker.produce("fields", events([3], price=1.5))
    told = call(capsys, "table", "add", "log", broker.place("fields"), text=True)
    assert "fields that the schema does not have: price" in told
    columns = [{"name": "id", "type": "int64"}, {"name": "price", "type": "float64"}]
    (tmp_path / "schema.json").write_text(json.dumps({"format": "jsonl", "columns": columns, "partition_by": "day"}))
    broker.produce("fields", events([4], price=2.5))
    done = call(capsys, "table", "add", "log", broker.place("fields"), "--schema", tmp_path / "schema.json")
    assert [one["column"] for one in done["schema_changes"]] == ["price"]
    shown = [one["name"] for one in call(capsys, "table", "show", "log")["columns"]]
    assert {"user_country", "price", "kafka_time"} <= set(shown)


def test_passwords_reach_the_broker_and_nothing_else(
    broker: Broker, home: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.kafka.broker import PASSWORD

    broker.create("secret", 1)
    broker.produce("secret", events(range(3)))
    place = f"kafka://{broker.protected}/secret"
    properties = tmp_path / "client.properties"
    text = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=reader\nsasl.password="
    properties.write_text(text + PASSWORD)
    done = call(capsys, "table", "add", "log", place, "--client-config", properties)
    assert done["rows"] == 3
    assert PASSWORD not in json.dumps(done)
    for path in Path(home).rglob("*"):
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes(), path
    properties.write_text(text + "wrong-one")
    refused = call(capsys, "table", "add", "log", place, "--client-config", properties, status=2)
    assert "must be allowed" in refused
    assert "wrong-one" not in refused


def test_a_topic_is_read_over_tls_from_the_broker_that_is_trusted(
    broker: Broker, home: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.kafka.broker import PASSWORD

    broker.create("encrypted", 1)
    broker.produce("encrypted", events(range(3)))
    place = f"kafka://{broker.encrypted}/encrypted"
    properties = tmp_path / "client.properties"
    login = "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=reader\n"
    trusted = f"ssl.ca.location={broker.certificates.authority}\n"
    properties.write_text(f"{login}sasl.password={PASSWORD}\n{trusted}")
    done = call(capsys, "table", "add", "log", place, "--client-config", properties)
    assert done["rows"] == 3
    broker.produce("encrypted", events([3]))
    assert call(capsys, "table", "add", "log", place, "--client-config", properties)["rows"] == 1

    other = make_certificates(tmp_path / "other").authority
    refused = {
        "another authority": (
            f"{login}sasl.password={PASSWORD}\nssl.ca.location={other}\n",
            2,
            "must show a certificate that the client trusts",
        ),
        "a wrong password": (f"{login}sasl.password=wrong-one\n{trusted}", 2, "must be allowed"),
        "no file": (f"{login}sasl.password={PASSWORD}\nssl.ca.location={tmp_path}/none.pem\n", 2, "ssl.ca.location"),
    }
    for why, (text, status, said) in refused.items():
        properties.write_text(text)
        answer = call(capsys, "table", "add", "log", place, "--client-config", properties, status=status)
        assert said in answer, (why, answer)
        assert PASSWORD not in answer
        assert "wrong-one" not in answer
    assert offsets(home) == {0: 4}


def test_each_message_is_in_the_table_once_though_the_import_is_killed(broker: Broker, home: str) -> None:
    """A producer writes while the import is killed at random moments and begun again."""
    broker.create("killed", 3)
    chance = random.Random(7)
    written = 0
    deadline = time.monotonic() + float(os.environ.get("HEADRACE_KAFKA_KILL_SECS", "60"))
    kills = 0
    while time.monotonic() < deadline:
        log = (Path(home).parent / "log").open("ab")
        command = [sys.executable, "-m", "headrace", "table", "add", "log", broker.place("killed"), "--follow",
                   "--every", "0.3s", "--batch-messages", "70"]  # fmt: skip
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + chance.uniform(1.0, 8.0)
        while time.monotonic() < end:
            for partition in range(3):
                some = chance.randrange(40)
                broker.produce("killed", events(range(written, written + some)), partition)
                written += some
            time.sleep(0.1)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        assert process.wait() == -signal.SIGKILL, (Path(home).parent / "log").read_text()
    finish = [sys.executable, "-m", "headrace", "table", "add", "log", broker.place("killed"), "--json"]
    assert json.loads(subprocess.run(finish, cwd=ROOT, check=True, capture_output=True).stdout)["lag"] == 0
    found = rows(home)
    assert sorted(found["id"].to_pylist()) == list(range(written))
    ends = offsets(home)
    of_partition: dict[int, list[int]] = {partition: [] for partition in ends}
    for partition, offset in zip(
        *(found[name].to_pylist() for name in ("kafka_partition", "kafka_offset")), strict=True
    ):
        of_partition[partition].append(offset)
    assert {partition: sorted(seen) for partition, seen in of_partition.items()} == {
        partition: list(range(end)) for partition, end in ends.items()
    }
    print(f"{written} messages, {kills} kills, {sum(ends.values())} offsets in the newest version")
    assert kills >= 3
    with Warehouse.open(WarehouseConfig(home)) as warehouse:
        _check_every_version(warehouse)


def _check_every_version(warehouse: Warehouse) -> None:
    """At each version the rows are the messages before its offsets."""
    with warehouse.catalog.read() as connection:
        for version in range(1, get_table(connection, "log").version + 1):
            held = sum(one.rows for one in table_manifests(connection, "log", at_version=version))
            assert held == sum(topic_offsets(connection, "log", version).values()), version
