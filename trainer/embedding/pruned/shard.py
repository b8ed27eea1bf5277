"""One host's part of pruned tables that are spread over the hosts of a job."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.embedding.batch_checks import check_batch
from trainer.embedding.batches import IdBatch
from trainer.embedding.cpu.dense_store import join_by_table, join_lookups, one_event
from trainer.embedding.cpu.layout import Bags, TableOrigin, learning_rates
from trainer.embedding.cpu.outputs import OutputPool
from trainer.embedding.cpu.row_parts import read_weights
from trainer.embedding.pruned.engine import PrunedEngine
from trainer.embedding.pruned.tables import PlacedBatch
from trainer.embedding.spec import FeatureSpec
from trainer.planning.row_groups import RowGroup
from trainer.pruning_options import PruningOptions
from transforms.arrays import Array


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
        super().__init__(features, options, seed=seed, threads=threads, held=0, groups=groups, origins=origins)
        self._answers = OutputPool(spare=0.25, kept=answers)

    def read_rows(self, rows: Array, counts: Array) -> Array:
        """See :meth:`CpuEngine.read_rows <trainer.embedding.cpu_engine.CpuEngine.read_rows>`; zeros of a row without a place.

        A row that is read first takes a free place, if there is one.
        """
        placed = self._placed(one_event(rows, counts))
        self.count_lookup(placed)
        out = self._answers.take(int((counts * self._layout.dims).sum()))
        read_weights(placed.bags, self._layout, self.rows.values, out)
        return out

    def update_rows(
        self, asked: Sequence[tuple[Array, Array]], gradients: Sequence[Array], rates: Array | None = None, lookups: Sequence[Array] = ()
    ) -> Array:  # fmt: skip
        """See :meth:`CpuEngine.update_rows <trainer.embedding.cpu_engine.CpuEngine.update_rows>`; then a round may begin.

        ``lookups``: of each part, int32, how often each of its rows was looked up.
        """
        rows, counts, flat = join_by_table(asked, gradients, self._layout.dims)
        number = join_lookups(asked, lookups)
        batch = one_event(rows, counts)
        placed, rates = self._placed(batch), learning_rates(self.tables) if rates is None else rates
        with self.rows.changing(placed.bags, self.rows.group_of):
            distinct = self._updates.apply_rows(
                placed.bags, flat, rates, self.rows.values, self.importance.noted_places(), number
            )
        if placed.missing.any():
            bags = Bags(self.missing_ids(placed), batch.offsets, placed.bags.shares)
            distinct = distinct + self._notes.note_rows(bags, flat, self.importance.noted(), number)
        self.end_step()
        return distinct

    def _placed(self, batch: IdBatch) -> PlacedBatch:
        """The places of rows. Raises :class:`BadBatch` for one outside its table."""
        check_batch(batch, self.features)
        found = self.prepare(batch)
        self.place(found)
        return found
