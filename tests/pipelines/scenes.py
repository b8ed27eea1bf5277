"""A small search log, two models on it, and a worker in a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import select

import transforms.expressions.expression as hr
from tests.warehouse.scenes import FREE_READS
from transforms.expressions.model import Model
from warehouse.catalog import schema
from warehouse.config import WarehouseConfig
from warehouse.files.memo_file import lease_of, read_memo_file
from warehouse.matching.submit import submit_model
from warehouse.tables.register import register_table
from warehouse.warehouse import Warehouse

REPOSITORY = Path(__file__).resolve().parents[2]
WORDS = np.array(["red", "blue", "shoe", "boot", "hat", "Grün"])


def write_log(root: Path, hours: int = 3, rows: int = 50, seed: int = 0) -> Path:
    for hour in range(hours):
        random = np.random.default_rng([seed, hour])
        query = [" ".join(WORDS[random.integers(0, 6, 3)]) for _ in range(rows)]
        title = [" ".join(WORDS[random.integers(0, 6, 4)]) for _ in range(rows)]
        table = pa.table(
            {
                "query": pa.array([None if n % 9 == 0 else text for n, text in enumerate(query)], pa.string()),
                "title": title,
                "price": pa.array(random.random(rows), pa.float32(), mask=random.random(rows) < 0.2),
                "clicked": random.integers(0, 2, rows),
            }
        )
        folder = root / f"date=2026-01-{1 + hour // 24:02d}" / f"hour={hour % 24:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / "part.parquet")
    return root


def model(name: str = "ctr", client: str = "search", *, buckets: int = 100) -> Model:
    query, title, price = hr.text("query"), hr.text("title"), hr.float32("price")
    made = Model(name, client=client, label="clicked", table="log")
    made.input("overlap", (query.unigrams() & title.unigrams()).hash_buckets(buckets))
    made.input("query", query.lower().unigrams().hash_buckets(buckets))
    made.input("title_pairs", title.unigrams().ngrams(2).hash_buckets(buckets))
    made.input("price", price.fill_null(0.0).log1p())
    return made


def open_home(home: Path, lease_secs: float = 60.0, max_attempts: int = 3) -> Warehouse:
    return Warehouse.open(
        WarehouseConfig(str(home), lease_secs=lease_secs, max_attempts=max_attempts, rates=FREE_READS)
    )


def fill(warehouse: Warehouse, root: Path, *models: Model) -> int:
    """Register the log and submit the models; the number of tasks queued."""
    register_table(warehouse, "log", str(root))
    return sum(submit_model(warehouse, made).queued for made in models or (model(),))


def memos(warehouse: Warehouse) -> dict[str, dict[str, object]]:
    """Every memo's row, by key."""
    with warehouse.catalog.read() as connection:
        rows = connection.execute(select(schema.memos)).mappings().all()
    return {str(row["memo_key"]): dict(row) for row in rows}


def memo_values(warehouse: Warehouse) -> dict[str, pa.Array]:
    """Every ready memo's values, by key, each verified against its checksum."""
    values = {}
    with warehouse.catalog.read() as connection:
        files = {row.id: row for row in connection.execute(select(schema.memo_files))}
    for key, row in memos(warehouse).items():
        file, column = files[row["file"]], str(row["fingerprint"])
        values[key] = read_memo_file(warehouse.storage, file.path, [column], file.checksum)[column]
    return values


def memo_files(home: Path) -> dict[str, bytes]:
    """What every memo file holds, by its path without the lease under which it was written."""
    files = (path for path in (home / "memos").rglob("*") if path.is_file())
    return {str(path.relative_to(home)).replace(f"-{lease_of(path.name)}-", "-"): path.read_bytes() for path in files}


WORKER = """
import itertools, sys, time
from pathlib import Path
from pipelines.memoize.pipeline import MemoizeFragments
from pipelines.worker.worker import WorkerConfig, run_worker
from tests.pipelines.scenes import open_home
home, name, lease_secs, batch, wait, fragments = sys.argv[1:]
if wait == "True":
    print("ready", flush=True)
    sys.stdin.readline()
if int(fragments):
    compute, begun = MemoizeFragments.work, itertools.count()
    def some(step, element):
        while next(begun) >= int(fragments):
            time.sleep(3600)
        return compute(step, element)
    MemoizeFragments.work = some
with open_home(Path(home), float(lease_secs), max_attempts=50) as warehouse:
    report = run_worker(warehouse, WorkerConfig(name, batch_tasks=int(batch), runner_workers=1), until_idle=True)
print(report.memos, report.fenced, report.tasks)
"""


def start_worker(
    home: Path, name: str, *, lease_secs: float = 60, batch: int = 20_000, wait: bool = False, fragments: int = 0
) -> subprocess.Popen[str]:
    """A worker that ends when the queue is empty. ``wait``: it says "ready", and begins when it is given a line.

    ``fragments``: after so many it stands still, to be killed in the middle however fast the machine is.
    """
    command = [sys.executable, "-c", WORKER, str(home), name, str(lease_secs), str(batch), str(wait), str(fragments)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
