"""Logs of days whose files differ in their schemas."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import transforms.expressions.expression as hr
from tests.warehouse.scenes import compute
from transforms.expressions.model import Model
from warehouse import Warehouse, lease_tasks, queue_missing, register_table, submit_model
from warehouse.queue.commit import commit_memos
from warehouse.tables.history import TableVersion, table_history
from warehouse.tables.manifests import current_fragments, get_table
from warehouse.tables.raw import read_raw
from warehouse.tables.register import Registration
from warehouse.tables.table import ColumnSchema, Table
from warehouse.tables.widening import is_same_type

ROWS = 20
TIME = pa.timestamp("us", tz="UTC")


def day(number: int, rows: int = ROWS, **columns: Any) -> pa.Table:
    """Events of a day of March 2026: ``time``, ``user``, ``seat``, ``clicked``, and ``columns``; those that are None are left out."""
    start = datetime(2026, 3, number, tzinfo=UTC)
    plain: dict[str, Any] = {
        "time": pa.array([start + timedelta(minutes=i) for i in range(rows)], TIME),
        "user": [f"user {i % 5} of day {number}" for i in range(rows)],
        "seat": pa.array([i % 5 for i in range(rows)], pa.int8()),
        "clicked": [i % 3 == 0 for i in range(rows)],
    }
    return pa.table({name: one for name, one in {**plain, **columns}.items() if one is not None})


def write(root: Path, number: int, table: pa.Table, name: str = "p.parquet") -> Path:
    """Write a file of a day."""
    path = root / f"date=2026-03-{number:02d}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path


def add(warehouse: Warehouse, root: Path, table: str = "log", **options: Any) -> Registration:
    return register_table(warehouse, table, str(root), time_column="time", **options)


def the_table(warehouse: Warehouse, name: str = "log") -> Table:
    with warehouse.catalog.read() as connection:
        return get_table(connection, name)


def column_of(warehouse: Warehouse, name: str, table: str = "log") -> ColumnSchema:
    return the_table(warehouse, table).column(name)


def values(warehouse: Warehouse, name: str, table: str = "log", at_version: int | None = None) -> list[Any]:
    """The values of a column of the whole table, whose parts all have the type of the table."""
    with warehouse.catalog.read() as connection:
        placed = current_fragments(connection, table, at_version=at_version)
        kind = get_table(connection, table).column(name).arrow_type
    found: list[Any] = []
    for one in placed:
        column = read_raw(warehouse.storage, one.fragment, [name]).column(name)
        assert is_same_type(str(column.type), kind)
        found += column.to_pylist()
    return found


def history(warehouse: Warehouse, table: str = "log") -> tuple[TableVersion, ...]:
    with warehouse.catalog.read() as connection:
        return table_history(connection, table)


def changes(warehouse: Warehouse, table: str = "log") -> list[list[str]]:
    """The changes of the schema in each version."""
    return [[change.text for change in one.schema] for one in history(warehouse, table)]


def submit(
    warehouse: Warehouse, name: str = "m", table: str = "log", label: Any = "clicked", **inputs: hr.Expr
) -> None:
    """Submit a model with these inputs, and ``user``."""
    made = Model(name, client="c", label=label, table=table)
    for key, expression in {"user": hr.text("user").length(), **inputs}.items():
        made.input(key, expression)
    submit_model(warehouse, made)


def work(warehouse: Warehouse, paths: list[str] | None = None) -> list[tuple[str, str]]:
    """Compute all that is missing; returns the day and the columns of each memo, and adds the files to ``paths``."""
    queue_missing(warehouse)
    done: list[tuple[str, str]] = []
    while tasks := lease_tasks(warehouse, "w", limit=50):
        for task in tasks:
            assert commit_memos(warehouse, [(task, compute(warehouse, task))])[0]
            columns = sorted(node["column"] for node in task.component["nodes"] if "column" in node)
            done.append((Path(task.fragment.path).parent.name, ", ".join(columns)))
            if paths is not None:
                paths.append(task.fragment.path)
    return sorted(done)
