"""A log of events and a table of clicks, hour by hour, and what each event sees, computed row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

START_SECS = 1_767_225_600  # 2026-01-01
HOUR_SECS = 3_600
_TIMES = pa.timestamp("us")


def written(root: Path, hour: int, columns: dict[str, Any], name: str = "part.parquet") -> Path:
    """One file of one hour of 2026-01-01."""
    folder = root / "date=2026-01-01" / f"hour={hour:02d}"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / name)
    return folder / name


def at(hour: int, secs: Sequence[float]) -> pa.Array:
    """Times of an hour of 2026-01-01, so many seconds after its begin."""
    return pa.array([int((START_SECS + hour * HOUR_SECS + one) * 1e6) for one in secs], pa.int64()).cast(_TIMES)


def events(hour: int, rows: int = 20) -> dict[str, Any]:
    """Events of one hour: whose user they are of, when they were, and whether they were clicked."""
    draw = np.random.default_rng(hour)
    return {
        "at": at(hour, sorted(draw.integers(0, HOUR_SECS, rows).tolist())),
        "user": pa.array(draw.integers(0, 5, rows), pa.int64()),
        "clicked": pa.array(draw.random(rows) < 0.3),
    }


def clicks(hour: int, rows: int = 30, seed: int = 100) -> dict[str, Any]:
    """Clicks of one hour, with what was paid."""
    draw = np.random.default_rng(seed + hour)
    return {
        "time": at(hour, draw.integers(0, HOUR_SECS, rows).tolist()),
        "id": pa.array(draw.integers(0, 5, rows), pa.int64()),
        "paid": pa.array(np.round(draw.random(rows) * 10, 2)),
        "country": pa.array([("de", "fr", "it")[one] for one in draw.integers(0, 3, rows)]),
    }


@dataclass(frozen=True)
class Folders:
    """The folders of the two tables."""

    log: Path
    clicks: Path


def write_tables(root: Path, hours: int = 3) -> Folders:
    """Both tables with so many hours."""
    for hour in range(hours):
        written(root / "log", hour, events(hour))
        written(root / "clicks", hour, clicks(hour))
    return Folders(root / "log", root / "clicks")


def counted(own: pa.Table, other: pa.Table, window_secs: float | None = None) -> list[int]:
    """For each event the clicks of its user before it."""
    rows = list(zip(other["id"].to_pylist(), other["time"].cast(pa.int64()).to_pylist(), strict=True))
    found = []
    for user, time in zip(own["user"].to_pylist(), own["at"].cast(pa.int64()).to_pylist(), strict=True):
        low = -np.inf if window_secs is None else time - window_secs * 1e6
        found.append(sum(one == user and low <= moment < time for one, moment in rows))
    return found
