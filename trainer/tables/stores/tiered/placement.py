"""Which rows of all tables are hot, and what that has cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainer.errors import ConfigError
from trainer.planning.hot_rows import MOVE_LOOKUPS, HotRows
from trainer.tables.spec import TableSpec
from transforms.arrays import Array


@dataclass(slots=True)
class PlacementCounts:
    """What hybrid placement has done since its engine was made.

    Attributes:
        hits, misses: lookups of rows in the memory that trains, and of others.
        distinct_hits, distinct_misses: the same of the distinct rows of each batch.
        rows_in, rows_out: rows that were moved into the memory that trains, and changed ones that were written back.
        moved_bytes: those of both.
        spared_rows, spared_values: rows, and their values, that lookups and updates have not asked the cold tier for.
        decision_secs: what it took to count lookups, to find rows in frames and to decide.
        move_secs: what it took to move rows.
    """

    hits: int = 0
    misses: int = 0
    distinct_hits: int = 0
    distinct_misses: int = 0
    rows_in: int = 0
    rows_out: int = 0
    moved_bytes: int = 0
    spared_rows: int = 0
    spared_values: int = 0
    decision_secs: float = 0.0
    move_secs: float = 0.0

    @property
    def hit_rate(self) -> float:
        """The share of lookups that were hits; 0 without lookups."""
        return self.hits / max(self.hits + self.misses, 1)


@dataclass(frozen=True, slots=True, eq=False)
class TierRows:
    """Distinct rows of all tables, table after table, and the tier that has them.

    Attributes:
        counts: int64, the rows of each table.
        is_hot: whether each row is hot.
        frames: of the hot ones; ``hot_counts``: their numbers by table.
        cold_rows: the others; ``cold_counts``: their numbers by table.
    """

    counts: Array
    is_hot: Array
    frames: Array
    hot_counts: Array
    cold_rows: Array
    cold_counts: Array


@dataclass(frozen=True, slots=True, eq=False)
class TableMoves:
    """The moves of all tables, table after table.

    Attributes:
        rows_in, frames_in: the rows that come, and their frames; ``counts_in``: their numbers by table.
        rows_out, frames_out: the rows that leave, and their frames; ``counts_out``: their numbers by table.
    """

    rows_in: Array
    frames_in: Array
    counts_in: Array
    rows_out: Array
    frames_out: Array
    counts_out: Array


class Placement:
    """The hot rows of ``tables``: those of each table in ``hot_rows`` frames, none where it has no number.

    Raises :class:`ConfigError` for the name of no table, and for numbers below 0.
    """

    def __init__(
        self, tables: Sequence[TableSpec], hot_rows: Mapping[str, int], *, move_lookups: float = MOVE_LOOKUPS
    ) -> None:
        names = [table.name for table in tables]
        for name, number in hot_rows.items():
            if name not in names:
                raise ConfigError("hot_rows must name tables of the engine", value=name, allowed=", ".join(names))
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise ConfigError(f"hot_rows[{name!r}] must be a whole number >= 0", value=number, allowed=">= 0")
        self.frames = tuple(min(hot_rows.get(table.name, 0), table.vocabulary_size) for table in tables)
        self._policies = tuple(
            HotRows(table.vocabulary_size, frames, move_lookups=move_lookups) if frames else None
            for table, frames in zip(tables, self.frames, strict=True)
        )

    def find(self, rows: Array, counts: Array) -> TierRows:
        """Where rows are, of which each table has ``counts``."""
        frames = np.full(len(rows), -1, np.int64)
        for policy, own in zip(self._policies, _ranges(counts), strict=True):
            if policy is not None:
                frames[own] = policy.frames_of(rows[own])
        is_hot = frames >= 0
        hot_counts = np.bincount(np.repeat(np.arange(len(counts)), counts)[is_hot], minlength=len(counts))
        return TierRows(counts, is_hot, frames[is_hot], hot_counts, rows[~is_hot], counts - hot_counts)

    def decide(self, rows: Array, counts: Array, lookups: Array) -> TableMoves:
        """The moves after a batch of distinct rows with the lookups of each; they are taken to be made."""
        coming, leaving = [], []
        for policy, own in zip(self._policies, _ranges(counts), strict=True):
            if policy is None:
                coming.append(_NOTHING)
                leaving.append(_NOTHING)
                continue
            moves = policy.decide(rows[own], lookups[own])
            leaves = moves.rows_out >= 0
            coming.append((moves.rows_in, moves.frames))
            leaving.append((moves.rows_out[leaves], moves.frames[leaves]))
        return TableMoves(*_joined(coming), *_joined(leaving))

    def placed(self) -> tuple[Array, Array, Array]:
        """All hot rows and their frames, table after table, and their numbers by table."""
        held = [_NO_ROWS if policy is None else policy.placed() for policy in self._policies]
        return _joined([(rows, np.arange(len(rows))) for rows in held])


_NO_ROWS = np.zeros(0, np.int64)
_NOTHING = (_NO_ROWS, _NO_ROWS)


def _ranges(counts: Array) -> list[slice]:
    ends = np.cumsum(counts).tolist()
    return [slice(stop - count, stop) for stop, count in zip(ends, counts.tolist(), strict=True)]


def _joined(by_table: list[tuple[Array, Array]]) -> tuple[Array, Array, Array]:
    rows, frames = (np.concatenate(parts) for parts in zip(*by_table, strict=True))
    return rows, frames, np.array([len(one) for one, _ in by_table], np.int64)
