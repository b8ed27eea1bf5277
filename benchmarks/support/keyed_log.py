"""Events and rows of another table with keys and times, in Parquet files, for comparisons with systems that join them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_DAY_US = 86_400 * 10**6


@dataclass(frozen=True, slots=True)
class LogSize:
    """What is drawn.

    Attributes:
        events: their number.
        rows: the number of those of the other table.
        keys: the most different keys.
        skew: the exponent of Zipf-distributed keys; 0 draws them evenly.
    """

    events: int
    rows: int
    keys: int
    skew: float = 0.0

    def __str__(self) -> str:
        """As in the headings of benchmarks."""
        distribution = f"Zipf-distributed keys ({self.skew})" if self.skew else "evenly distributed keys"
        return f"{self.events:,} events x {self.rows:,} rows, {distribution}"


def write_log(folder: Path, size: LogSize, draw: np.random.Generator, *, event_time: str = "time") -> None:
    """Write ``events.parquet`` (key, ``event_time``, event) and ``rows.parquet`` (key, time, value), each in the order of its times."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"key": _keys(draw, size.events, size), event_time: _times(draw, size.events),
                             "event": np.arange(size.events)}), folder / "events.parquet")  # fmt: skip
    pq.write_table(pa.table({"key": _keys(draw, size.rows, size), "time": _times(draw, size.rows),
                             "value": draw.integers(0, 10**6, size.rows)}), folder / "rows.parquet")  # fmt: skip


def _keys(draw: np.random.Generator, number: int, size: LogSize) -> np.ndarray:
    return draw.zipf(size.skew, number) % size.keys if size.skew else draw.integers(0, size.keys, number)


def _times(draw: np.random.Generator, number: int) -> pa.Array:
    """Different times of 30 days, to the millisecond."""
    counted = np.sort(draw.choice(30 * _DAY_US // 1_000, number, replace=False)) * 1_000 + 1_767_225_600 * 10**6
    return pa.array(counted, pa.int64()).cast(pa.timestamp("us", "UTC"))
