"""What users and cron jobs do to a warehouse while workers compute: models, changes of the table, maintenance.

Each runs in a process of its own, which may be killed at any instruction.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import select

import transforms.expressions.expression as hr
from tests.chaos.scene import models, rows_of_log
from transforms.expressions.model import Model
from warehouse import (
    CompactionPolicy,
    ComponentQuery,
    EvictionRequest,
    Warehouse,
    append_rows,
    collect_garbage,
    compact_memos,
    delete_rows,
    fix_columns,
    overlay_columns,
    register_table,
    retire_model,
    run_eviction,
    submit_model,
)
from warehouse.catalog import schema

COMPONENTS = 8
ROWS = 60


def pool() -> dict[str, tuple[Model, ...]]:
    """The models that come and go, each with its versions."""
    one, two = models(COMPONENTS)
    longer, _ = models(COMPONENTS)
    longer.input("longer", hr.text("title").length())
    passing = Model("passing", client="ads", label="clicked", table="log")
    passing.input("price", (hr.float32("price") * 3.0).log1p())
    passing.input("words", hr.text("query").lower().unigrams().hash_buckets(77))
    return {"one": (one, longer), "two": (two,), "passing": (passing,)}


def submit(warehouse: Warehouse, root: Path, draw: Random) -> None:
    versions = draw.choice(list(pool().values()))
    submit_model(warehouse, draw.choice(versions))


def retire(warehouse: Warehouse, root: Path, draw: Random) -> None:
    retire_model(warehouse, draw.choice(list(pool())))


def evict(warehouse: Warehouse, root: Path, draw: Random) -> None:
    with warehouse.catalog.read() as connection:
        known = sorted(connection.execute(select(schema.components.c.fingerprint)).scalars())
    if draw.random() < 0.3:
        run_eviction(warehouse, EvictionRequest(budget_bytes=draw.choice((0, 20_000, 60_000))), why="chaos")
    else:
        run_eviction(warehouse, EvictionRequest(query=ComponentQuery(fingerprint=draw.choice(known))), why="chaos")


def compact(warehouse: Warehouse, root: Path, draw: Random) -> None:
    compact_memos(warehouse, CompactionPolicy(threshold=1.0, least_gain_bytes=1, many_files=2), dry_run=False)


def collect(warehouse: Warehouse, root: Path, draw: Random) -> None:
    """Nothing is too young, or what was written in the last seconds is."""
    collect_garbage(warehouse, dry_run=False, leftover_secs=draw.choice((-1e9, 5.0)))


def change_table(warehouse: Warehouse, root: Path, draw: Random) -> None:
    draw.choice((_overlay, _fix, _delete, _append, _replace))(warehouse, root, draw)


def _file(root: Path, draw: Random) -> Path:
    return draw.choice(sorted((root / "log").rglob("part.parquet")))


def _save(path: Path, table: pa.Table) -> Path:
    """At once: no reader meets half of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid.uuid4().hex}")
    pq.write_table(table, temporary)
    os.replace(temporary, path)
    return path


def _mirrored(root: Path, draw: Random, name: str, values: np.ndarray) -> str:  # type: ignore[type-arg]
    """A folder with new values of a column for one file of the log."""
    file, folder = _file(root, draw), root / "mirrors" / uuid.uuid4().hex
    count = pq.ParquetFile(file).metadata.num_rows
    _save(folder / file.relative_to(root / "log"), pa.table({name: values[:count]}))
    return str(folder)


def _overlay(warehouse: Warehouse, root: Path, draw: Random) -> None:
    values = np.random.default_rng(draw.randrange(1 << 30)).random(10 * ROWS).astype(np.float32)
    overlay_columns(warehouse, "log", _mirrored(root, draw, "price", values))


def _fix(warehouse: Warehouse, root: Path, draw: Random) -> None:
    values = np.random.default_rng(draw.randrange(1 << 30)).integers(0, 2, 10 * ROWS)
    fix_columns(warehouse, "log", _mirrored(root, draw, "clicked", values), why="chaos")


def _delete(warehouse: Warehouse, root: Path, draw: Random) -> None:
    title = pq.read_table(_file(root, draw)).column("title")[draw.randrange(ROWS // 2)].as_py()
    delete_rows(warehouse, "log", where=[("title", title)])


def _append(warehouse: Warehouse, root: Path, draw: Random) -> None:
    late = _save(root / "late" / f"{uuid.uuid4().hex}.parquet", rows_of_log(draw.randrange(1 << 30), ROWS // 2))
    append_rows(warehouse, "log", [str(late)], partition=str(_file(root, draw).parent.relative_to(root / "log")))


def _replace(warehouse: Warehouse, root: Path, draw: Random) -> None:
    """A file is written again, with other rows; until the table is registered again, it is not what the catalog says."""
    _save(_file(root, draw), rows_of_log(draw.randrange(1 << 30), ROWS + draw.randrange(ROWS)))
    register_table(warehouse, "log", str(root / "log"))


CHORES: dict[str, Callable[[Warehouse, Path, Random], None]] = {
    "model submitted": submit,
    "model retired": retire,
    "table changed": change_table,
    "garbage collected": collect,
    "compaction": compact,
    "eviction": evict,
}
