"""The changed rows of several stores at one moment, as those of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from trainer.tables.engine import ChangedRows, SnapshotSections
from trainer.tables.hashed_history import KeptHistory
from trainer.tables.stores.row_store import KeptSnapshot, StoreSnapshot
from transforms.arrays import Array


class PartPlaces:
    """Which store has which saved part: the tables in their order, then what stores have beside theirs, store after store.

    Args:
        tables: the positions of the tables of each store.
        beside: the saved parts that each has beside its tables.
    """

    def __init__(self, tables: Sequence[Sequence[int]], beside: Sequence[int]) -> None:
        of_tables = {t: (k, number) for k, own in enumerate(tables) for number, t in enumerate(own)}
        of_others = [(k, len(tables[k]) + one) for k, count in enumerate(beside) for one in range(count)]
        self._of = [*(of_tables[t] for t in range(len(of_tables))), *of_others]
        self._tables = len(of_tables)

    def of(self, part: int) -> tuple[int, int]:
        """The store of a part, and its number there."""
        return self._of[part]

    def of_tables(self, of_stores: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """The numbers of all tables, from those of each store's tables."""
        return self.of_parts(of_stores)[: self._tables]

    def of_parts(self, of_stores: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """The numbers of all saved parts that each store has numbers for, in their order."""
        return tuple(int(of_stores[k][number]) for k, number in self._of if number < len(of_stores[k]))


class JoinedSnapshot:
    """See :class:`~trainer.tables.stores.row_store.StoreSnapshot`: the snapshots ``own`` of all stores."""

    def __init__(self, places: PartPlaces, own: Sequence[StoreSnapshot]) -> None:
        self._places, self._own = places, tuple(own)

    @property
    def counts(self) -> tuple[int, ...]:
        """The changed rows of each table."""
        return self._places.of_tables([one.counts for one in self._own])

    def _of(self, t: int) -> tuple[StoreSnapshot, int]:
        k, number = self._places.of(t)
        return self._own[k], number

    def table(self, t: int) -> Iterator[ChangedRows]:
        """The changed rows of a table, range by range."""
        snapshot, own = self._of(t)
        return snapshot.table(own)

    def sections(self, t: int) -> SnapshotSections:
        """What a table has beside its rows."""
        snapshot, own = self._of(t)
        return snapshot.sections(own)

    def capture(self, t: int, first: int, stop: int) -> ChangedRows:
        """The changed rows of a table from ``first`` to ``stop``."""
        snapshot, own = self._of(t)
        return snapshot.capture(own, first, stop)

    def skip(self, t: int) -> None:
        """Leave out a table that is not read."""
        snapshot, own = self._of(t)
        snapshot.skip(own)

    def close(self) -> None:
        """End the snapshot."""
        for one in self._own:
            one.close()


class JoinedKeptSnapshot:
    """See :class:`~trainer.tables.stores.row_store.KeptSnapshot`: the snapshots ``own`` of all stores, by saved parts."""

    def __init__(self, places: PartPlaces, own: Sequence[KeptSnapshot]) -> None:
        self._places, self._own = places, tuple(own)

    @property
    def counts(self) -> tuple[int, ...]:
        """The rows of each saved part."""
        return self._places.of_parts([one.counts for one in self._own])

    @property
    def sizes(self) -> Array:
        """The rows that each saved part may have, int64; of a hashed table its ranks."""
        return np.array(self._places.of_parts([one.sizes.tolist() for one in self._own]), np.int64)

    @property
    def is_done(self) -> bool:
        """Whether one of them was closed: the others have no moment in common with it any more."""
        return any(one.is_done for one in self._own)

    def _of(self, part: int) -> tuple[KeptSnapshot, int]:
        k, number = self._places.of(part)
        return self._own[k], number

    def noted(self, t: int, first: int, stop: int) -> Array | None:
        """By what changes of the rows of a range of a saved part are noted."""
        snapshot, own = self._of(t)
        return snapshot.noted(own, first, stop)

    def absent(self, t: int, rows: Array) -> Array:
        """Those of some ascending rows or ids that a saved part had not."""
        snapshot, own = self._of(t)
        return snapshot.absent(own, rows)

    def read(self, t: int, first: int, stop: int, chosen: Array | None = None) -> ChangedRows:
        """The changed rows of a range of a saved part; ``chosen``: a mask over :meth:`noted`."""
        snapshot, own = self._of(t)
        return snapshot.read(own, first, stop, chosen)

    def ages(self, t: int, first: int, stop: int) -> Array | None:
        """The ages of the rows of a range of a hashed table; None for another part."""
        snapshot, own = self._of(t)
        return snapshot.ages(own, first, stop)

    def history(self, t: int) -> KeptHistory:
        """What a table had beside its rows."""
        snapshot, own = self._of(t)
        return snapshot.history(own)

    def leave(self, t: int, stop: int) -> None:
        """Keep the rows of a saved part below ``stop`` no longer."""
        snapshot, own = self._of(t)
        snapshot.leave(own, stop)

    def close(self) -> None:
        """End the snapshot: training that waits for it goes on."""
        for one in self._own:
            one.close()
