"""Lakes for the tests, and the rows of the tables that follow them."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyroaring import BitMap64

from warehouse import WarehouseConfig
from warehouse.lakes.open_lake import open_lake
from warehouse.lakes.refresh import LakeOptions, Refreshed, refresh_lake
from warehouse.tables.manifests import current_fragments
from warehouse.tables.overlays import live_mask
from warehouse.tables.raw import read_raw
from warehouse.warehouse import Warehouse

START = datetime(2026, 3, 1, tzinfo=UTC)
COUNTRIES = ("D E", "F/R", None, "ü%")
SCHEMA = pa.schema(
    {"id": pa.int64(), "time": pa.timestamp("us", "UTC"), "country": pa.string(), "label": pa.float64(),
     "tags": pa.list_(pa.field("element", pa.string()))}
)  # fmt: skip

_TIMES = [START + timedelta(hours=hour) for hour in range(6)]
#: Six rows with the columns ``id`` and ``time``, and one of every other type that both formats have.
ALL_TYPES = pa.table(
    {
        "id": pa.array(range(6), pa.int64()),
        "time": pa.array(_TIMES, pa.timestamp("us", "UTC")),
        "yes": [True, None] * 3,
        "small": pa.array(range(6), pa.int32()),
        "real": pa.array([1.5, None, float("nan"), -0.0, 0.0, 2.0], pa.float32()),
        "money": pa.array([Decimal("1.25"), None] * 3, pa.decimal128(10, 2)),
        "day": [one.date() for one in _TIMES],
        "raw": [b"\x00\xff", None] * 3,
        "pair": pa.array([{"a": "x", "in": {"k": one}} for one in range(6)],
                         pa.struct([("a", pa.string()), ("in", pa.struct([("k", pa.int64())]))])),
        "pairs": pa.array([[{"q": "a"}], None, [], [None], [{"q": None}], [{"q": "b"}]], pa.list_(pa.struct([("q", pa.string())]))),
        "lists": pa.array([[[1]], None, [], [None], [[]], [[1, 2]]], pa.list_(pa.list_(pa.int64()))),
        "map": pa.array([[("a", 1)], None, [], [("b", None)], [("c", 3), ("d", 4)], []], pa.map_(pa.string(), pa.int64())),
    }
)  # fmt: skip


def events(ids: Sequence[int], label: float = 0.5) -> pa.Table:
    """An event every five hours, by id."""
    rows = [
        {"id": one, "time": START + timedelta(hours=5 * one), "country": COUNTRIES[one % 4], "label": label, "tags": ["a"] * (one % 3)}
        for one in ids
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@dataclass
class Follower:
    """A table ``log`` that follows the lake at ``location``."""

    warehouse: Warehouse
    location: str

    @classmethod
    def open(cls, home: Path, location: str) -> Follower:
        return cls(Warehouse.open(WarehouseConfig(str(home))), location)

    def refresh(self, version: str = "", **options: Any) -> Refreshed:
        snapshot = open_lake(self.warehouse.storage, self.location, version)
        return refresh_lake(self.warehouse, "log", self.location, snapshot, LakeOptions(**options))

    def rows(self, *columns: str) -> list[dict[str, Any]]:
        """The live rows, by all columns or some."""
        return [row for _, row in self.placed_rows(*columns)]

    def placed_rows(self, *columns: str) -> list[tuple[tuple[str, int], dict[str, Any]]]:
        """The place of each live row (its file, and its number among the rows of the file), and the row."""
        names = list(columns or SCHEMA.names)
        first: dict[str, int] = {}
        found = []
        with self.warehouse.catalog.read() as connection:
            current = current_fragments(connection, "log")
        for placed in sorted(current, key=lambda one: (one.fragment.path, one.fragment.row_groups)):
            fragment = placed.fragment
            table, mask = read_raw(self.warehouse.storage, fragment, names), live_mask(self.warehouse.storage, fragment)
            begin = first.setdefault(fragment.path, 0)
            first[fragment.path] += fragment.rows
            alive = [True] * fragment.rows if mask is None else mask.to_pylist()
            found += [
                ((fragment.path, begin + row), values) for row, values in enumerate(table.to_pylist()) if alive[row]
            ]
        return found


def same_rows(found: Sequence[dict[str, Any]], expected: Sequence[dict[str, Any]]) -> bool:
    """Whether two lists hold the same rows, in any order."""
    return sorted(map(repr, found)) == sorted(
        repr({name: row[name] for name in found[0]} if found else row) for row in expected
    )


def delta_rows(location: str) -> list[dict[str, Any]]:
    """The rows of a Delta table by deltalake's own engine, which knows deletion vectors and column mapping."""
    rows: list[dict[str, Any]] = pa.table(DeltaTable(location).scan()).to_pylist()
    return rows


