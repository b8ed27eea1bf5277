"""A batch of messages and its offsets are one version of the table, or nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transforms.errors import InputError
from warehouse.changes.drop_table import drop_table
from warehouse.errors import CatalogBusy
from warehouse.kafka.commit import Batch, append_batch, begin_topic, known_topic
from warehouse.kafka.offsets import OffsetRange
from warehouse.tables.followed import FollowedTopic, refuse_followed, topic_offsets
from warehouse.warehouse import Warehouse

TOPIC = FollowedTopic("a:1", "clicks", "id", "latest", None)
DAY = datetime(2026, 3, 1, 10, tzinfo=UTC)


def batch(before: Mapping[int, int], ids: Sequence[int], *ranges: tuple[int, int, int]) -> Batch:
    times = pa.array([DAY] * len(ids), pa.timestamp("us", "UTC"))
    parts = {"date=2026-03-01": pa.table({"id": pa.array(ids, pa.int64()), "time": times})} if ids else {}
    return Batch("log", TOPIC, before, tuple(OffsetRange(*one) for one in ranges), "time", parts)


def offsets(warehouse: Warehouse, version: int | None = None) -> dict[int, int]:
    with warehouse.catalog.read() as connection:
        return topic_offsets(connection, "log", version)


def test_each_version_has_its_offsets(warehouse: Warehouse) -> None:
    begin_topic(warehouse, "log", TOPIC, {0: 5, 1: 0})
    assert (known_topic(warehouse, "log").table, offsets(warehouse)) == (None, {0: 5, 1: 0})
    assert append_batch(warehouse, batch({0: 5, 1: 0}, [], (0, 5, 6))).version == 0
    assert append_batch(warehouse, batch({0: 6, 1: 0}, [1, 2], (0, 6, 8))).version == 1
    assert append_batch(warehouse, batch({0: 8, 1: 0}, [3], (1, 0, 1), (2, 0, 0))).version == 2
    assert append_batch(warehouse, batch({0: 8, 1: 1, 2: 0}, [], (0, 8, 9), (1, 1, 3))).version == 2
    assert [offsets(warehouse, version) for version in (0, 1, 2)] == [
        {0: 6, 1: 0},
        {0: 8, 1: 0},
        {0: 9, 1: 3, 2: 0},
    ]
    with warehouse.catalog.read() as connection, pytest.raises(InputError, match="a topic of Kafka feeds"):
        refuse_followed(connection, "log", "an import")


def test_a_batch_of_messages_that_another_process_took_is_refused(warehouse: Warehouse) -> None:
    begin_topic(warehouse, "log", TOPIC, {0: 0})
    append_batch(warehouse, batch({0: 0}, [1], (0, 0, 1)))
    for late in (batch({0: 0}, [1], (0, 0, 1)), batch({0: 0}, [], (0, 0, 1)), batch({}, [1], (0, 0, 1))):
        with pytest.raises(CatalogBusy, match="brought messages"):
            append_batch(warehouse, late)
    with pytest.raises(CatalogBusy):
        begin_topic(warehouse, "log", TOPIC, {0: 0})
    assert (known_topic(warehouse, "log").table.version, offsets(warehouse)) == (1, {0: 1})  # type: ignore[union-attr]


def test_a_dropped_table_forgets_its_topic(warehouse: Warehouse) -> None:
    begin_topic(warehouse, "log", TOPIC, {0: 0})
    append_batch(warehouse, batch({0: 0}, [1], (0, 0, 1)))
    drop_table(warehouse, "log")
    known = known_topic(warehouse, "log")
    assert (known.table, known.topic, known.offsets) == (None, None, {})
    begin_topic(warehouse, "log", TOPIC, {0: 0})
    assert append_batch(warehouse, batch({0: 0}, [7], (0, 0, 4))).version == 3
    assert offsets(warehouse) == {0: 4}


def test_a_table_of_files_stays_one(warehouse: Warehouse, tmp_path: Path) -> None:
    from warehouse.tables.register import register_table

    folder = tmp_path / "log" / "date=2026-03-01"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), folder / "a.parquet")
    register_table(warehouse, "log", str(tmp_path / "log"))
    with pytest.raises(InputError, match="a table of files must not become one of a topic"):
        known_topic(warehouse, "log")
