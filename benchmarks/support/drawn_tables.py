"""Embedding tables and partition plans drawn at random, and batches whose ids follow the tables' power laws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.planning.row_frequencies import RowFrequencies
from trainer.planning.tables import FeatureLoad, TableFacts
from trainer.tables import SGD, Adagrad, FeatureSpec, IdBatch, TableSpec

Array = np.ndarray[Any, np.dtype[Any]]

#: The columns of tables that are drawn.
DIMS = (8, 16, 32, 64, 128)
_MOST_FLOATS = 40_000_000
_MOST_IDS = 300_000
_MOST_REPLICATED_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class DrawnTable:
    """A table with one feature: ``ids`` ids an event, drawn from ``rows`` rows by a power law of exponent ``skew``."""

    rows: int
    columns: int
    ids: int
    skew: float


@dataclass(frozen=True, slots=True)
class DrawnSet:
    """Tables of one model with ``events`` events a step on each core; rows have slots of Adagrad, or none."""

    tables: tuple[DrawnTable, ...]
    events: int
    has_slots: bool

    def names(self) -> list[str]:
        """The tables' names, in order."""
        return [f"t{t}" for t in range(len(self.tables))]

    def facts(self) -> tuple[TableFacts, ...]:
        """The tables as the planner takes them, with their true frequencies."""
        return tuple(
            TableFacts(name, one.rows, one.columns, int(self.has_slots), 0, "drawn",
                       (FeatureLoad(name, float(one.ids), RowFrequencies.power_law(one.rows, one.skew)),))
            for name, one in zip(self.names(), self.tables, strict=True)
        )  # fmt: skip

    def features(self) -> list[FeatureSpec]:
        """The features of an engine."""
        optimizer = Adagrad(0.01) if self.has_slots else SGD(0.01)
        return [
            FeatureSpec(name, TableSpec(name, one.rows, one.columns, optimizer, "sum"))
            for name, one in zip(self.names(), self.tables, strict=True)
        ]

    def batches(self, count: int, seed: int) -> list[IdBatch]:
        """``count`` batches of one core."""
        rng = np.random.default_rng(seed)
        ids = [_power_law_ids(one, count * self.events, rng).reshape(count, -1) for one in self.tables]
        starts = np.cumsum([0, *(self.events * one.ids for one in self.tables)])
        offsets = np.stack(
            [start + one.ids * np.arange(self.events + 1) for start, one in zip(starts, self.tables, strict=False)]
        )
        bounds = tuple(one.rows for one in self.tables)
        return [
            IdBatch(np.concatenate([one[k] for one in ids]), offsets.astype(np.int64), None, bounds)
            for k in range(count)
        ]


def _power_law_ids(table: DrawnTable, events: int, rng: np.random.Generator) -> Array:
    ends = np.cumsum(np.arange(1, table.rows + 1, dtype=np.float64) ** -table.skew)
    drawn = rng.random(events * table.ids) * ends[-1]
    return np.minimum(np.searchsorted(ends, drawn), table.rows - 1).astype(np.int64)


def drawn_set(rng: np.random.Generator, *, dims: Sequence[int] = DIMS, most_tables: int = 200) -> DrawnSet:
    """A set of 2 to ``most_tables`` tables of 1,000 to 1,000,000 rows, with ``dims`` columns and 1 to 40 ids an event."""
    tables: list[DrawnTable] = []
    floats = 0
    for _ in range(round(2 * (most_tables / 2) ** rng.random())):
        columns = int(rng.choice(dims))
        rows = min(int(10 ** rng.uniform(3, 6)), (_MOST_FLOATS - floats) // columns)
        if rows >= 1000:
            tables.append(DrawnTable(rows, columns, int(40 ** rng.random()), float(rng.uniform(0.0, 1.3))))
            floats += rows * columns
    most_events = _MOST_IDS // sum(one.ids for one in tables)
    return DrawnSet(tuple(tables), int(min(2 ** rng.uniform(7, 11), most_events)), bool(rng.random() < 0.7))


def drawn_plan(tables: Sequence[TableFacts], cores: int, rng: np.random.Generator) -> PartitionPlan:
    """A plan with a way for each table that is drawn at random."""
    return PartitionPlan(cores, tuple(_drawn_way(table, cores, rng) for table in tables))


def _drawn_way(table: TableFacts, cores: int, rng: np.random.Generator) -> TablePlan:
    order = tuple(int(core) for core in rng.permutation(cores))
    way = rng.choice(("table", "rows", "blocks", "columns", "copies"), p=(0.35, 0.25, 0.1, 0.2, 0.1))
    slices: tuple[Slice, ...] = (Slice(0, table.columns, order[:1]),)
    if way == "rows":
        slices = (Slice(0, table.columns, order),)
    if way == "blocks":
        cuts = sorted(int(cut) for cut in rng.integers(1, table.rows, cores - 1))
        slices = (Slice(0, table.columns, order, (*cuts, table.rows)),)
    if way == "columns" and table.columns >= 16:
        half = table.columns // 2
        slices = tuple(Slice(k * half, half, (int(rng.integers(cores)),)) for k in range(2))
    is_replicated = bool(way == "copies" and table.rows <= _MOST_REPLICATED_ROWS)
    if is_replicated:
        slices = (Slice(0, table.columns, tuple(range(cores))),)
    return TablePlan(table.name, table.rows, table.columns, slices, is_replicated)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's, of values without ties."""
    places = [np.argsort(np.argsort(np.array(one))).astype(float) for one in (first, second)]
    found = float(np.corrcoef(places[0], places[1])[0, 1])
    return found if math.isfinite(found) else 0.0
