"""A table as plain Python rows, to compare the warehouse with, and files for both."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]

START = datetime(2026, 1, 1, tzinfo=UTC)
GROUP_ROWS = 4
WORDS = ("red", "blue", "shoe", "boot", "hat")
FILE_SCHEMA = pa.schema(
    [
        ("event_id", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("query", pa.string()),
        ("price", pa.float32()),
        ("clicked", pa.bool_()),
    ]
)
SPAM = pa.float32()
SCHEMA = FILE_SCHEMA.append(pa.field("spam", SPAM))


def partition_key(hour: int) -> str:
    return f"date=2026-01-01/hour={hour:02d}"


def to_table(rows: Sequence[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.table({one.name: pa.array([row[one.name] for row in rows], one.type) for one in schema}, schema=schema)


@dataclass
class NaiveFragment:
    """``stored``: the rows as the file holds them; ``rows``: as they are now; ``deleted``: which are retracted."""

    stored: list[Row]
    rows: list[Row] = field(default_factory=list)
    deleted: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rows = self.rows or copy.deepcopy(self.stored)
        self.deleted = self.deleted or [False] * len(self.stored)

    @property
    def live(self) -> list[Row]:
        return [row for row, gone in zip(self.rows, self.deleted, strict=True) if not gone]


class NaiveTable:
    """Files of fragments of rows, by partition and path, in the order in which they are read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.partitions: dict[str, dict[str, list[NaiveFragment]]] = {}
        self.events = 0

    def new_rows(self, count: int, hour: int, chance: random.Random) -> list[Row]:
        rows = []
        for _ in range(count):
            self.events += 1
            rows.append({
                "event_id": self.events, "time": START + timedelta(hours=hour, seconds=chance.randrange(3600)),
                "query": chance.choice([None, " ".join(chance.choices(WORDS, k=2))]),
                "price": chance.choice([None, float(chance.randrange(5))]), "clicked": chance.random() < 0.5,
                "spam": None,
            })  # fmt: skip
        return rows

    def add_file(self, hour: int, path: str, fragments: Iterable[list[Row]]) -> None:
        files = self.partitions.setdefault(partition_key(hour), {})
        files[path] = [NaiveFragment(rows) for rows in fragments]

    def write_file(self, path: str, fragments: Sequence[NaiveFragment]) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(path, FILE_SCHEMA) as writer:
            for fragment in fragments:
                writer.write_table(to_table(fragment.stored, FILE_SCHEMA))

    def fragments(self) -> list[NaiveFragment]:
        return [one for key in sorted(self.partitions) for file in self.partitions[key].values() for one in file]

    def all_rows(self) -> list[Row]:
        return [row for one in self.fragments() for row in one.rows]

    def change(self, values: Mapping[int, Row]) -> bool:
        """Values by event_id; whether any event came out otherwise."""
        before = copy.deepcopy([one.rows for one in self.fragments()])
        for row in self.all_rows():
            row.update(values.get(row["event_id"], {}))
        return before != [one.rows for one in self.fragments()]

    def retract(self, chosen: Callable[[Row], bool]) -> int:
        count = 0
        for one in self.fragments():
            for i, row in enumerate(one.rows):
                count += not one.deleted[i] and chosen(row)
                one.deleted[i] = one.deleted[i] or chosen(row)
        return count

    def snapshot(self) -> list[NaiveFragment]:
        return copy.deepcopy(self.fragments())
