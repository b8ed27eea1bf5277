"""Step d with sums in place of rows: each owner adds its own rows of a bag, and the worker with the bags adds what all owners have added.

It is the reduce-scatter inside a host of Luo et al., MLSys 2024, section 3.1. A bag is added owner after owner, so its bits are not those of
the flat exchange. Sums are fewer bytes than rows where bags are long and the workers of a tower few. Rows must be spread cyclically.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainer.tables.batches import IdBatch
from trainer.tables.kernels.layout import feature_layout
from trainer.tables.kernels.lookup import shares_of
from trainer.tables.kernels.threads import Team
from trainer.tables.routes.partitioned.gathered_rows import GatheredRows, lookups_of
from trainer.tables.routes.partitioned.requests import RequestMaker, Requests, asked_layout
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.towers.bag_shards import bags_of_owners
from trainer.tables.routes.towers.peer_messages import joined_batch
from trainer.tables.spec import COMBINERS, FeatureSpec, TableSpec
from trainer.tables.stores.row_store import RowStore
from trainer.tables.wire.encoded_values import check_encoded, decoded, encoded
from transforms.arrays import Array
from transforms.errors import DataError

#: Rows with their numbers by table, their summed gradients, and their lookups if the store needs them.
RowUpdate = tuple[tuple[Array, Array], Array, Array | None]


@dataclass(slots=True, eq=False)
class Beside:
    """Arrays that pass in the messages of a step beside its own.

    Attributes:
        sent: to each worker of the tower.
        received: from each; set by the step.
    """

    sent: Sequence[Sequence[Array]]
    received: Sequence[Sequence[Array]] = ()


@dataclass(frozen=True, slots=True, eq=False)
class SummedBags:
    """The bags of one worker whose sums its owners give.

    Attributes:
        events: of the worker.
        columns: those of the activations that are sums.
        scales: float32 [events, columns]: what the sum of each bag is multiplied by.
    """

    events: int
    columns: Array
    scales: Array


@dataclass(frozen=True, slots=True, eq=False)
class OwnedBags:
    """What one worker of the tower has asked this one to add.

    Attributes:
        requests: its bags, of the rows that are here.
        columns: those of the activations that it gets.
    """

    requests: Requests
    columns: Array


class PartialSums:
    """What one worker of a tower adds for the others, and they for it.

    Args:
        features: of the tower.
        shards: the worker's part of each table, in the order of ``store``.
        owners: the workers of the tower.
        store: has the rows.
        flag: how values are encoded, see :mod:`~trainer.tables.wire.encoded_values`.
    """

    def __init__(
        self, features: Sequence[FeatureSpec], shards: Sequence[TableSpec], *, owners: int, seed: int, hashed: Sequence[str], store: RowStore,
        team: Team, flag: int,
    ) -> None:  # fmt: skip
        names = [one.name for one in shards]
        of_shards = [
            replace(one, table=replace(shards[names.index(one.table.name)], combiner="sum")) for one in features
        ]
        added = [replace(one, combiner="sum") for one in shards]
        self._of_features = feature_layout(of_shards, added)
        self._combiners = np.array([COMBINERS.index(one.table.combiner) for one in features], np.int64)
        layout = asked_layout(self._of_features, added, seed, hashed)
        self._parts = TableParts(added, 1, None)
        self._maker = RequestMaker(of_shards, self._of_features, layout, parts=self._parts, core=0, team=team)
        self.width = sum(one.width for one in features)
        self._gathered = GatheredRows(self._of_features, layout, self.width, team)
        self._widths = np.array([one.width for one in features], np.int64)
        self._owners, self._store, self._flag = owners, store, flag
        self._bounds = np.array([one.table.vocabulary_size for one in of_shards], np.int64)

    def ask(self, batch: IdBatch, chosen: Array) -> tuple[SummedBags, list[list[Array]]]:
        """The bags of the ``chosen`` features, and what each owner is asked to add: ids, lengths, the features, and shares if bags are weighted."""
        positions = np.flatnonzero(chosen)
        offsets = batch.offsets[positions]
        shares = None
        if batch.weights is not None:
            shares = shares_of(batch.weights, batch.offsets, self._combiners)
        messages = [
            [ids, lengths, positions.astype(np.int32), *(() if own is None else (own,))]
            for ids, lengths, own in bags_of_owners(batch.ids, offsets, shares, self._owners)
        ]
        return SummedBags(batch.rows, self._columns(positions), self._scales(batch, positions)), messages

    def received(self, message: Sequence[Array], where: str) -> OwnedBags:
        """What a message of :meth:`ask` asks for. Raises :class:`DataError` for one that does not fit; ``where``: names the sender."""
        if (
            not 3 <= len(message) <= 4
            or [one.dtype for one in message[:3]] != [np.int64, np.int32, np.int32]
            or any(one.ndim != 1 for one in message)
        ):
            raise DataError("a request for sums must be int64 ids, int32 lengths, int32 features and perhaps shares", where=where,
                            value=", ".join(str(one.dtype) for one in message) or "no array", allowed="int64, int32, int32, float32")  # fmt: skip
        ids, lengths, positions = message[:3]
        count = len(positions)
        if count and not (positions[0] >= 0 and (np.diff(positions) > 0).all() and positions[-1] < len(self._bounds)):
            raise DataError("the features of a request must ascend and be those of the tower", where=where, value=positions.tolist(),
                            allowed=f"0 to {len(self._bounds) - 1}")  # fmt: skip
        if (
            len(lengths) % max(count, 1)
            or (len(lengths) and (not count or lengths.min() < 0))
            or int(lengths.sum(dtype=np.int64)) != len(ids)
        ):
            raise DataError("the lengths of bags must add up to the number of ids", where=where, value=f"{len(lengths)} lengths, {len(ids)} ids",
                            allowed=f"lengths >= 0 of the bags of {count} features, whose sum is the number of ids")  # fmt: skip
        shares = message[3] if len(message) == 4 else None
        if shares is not None and (shares.dtype != np.float32 or shares.shape != ids.shape):
            raise DataError("the shares of ids must be float32, one for each id", where=where, value=f"{shares.dtype} {shares.shape}", allowed=f"float32 {ids.shape}")  # fmt: skip
        events = len(lengths) // max(count, 1)
        all_lengths = np.zeros((len(self._bounds), events), np.int64)
        all_lengths[positions] = lengths.reshape(count, events)
        sizes = all_lengths.sum(axis=1)
        if len(ids) and not (ids.min() >= 0 and (ids < np.repeat(self._bounds, sizes)).all()):
            raise DataError("an id of a request must be one of its owner's rows", where=where, value=(int(ids.min()), int(ids.max())),
                            allowed=f"0 to {self._bounds.max() - 1}")  # fmt: skip
        return OwnedBags(
            self._maker.make(joined_batch([ids], all_lengths, None if shares is None else [shares], None)),
            self._columns(positions),
        )

    def sums(self, asked: OwnedBags) -> Array:
        """The sums of this owner's rows, as they are sent."""
        requests = asked.requests
        values = self._store.read_rows(requests.reads.rows, requests.reads.counts[0])
        found = self._gathered.combine(requests, np.asarray(values, np.float32))
        return encoded(np.ascontiguousarray(found[:, asked.columns]).reshape(-1), self._flag)

    def add(self, bags: SummedBags, messages: Sequence[Sequence[Array]], activations: Array) -> None:
        """Write the combined bags to their columns of ``activations``, from the sums of all owners. Raises :class:`DataError`."""
        size = bags.events * len(bags.columns)
        total = np.zeros(size, np.float32)
        for owner, message in enumerate(messages):
            check_encoded(message, [size], self._flag, f"worker {owner}")
            total += decoded(message[0], size, self._flag)
        activations[:, bags.columns] = total.reshape(bags.events, len(bags.columns)) * bags.scales

    def gradients(self, bags: SummedBags, by_activations: Array) -> Array:
        """What each owner gets of the gradients of all activations, float32 [events, width]."""
        return encoded((by_activations[:, bags.columns] * bags.scales).reshape(-1), self._flag)

    def update(self, asked: OwnedBags, message: Sequence[Array], where: str) -> RowUpdate:
        """What a message of :meth:`gradients` changes. Raises :class:`DataError` for values of another size."""
        requests = asked.requests
        events, layout = requests.batch.rows, requests.layout
        size = events * len(asked.columns)
        check_encoded(message, [size], self._flag, where)
        matrix = np.zeros((events, self.width), np.float32)
        matrix[:, asked.columns] = decoded(message[0], size, self._flag).reshape(events, len(asked.columns))
        sums = np.empty(int((layout.vocabulary * layout.dims).sum()), np.float32)
        self._gathered.sum_gradients(requests, matrix.reshape(-1), sums)
        lookups = lookups_of(requests, self._of_features, self._parts) if self._store.needs_lookups else None
        return (requests.reads.rows, requests.reads.counts[0]), sums, lookups

    def _columns(self, positions: Array) -> Array:
        """The columns of these features."""
        ends = np.cumsum(self._widths)
        return np.concatenate([np.zeros(0, np.int64), *(np.arange(ends[f] - self._widths[f], ends[f]) for f in positions)])  # fmt: skip

    def _scales(self, batch: IdBatch, positions: Array) -> Array:
        """What the sums of bags without weights are multiplied by; those of weighted ones have their shares already."""
        counts = np.maximum(np.diff(batch.offsets[positions], axis=1), 1).astype(np.float32)
        by_bag = np.ones((len(positions), batch.rows), np.float32)
        if batch.weights is None:
            for k, f in enumerate(positions):
                if COMBINERS[self._combiners[f]] != "sum":
                    by_bag[k] = 1 / (counts[k] if COMBINERS[self._combiners[f]] == "mean" else np.sqrt(counts[k]))
        found: Array = np.repeat(by_bag.T, self._widths[positions], axis=1)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class ReturnedSums:
    """The way back of step d: gradients of the bags that owners have added.

    Attributes:
        sums: of this worker.
        owned: what each worker has asked it to add.
        beside: its gradients to the owners, and theirs.
    """

    sums: PartialSums
    owned: Sequence[OwnedBags]
    beside: Beside

    def asked(self) -> list[tuple[Array, Array]]:
        """The rows of each worker's bags that are here, with their numbers by table."""
        return [(one.requests.reads.rows, one.requests.reads.counts[0]) for one in self.owned]

    def updates(self) -> list[RowUpdate]:
        """Those of each worker's bags, once gradients have been received. Raises :class:`DataError`."""
        pairs = enumerate(zip(self.owned, self.beside.received, strict=True))
        return [self.sums.update(one, message, f"worker {place}") for place, (one, message) in pairs]
