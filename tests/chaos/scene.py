"""The chaos tests' work: 2,000 tasks of small fragments, and their expected memos."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import transforms.expressions.expression as hr
from tests.warehouse.scenes import FREE_READS
from transforms.execution.plan import compile_plan
from transforms.expressions.model import Model
from warehouse.config import WarehouseConfig
from warehouse.files.digests import column_digest

HOURS, COMPONENTS = 100, 20
LEASE_SECS = 3.0


def config_of(home: str, url: str) -> WarehouseConfig:
    return WarehouseConfig(home, url, lease_secs=LEASE_SECS, untried_backoff_secs=0.5, rates=FREE_READS)


def rows_of_log(seed: int, rows: int) -> pa.Table:
    words = np.array(["red", "blue", "shoe", "boot", "hat", "Grün", "café"])
    random = np.random.default_rng([3, seed])
    return pa.table({
        "query": [" ".join(words[random.integers(0, 7, 4)]) for _ in range(rows)],
        "title": [" ".join(words[random.integers(0, 7, 5)]) for _ in range(rows)],
        "price": random.random(rows).astype(np.float32),
        "clicked": random.integers(0, 2, rows),
    })  # fmt: skip


def write_log(root: Path, hours: int, rows: int = 400) -> Path:
    for hour in range(hours):
        folder = root / f"date=2026-01-{1 + hour // 24:02d}" / f"hour={hour % 24:02d}"
        folder.mkdir(parents=True)
        pq.write_table(rows_of_log(hour, rows), folder / "part.parquet")
    return root


def models(components: int) -> tuple[Model, Model]:
    """Two clients' models with ``components`` components together, some of them in both."""
    query, title, price = hr.text("query"), hr.text("title"), hr.float32("price")
    inputs = {}
    for n in range(components):
        shape = n % 4
        if shape == 0:
            inputs[f"overlap_{n}"] = (query.unigrams() & title.unigrams()).hash_buckets(1000 + n)
        elif shape == 1:
            inputs[f"pairs_{n}"] = title.unigrams().ngrams(2).hash_buckets(1000 + n)
        elif shape == 2:
            inputs[f"price_{n}"] = (price + float(n)).log1p()
        else:
            inputs[f"cross_{n}"] = hr.cross(query.lower(), title.lower(), buckets=1000 + n)
    one = Model("one", client="ads", label="clicked", table="log")
    two = Model("two", client="search", label="clicked", table="log", priority=3)
    for position, (name, expression) in enumerate(inputs.items()):
        if position < components * 3 // 4:
            one.input(name, expression)
        if position >= components // 4:
            two.input(name, expression)
    return one, two


def expected_digests(log: Path, components: int) -> dict[tuple[str, str], str]:
    """The digest of every memo by (partition, fingerprint), computed here and undisturbed."""
    roots = {item.fingerprint: item.component for model in models(components) for item in model.inputs.values()}
    plan = compile_plan(roots)
    found = {}
    for file in sorted(log.rglob("*.parquet")):
        raw = pq.ParquetFile(file).read()
        partition = str(file.parent.relative_to(log))
        for fingerprint, column in plan.run(raw).columns.items():
            found[partition, fingerprint] = column_digest(column)
    return found
