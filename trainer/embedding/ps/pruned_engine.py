"""The engine of pruned tables whose values are on parameter servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from trainer.combinations import Setup
from trainer.embedding.batches import IdBatch
from trainer.embedding.pruned.places import group_tables
from trainer.embedding.pruned.row_importance import RowImportance
from trainer.embedding.pruned.tables import PlacedBatch, PrunedTables
from trainer.embedding.ps.engine import PsEngine, ServedBatch
from trainer.embedding.ps.pruned_places import ServedRows
from trainer.embedding.ps.server_link import Connect, ConnectWorker
from trainer.embedding.spec import FeatureSpec
from trainer.embedding.wire.settings import WireSettings
from trainer.pruning_options import PruningOptions
from transforms.arrays import Array


@dataclass(slots=True, eq=False)
class ServedPlaces(PlacedBatch):
    """A batch with its places, and what the servers are asked for by these, once they are known."""

    asked: ServedBatch | None = None
    asked_version: int = -1


class ServedPrunedEngine(PrunedTables[ServedPlaces]):
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
            held=0,
            threads=threads,
            wire=wire,
            overlaps=overlaps,
            combiners=self.of_features.combiner,
            fixed_rows={one.name: one.vocabulary_size - 1 for one in groups},
        )
        assert [one.name for one in self._servers.tables] == [one.name for one in groups]
        self.rows = ServedRows(self._servers, self.addresses)
        self._bounds = tuple(one.vocabulary_size for one in of_groups)
        self.forget()

    def no_importance(self) -> RowImportance:
        """See :class:`PrunedTables`."""
        return RowImportance(self.addresses, self.options, self.seed, self.team)

    def prepare(self, batch: IdBatch) -> ServedPlaces:
        """See :class:`~trainer.embedding.bag_tables.BagTables`."""
        return ServedPlaces(*self.unplaced(batch))

    def begin(self, kept: ServedPlaces) -> Callable[[], Array]:
        """See :meth:`PrunedEngine.begin <trainer.embedding.pruned.engine.PrunedEngine.begin>`."""
        asked = self._asked_of(kept)
        self.count_lookup(kept)
        return self._servers.begin(asked)

    def update(self, kept: ServedPlaces, gradients: Array) -> Iterable[tuple[Array, Array]]:
        """See :meth:`PrunedEngine.update <trainer.embedding.pruned.engine.PrunedEngine.update>`.

        What servers refuse is raised by the next call.
        """
        self._servers.update(self._asked_of(kept), gradients)
        distinct = self.note(kept.batch.ids, kept, gradients)
        self.end_step()
        return [(kept.batch.offsets, distinct)]

    def _asked_of(self, kept: ServedPlaces) -> ServedBatch:
        """What servers are asked for of a batch: the same for a lookup and its update, unless rows have moved between them."""
        self.place(kept)
        self.rows.flush()
        if kept.asked is None or kept.asked_version != kept.version:
            places = IdBatch(kept.bags.ids, kept.batch.offsets, kept.batch.weights, self._bounds)
            kept.asked, kept.asked_version = self._servers.prepare(places), kept.version
        return kept.asked

    def prune(self) -> None:
        """See :class:`PrunedTables`. Lookups that are on their way end first: places have other rows afterwards."""
        self.rows.flush()
        self._servers.finish()
        super().prune()

    @property
    def direct(self) -> PsEngine:
        """See :class:`~trainer.embedding.ps.served_engine.ServedEngine`: its tables are the places of groups."""
        return self._servers

    def connect(self, servers: Sequence[Connect], worker: ConnectWorker | None = None, *, keeps_rows: bool) -> None:
        """See :class:`~trainer.embedding.ps.served_engine.ServedEngine`; places stay."""
        self._servers.connect(servers, worker, keeps_rows=keeps_rows)
        self.forget_batches()

    def open(self) -> None:
        """See :class:`~trainer.embedding.ps.served_engine.ServedEngine`. The rows are those that this engine has loaded: it is the only one."""
        self._servers.open()
        self.forget_batches()

    def finish(self) -> None:
        """Wait until the servers have made all updates. Raises what they refused."""
        self.rows.flush()
        self._servers.finish()

    def close(self) -> None:
        """End the connections."""
        self._servers.close()