def vector_bytes(positions: Sequence[int]) -> bytes:
    """A deletion vector as Delta stores it: a magic number and a 64-bit roaring bitmap in the portable format."""
    return struct.pack("<i", 1681511377) + BitMap64(positions).serialize()


_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def inline_vector(positions: Sequence[int]) -> dict[str, Any]:
    """The descriptor of a deletion vector in the log itself."""
    content = vector_bytes(positions)
    padded = content + b"\0" * (-len(content) % 4)
    encoded = ""
    for (word,) in struct.iter_unpack(">I", padded):
        digits = ""
        for _ in range(5):
            word, digit = divmod(word, 85)
            digits = _Z85[digit] + digits
        encoded += digits
    return {
        "storageType": "i",
        "pathOrInlineDv": encoded,
        "sizeInBytes": len(content),
        "cardinality": len(set(positions)),
    }


def stored_vector(location: str, positions: Sequence[int]) -> dict[str, Any]:
    """The descriptor of a deletion vector in a file of the table, which is written."""
    content = vector_bytes(positions)
    path = Path(location) / "deletion_vector_0b6a4d6b-7a7f-4a39-9a2b-2f3c6c5f2d11.bin"
    path.write_bytes(b"\x01" + struct.pack(">i", len(content)) + content + struct.pack(">I", zlib.crc32(content)))
    return {"storageType": "p", "pathOrInlineDv": f"file://{path}", "offset": 1, "sizeInBytes": len(content),
            "cardinality": len(set(positions))}  # fmt: skip


def with_vectors(location: str, vectors: dict[str, dict[str, Any] | None]) -> None:
    """Commit new deletion vectors of files, by path in the log, as Spark does for a DELETE; None removes one."""
    log = Path(location) / "_delta_log"
    version = max(int(path.stem) for path in log.glob("*.json")) + 1
    adds: dict[str, dict[str, Any]] = {}
    for path in sorted(log.glob("*.json")):
        for line in path.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                adds[action["add"]["path"]] = action["add"]
            if "remove" in action:
                adds.pop(action["remove"]["path"], None)
    features = ["deletionVectors"]
    actions: list[dict[str, Any]] = [
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": features,
                "writerFeatures": features,
            }
        },
        {"commitInfo": {"timestamp": 1, "operation": "DELETE", "operationParameters": {}}},
    ]
    for path, vector in vectors.items():
        before = adds[path]
        removed = {"path": path, "deletionTimestamp": 1, "dataChange": True, "extendedFileMetadata": True,
                   "partitionValues": before["partitionValues"], "size": before["size"]}  # fmt: skip
        if before.get("deletionVector"):
            removed["deletionVector"] = before["deletionVector"]
        added = {name: value for name, value in before.items() if name != "deletionVector"} | {"dataChange": True}
        if vector is not None:
            added["deletionVector"] = vector
        actions += [{"remove": removed}, {"add": added}]
    (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)) + "\n")


def log_paths(location: str) -> list[str]:
    """The paths of the live files in the log, as it spells them."""
    return sorted(pa.table(DeltaTable(location).get_add_actions()).column("path").to_pylist())


def encoded(content: bytes) -> str:
    """Bytes as text, for fixtures."""
    return base64.b64encode(content).decode()
