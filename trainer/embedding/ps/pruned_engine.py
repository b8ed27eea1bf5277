"""The engine of pruned tables whose values are on parameter servers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trainer.combinations import Setup
from trainer.embedding.batches import IdBatch
from trainer.embedding.pruned.places import group_tables
from trainer.embedding.pruned.row_importance import RowImportance
from trainer.embedding.pruned.tables import PlacedBatch, PrunedTables
from trainer.embedding.ps.engine import PsEngine
from trainer.embedding.ps.pruned_places import ServedRows
from trainer.embedding.ps.server_link import Connect
from trainer.embedding.spec import FeatureSpec
from trainer.embedding.wire.settings import WireSettings
from trainer.pruning_options import PruningOptions

Array = np.ndarray[Any, np.dtype[Any]]


class ServedPrunedEngine(PrunedTables):
    """As :class:`~trainer.embedding.pruned.engine.PrunedEngine`, with the same bits, and the values of places on servers.

    Addresses and importance, 8 bytes per row, are in this process, which must be the only client of its servers. A batch takes one fetch and one
    update message for each of them, and one that writes values where rows get places.

    Args:
        features: the features, in the order of batches.
        options: the budget, and how rows are chosen.
        seed: what initial weights and samples are drawn from.
        servers: connect to them. What they have of other tables is lost.
        threads: threads of the loops; 0 for one a processor.
        held: batches between a lookup and its update, for which it keeps what both need.
        wire: how rows and values of fetches and updates are encoded; values of rows that get places are sent as they are.
        overlaps: whether several lookups may be on their way at once; a round waits for them.

    Raises :class:`ConfigError` as that engine does, and :class:`~trainer.errors.ServerLost`.
    """

    rows: ServedRows
    setup = Setup(servers=True, pruned=True)

    def __init__(
        self, features: Sequence[FeatureSpec], options: PruningOptions, *, seed: int, servers: Sequence[Connect], threads: int = 0,
        held: int = 2, wire: WireSettings | None = None, overlaps: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(features, options, seed=seed, threads=threads, held=held)
        groups = group_tables(self.tables, self.groups)
        of_groups = [groups[g] for g in self.addresses.group_of[self.of_features.table].tolist()]
        self._servers = PsEngine(
            [replace(one, table=of) for one, of in zip(self.features, of_groups, strict=True)],
            seed=seed,
            servers=servers,
            held=held,
            threads=threads,
            wire=wire,
            overlaps=overlaps,
            combiners=self.of_features.combiner,
            fixed_rows={one.name: one.vocabulary_size - 1 for one in groups},
        )
        assert [one.name for one in self._servers.tables] == [one.name for one in groups]
        self.rows = ServedRows(self._servers, self.addresses)
        self._bounds = tuple(one.vocabulary_size for one in of_groups)
        self._asked: deque[tuple[PlacedBatch, IdBatch]] = deque(maxlen=held)
        self.forget()

    def no_importance(self) -> RowImportance:
        """See :class:`PrunedTables`."""
        return RowImportance(self.addresses, self.options, self.seed, self.team)

    def forget(self) -> None:
        """See :class:`PrunedTables`; values on servers stay until others are loaded."""
        super().forget()
        self._asked.clear()

    def lookup(self, batch: IdBatch) -> Array:
        """See :meth:`PrunedEngine.lookup <trainer.embedding.pruned.engine.PrunedEngine.lookup>`."""
        return self.begin_lookup(batch)()

    def begin_lookup(self, batch: IdBatch) -> Callable[[], Array]:
        """See :meth:`PsEngine.begin_lookup <trainer.embedding.ps.engine.PsEngine.begin_lookup>`."""
        placed = self.places_of(batch)
        self.count_lookup(placed)
        self.rows.flush()
        return self._servers.begin_lookup(self._asked_of(placed))

    def apply_gradients(self, batch: IdBatch, gradients: Array) -> None:
        """See :meth:`PrunedEngine.apply_gradients <trainer.embedding.pruned.engine.PrunedEngine.apply_gradients>`.

        What servers refuse is raised by the next call.
        """
        flat = self.checked_gradients(batch, gradients)
        placed = self.places_of(batch)
        self.rows.flush()
        self._servers.apply_gradients(self._asked_of(placed), gradients)
        self.end_step(batch, self.note(batch.ids, placed, flat))

    def _asked_of(self, placed: PlacedBatch) -> IdBatch:
        """What servers are asked for of a batch: the same object for a lookup and its update."""
        for known, asked in self._asked:
            if known is placed:
                return asked
        batch = IdBatch(placed.bags.ids, placed.batch.offsets, placed.batch.weights, self._bounds)
        self._asked.append((placed, batch))
        return self._asked[-1][1]

    def prune(self) -> None:
        """See :class:`PrunedTables`. Lookups that are on their way end first: places have other rows afterwards."""
        self.rows.flush()
        self._servers.finish()
        super().prune()

    def connect(self, servers: Sequence[Connect], *, keeps_rows: bool) -> None:
        """See :meth:`PsEngine.connect <trainer.embedding.ps.engine.PsEngine.connect>`; places stay."""
        self._servers.connect(servers, keeps_rows=keeps_rows)
        self._asked.clear()

    def open(self) -> None:
        """See :class:`~trainer.embedding.ps.served_engine.ServedEngine`. The rows are those that this engine has loaded: it is the only one."""
        self._servers.open()
        self._asked.clear()

    def finish(self) -> None:
        """Wait until the servers have made all updates. Raises what they refused."""
        self.rows.flush()
        self._servers.finish()

    def close(self) -> None:
        """End the connections."""
        self._servers.close()
