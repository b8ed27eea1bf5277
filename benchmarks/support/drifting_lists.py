"""A log whose lists change their lengths one night: half of the features have long lists before it, and others after it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.support.quality_logs import write_hours
from headrace import Model, ragged
from trainer.planning.row_frequencies import RowFrequencies
from trainer.planning.tables import FeatureLoad, TableFacts

#: Features, the rows of each table, and the ids of long lists; others have one.
FEATURES, ROWS, LONG = 16, 50_000, 10
DIM = 64


def names() -> list[str]:
    """The features."""
    return [f"list_{k:02d}" for k in range(FEATURES)]


def facts(long: Sequence[str]) -> tuple[TableFacts, ...]:
    """What a planner knows of the tables while ``long`` features have long lists. The optimizer is Adagrad by row."""
    return tuple(
        TableFacts(
            name,
            ROWS,
            DIM,
            0,
            1,
            "",
            (FeatureLoad(name, float(LONG if name in long else 1), RowFrequencies.power_law(ROWS, 0.0)),),
        )
        for name in names()
    )


def write_lists(folder: Path, hours: int, rows: int, long: Sequence[Sequence[str]], seed: int = 1) -> None:
    """Write hours of events; ``long``: of each hour, the features with long lists. Labels follow one feature."""
    for hour in range(hours):
        source = np.random.default_rng((seed, hour))
        times = hour * 3600.0 + np.sort(source.random(rows)) * 3600.0
        columns: dict[str, pa.Array] = {}
        odds = np.zeros(rows)
        for name in names():
            length = LONG if name in long[hour] else 1
            ids = source.integers(0, ROWS, rows * length)
            offsets = np.arange(0, rows * length + 1, length, dtype=np.int32)
            columns[name] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids))
            odds += 0.5 * (ids[offsets[:-1]] % 2) - 0.25
        columns["clicked"] = pa.array((source.random(rows) < 1 / (1 + np.exp(-odds))).astype(np.int64))
        write_hours(folder, times, columns)


def lists_model() -> Model:
    """A model with all features."""
    made = Model("lists", client="drift", label="clicked", table="lists")
    for name in names():
        made.input(name, ragged(name, "int64").hash_buckets(ROWS))
    return made
