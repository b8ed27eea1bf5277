"""Synthetic logs of a new user: coupon ads in CSV, news clicks in JSON lines, app installs in Parquet and TSV.

Every value is drawn from a seeded generator, so equal arguments give equal bytes. In each log the label depends on
columns that a first model reads, so that a trained model is better than the mean rate.
"""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_GENRES = ("Restaurant", "Spa, nails", "Hotel", 'Gift "box"', "Class")
_TOPICS = ("sport", "politics", "culture", "science")
_COUNTRIES = ("DE", "FR", "PL")
_STORES = ("play", "web", "partner")


def _times(rows: int, seed: int, first: datetime, days: int) -> list[datetime]:
    seconds = np.sort(np.random.default_rng(seed).integers(0, days * 86_400, rows))
    return [first + timedelta(seconds=int(one)) for one in seconds]


def write_coupons(path: Path, rows: int = 6000, seed: int = 1) -> None:
    """A CSV file: local times without leading zeros, prices with thousands separators, quoted genres with commas."""
    random = np.random.default_rng(seed)
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["viewed_at", "user", "coupon", "genre", "price", "discount", "bought"])
        for time in _times(rows, seed, datetime(2026, 3, 2), 4):
            genre = int(random.integers(len(_GENRES)))
            discount = int(random.integers(30, 95))
            bought = random.random() < 0.04 + 0.006 * (discount - 30) * (genre % 2)
            lines.writerow([
                f"{time.year}-{time.month:02d}-{time.day:02d} {time.hour}:{time.minute:02d}", int(random.integers(400)),
                f"c{int(random.integers(80)):03d}", _GENRES[genre], f"{int(random.integers(500, 60_000)):,}",
                "" if random.random() < 0.05 else discount, int(bought),
            ])  # fmt: skip


def write_news(path: Path, rows: int = 6000, seed: int = 2) -> None:
    """A JSON Lines file: fractional epochs, an object within an object, an array of topics."""
    random = np.random.default_rng(seed)
    with path.open("w", encoding="utf-8") as file:
        for time in _times(rows, seed, datetime(2026, 3, 2, tzinfo=UTC), 4):
            country = int(random.integers(len(_COUNTRIES)))
            topics = sorted(
                {_TOPICS[int(one)] for one in random.integers(len(_TOPICS), size=int(random.integers(1, 4)))}
            )
            clicked = random.random() < (0.35 if "sport" in topics and country == 0 else 0.06)
            document: dict[str, Any] = {
                "ts": round(time.timestamp() + float(random.random()), 3),
                "user": {"id": int(random.integers(500)), "geo": {"country": _COUNTRIES[country]}},
                "article": f"a{int(random.integers(120))}",
                "topics": topics,
                "clicked": int(clicked),
            }
            file.write(json.dumps(document, separators=(",", ":")) + "\n")


def write_installs(folder: Path, rows: int = 6000, seed: int = 3, files: int = 3) -> None:
    """Parquet files in one folder, as a database exports them: any layout, small integers, a date beside the time."""
    table = installs(rows, seed)
    folder.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, rows, -(-rows // files))):
        pq.write_table(table.slice(start, -(-rows // files)), folder / f"export-{number}.parquet")


def installs(rows: int, seed: int) -> pa.Table:
    """The events of :func:`write_installs`."""
    random = np.random.default_rng(seed)
    times = _times(rows, seed, datetime(2026, 3, 2, tzinfo=UTC), 4)
    store, campaign = random.integers(len(_STORES), size=rows), random.integers(60, size=rows)
    installed = random.random(rows) < np.where(store == 2, 0.02, 0.05 + 0.004 * campaign)
    return pa.table({
        "event_time": pa.array(times, pa.timestamp("ms", "UTC")),
        "day": pa.array([one.date() for one in times], pa.date32()),
        "device": pa.array(random.integers(2**31, size=rows), pa.uint32()),
        "campaign": pa.array(campaign, pa.int16()),
        "store": pa.array([_STORES[int(one)] for one in store]).dictionary_encode(),
        "bid": pa.array(random.random(rows) * 3, pa.float64()),
        "installed": pa.array(installed),
    })  # fmt: skip


def write_installs_tsv(path: Path, rows: int = 6000, seed: int = 3) -> None:
    """The same events as a TSV file with epoch milliseconds and ``\\N`` for a missing bid."""
    with path.open("w", encoding="utf-8") as file:
        file.write("event_ms\tdevice\tcampaign\tstore\tbid\tinstalled\n")
        for number, row in enumerate(installs(rows, seed).to_pylist()):
            bid = "\\N" if number % 17 == 0 else f"{row['bid']:.4f}"
            file.write(f"{int(row['event_time'].timestamp() * 1000)}\t{row['device']}\t{row['campaign']}\t{row['store']}\t{bid}\t"
                       f"{str(row['installed']).lower()}\n")  # fmt: skip
