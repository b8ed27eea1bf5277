"""A log with keys and times, and changes of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from warehouse import Warehouse
from warehouse.tables.manifests import PlacedFragment, current_fragments, get_table
from warehouse.tables.overlays import live_mask
from warehouse.tables.raw import read_raw

START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 6
HOURS = 3


def events(hour: int, rows: int = ROWS, first: int | None = None) -> pa.Table:
    """Events of one hour; ids are 100 * hour + i unless they begin at ``first``."""
    begin = 100 * hour if first is None else first
    ids = [begin + i for i in range(rows)]
    return pa.table({
        "event_id": pa.array(ids, pa.int64()),
        "time": pa.array([START + timedelta(hours=hour, minutes=i) for i in range(rows)], pa.timestamp("us", tz="UTC")),
        "query": pa.array([None if i % 5 == 4 else f"word{i % 3} h{hour}" for i in ids], pa.string()),
        "price": pa.array([float(i % 4 + hour) for i in ids], pa.float32()),
        "clicked": pa.array([i % 2 == 0 for i in ids]),
    })  # fmt: skip


def write_log(root: Path) -> Path:
    for hour in range(HOURS):
        save(root / "date=2026-01-01" / f"hour={hour:02d}" / "part.parquet", events(hour), row_group_size=4)
    return root


def save(path: Path, table: pa.Table | dict[str, Any], **options: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), path, **options)
    return str(path)


def version(warehouse: Warehouse) -> int:
    with warehouse.catalog.read() as connection:
        return get_table(connection, "log").version


def placed(warehouse: Warehouse, at_version: int | None = None) -> tuple[PlacedFragment, ...]:
    with warehouse.catalog.read() as connection:
        return current_fragments(connection, "log", at_version=at_version)


def column(warehouse: Warehouse, name: str, at_version: int | None = None, *, live: bool = False) -> list[Any]:
    """The values of a column over the whole table, in reading order."""
    values: list[Any] = []
    for one in placed(warehouse, at_version):
        array = read_raw(warehouse.storage, one.fragment, [name]).column(name)
        mask = live_mask(warehouse.storage, one.fragment) if live else None
        values += (array if mask is None else array.filter(mask)).to_pylist()
    return values


def overlay_files(warehouse: Warehouse) -> list[str]:
    return [file.path for file in warehouse.storage.list("overlays")]
