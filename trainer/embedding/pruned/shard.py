"""One host's part of pruned tables that are spread over the hosts of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trainer.embedding.cpu.engine import join_by_table, one_event
from trainer.embedding.cpu.layout import Bags, TableOrigin, learning_rates
from trainer.embedding.cpu.outputs import OutputPool
from trainer.embedding.cpu.row_parts import join_parts, read_weights
from trainer.embedding.pruned.engine import PrunedEngine
from trainer.embedding.spec import FeatureSpec
from trainer.errors import BadBatch
from trainer.planning.row_groups import RowGroup
from trainer.pruning_options import PruningOptions

Array = np.ndarray[Any, np.dtype[Any]]


class PrunedShard(PrunedEngine):
    """The rows of one host, of which the most important ones have places among those that this host has.

    For an engine with one feature a table: hosts ask for rows, and send the gradients of rows with their lookups, so that a row is as important
    as if one process had looked up the batches of all hosts. The rounds of a host are its own.

    Args:
        groups: of the tables, with the places of this host.
        origins: of each table, the part of a whole table that it is.
        answers: arrays of :meth:`read_rows` that are in use at once.
    """

    needs_lookups = True

    def __init__(
        self, features: Sequence[FeatureSpec], options: PruningOptions, *, seed: int, groups: Sequence[RowGroup],
        origins: Sequence[TableOrigin], threads: int = 0, answers: int = 1,
    ) -> None:  # fmt: skip
        super().__init__(features, options, seed=seed, threads=threads, held=1, groups=groups, origins=origins)
        self._answers = OutputPool(spare=0.25, kept=answers)

    def read_rows(self, rows: Array, counts: Array) -> Array:
        """See :meth:`CpuEngine.read_rows <trainer.embedding.cpu.engine.CpuEngine.read_rows>`; zeros of a row without a place.

        A row that is read first takes a free place, if there is one.
        """
        placed = self.places_of(one_event(rows, counts))
        self.count_lookup(placed)
        out = self._answers.take(int((counts * self._layout.dims).sum()))
        read_weights(placed.bags, self._layout, self.rows.values, out)
        return out

    def update_rows(
        self, asked: Sequence[tuple[Array, Array]], gradients: Sequence[Array], rates: Array | None = None, lookups: Sequence[Array] = ()
    ) -> Array:  # fmt: skip
        """See :meth:`CpuEngine.update_rows <trainer.embedding.cpu.engine.CpuEngine.update_rows>`; then a round may begin.

        ``lookups``: of each part, int32, how often each of its rows was looked up.
        """
        rows, counts, flat = join_by_table(asked, gradients, self._layout.dims)
        for (own, _), numbers in zip(asked, lookups, strict=True):
            if numbers.dtype != np.int32 or numbers.shape != own.shape:
                raise BadBatch("lookups must be one number for each row", value=f"{numbers.dtype} {numbers.shape}",
                               allowed=f"int32 {own.shape}")  # fmt: skip
        number = lookups[0]
        if len(asked) > 1:
            of_parts = np.stack([own for _, own in asked]).astype(np.int64, copy=False)
            every = np.concatenate([own for own, _ in asked])
            _, _, number = join_parts(every, of_parts, np.concatenate(lookups), np.ones_like(self._layout.dims))
        batch = one_event(rows, counts)
        placed, rates = self.places_of(batch), learning_rates(self.tables) if rates is None else rates
        with self.rows.changing(placed.bags, self.rows.group_of):
            distinct = self._updates.apply_rows(
                placed.bags, flat, rates, self.rows.values, self.importance.noted_places(), number
            )
        if placed.missing.any():
            bags = Bags(self.missing_ids(placed), batch.offsets, placed.bags.shares)
            distinct = distinct + self._notes.note_rows(bags, flat, self.importance.noted(), number)
        self.end_step(batch, distinct)
        return distinct
