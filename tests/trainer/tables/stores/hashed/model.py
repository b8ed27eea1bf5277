"""A slow obvious model of hashed tables: dictionaries for places, and a dense store by row number for values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainer.tables.engine import TableState
from trainer.tables.stores.dense.dense_store import DenseStore
from trainer.tables.stores.hashed.decisions import EXPIRED_ROWS
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.stores.hashed.options import HashedTable
from trainer.tables.stores.hashed.store import HashedStore

Array = np.ndarray[Any, np.dtype[Any]]


def stored(tables: Sequence[HashedTable], *, seed: int, **settings: Any) -> HashedStore:
    """A store of these tables."""
    limits = {
        one.spec.name: TableLimits(
            one.capacity, one.admit_after, one.expire_after_steps, one.candidates, one.candidate_steps
        )
        for one in tables
    }
    return HashedStore([one.spec for one in tables], limits, seed=seed, **settings)


def states_of(store: HashedStore) -> dict[str, TableState]:
    """A copy of all rows, by table name."""
    return {one.name: store.table_state(t) for t, one in enumerate(store.tables)}


@dataclass
class ModelTable:
    """The rows of a table by last use, oldest first, with the step of the last use; and what was counted."""

    options: HashedTable
    rows: OrderedDict[int, int] = field(default_factory=OrderedDict)
    waiting: dict[int, tuple[int, int]] = field(default_factory=dict)
    admitted: int = 0
    evicted: int = 0
    expired: int = 0
    unadmitted: int = 0
    unplaced: int = 0

    def use(self, ids: list[int], step: int) -> tuple[list[int], list[int], set[int]]:
        """Ids of a batch: those that lose their rows, those that get one, and those that have none."""
        batch = sorted(set(ids))
        new, without = [], set()
        space = self.options.places - sum(row in self.rows for row in batch)
        for row in batch:
            if row in self.rows:
                continue
            if not self._is_admitted(row, step):
                self.unadmitted += 1
                without.add(row)
            elif len(new) == space:
                self.unplaced += 1
                self.waiting.pop(row, None)
                without.add(row)
            else:
                self.waiting.pop(row, None)
                new.append(row)
        lost = self._expire(batch, step)
        for row in list(self.rows):
            if len(self.rows) + len(new) <= self.options.places:
                break
            if row not in batch:
                del self.rows[row]
                self.evicted += 1
                lost.append(row)
        for row in batch:
            if row not in without:
                self.rows.pop(row, None)
                self.rows[row] = step
        self.admitted += len(new)
        return lost, new, without

    def _is_admitted(self, row: int, step: int) -> bool:
        if self.options.admit_after == 1:
            return True
        count, last = self.waiting.get(row, (0, step))
        if step - last > self.options.candidate_steps:
            count = 0
        self.waiting[row] = (count + 1, step)
        return count + 1 >= self.options.admit_after

    def _expire(self, batch: list[int], step: int) -> list[int]:
        lost = []
        if self.options.expire_after_steps:
            for row, last in list(self.rows.items()):
                if last + self.options.expire_after_steps >= step or len(lost) == 2 * len(batch) + EXPIRED_ROWS:
                    break
                if row not in batch:
                    del self.rows[row]
                    lost.append(row)
        self.expired += len(lost)
        return lost


class Model:
    """All tables; ids must be small."""

    def __init__(self, options: list[HashedTable], seed: int) -> None:
        self.tables = [ModelTable(one) for one in options]
        self.engine = DenseStore([one.spec for one in options], seed=seed, threads=1)
        self.dims = [one.spec.dim for one in options]
        self.step = 0

    def _use(self, ids: list[list[int]]) -> list[set[int]]:
        self.step += 1
        lost, without = [], []
        for table, own in zip(self.tables, ids, strict=True):
            gone, new, none = table.use(own, self.step)
            lost.append(gone + new)
            without.append(none)
        rows, counts = flat(lost)
        self.engine.release_rows(rows, counts)
        return without

    def update(self, ids: list[list[int]], gradients: list[Array]) -> None:
        """``gradients``: [ids, dim] of each table."""
        without = self._use(ids)
        kept = [[row not in none for row in own] for own, none in zip(ids, without, strict=True)]
        rows, counts = flat(
            [[row for row, keep in zip(own, keeps, strict=True) if keep] for own, keeps in zip(ids, kept, strict=True)]
        )
        values = [own[np.array(keeps, bool)].reshape(-1) for own, keeps in zip(gradients, kept, strict=True)]
        self.engine.update_rows([(rows, counts)], [np.concatenate(values)])

    def counts(self) -> list[tuple[int, ...]]:
        """As :class:`~trainer.tables.stores.hashed.options.HashedCounts`."""
        return [
            (len(one.rows), one.options.places, one.admitted, one.evicted, one.expired, one.unadmitted, one.unplaced)
            for one in self.tables
        ]


def flat(ids: list[list[int]]) -> tuple[Array, Array]:
    """Ids and their numbers by table."""
    return np.array([row for own in ids for row in own], np.int64), np.array([len(own) for own in ids], np.int64)
