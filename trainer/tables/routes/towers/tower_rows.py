"""The steps of the tower transform inside a tower: the shuffle of requests (b), the lookup (c), and the shuffle back (d).

A worker of a tower has requests for several *units*: the bags of one source, or of all its sources joined. Rows of a table that is split by rows
or columns are on several workers of the tower; they come to the worker with the bags, which combines them. So activations have the bits of the
flat exchange for any plan. An owner adds the gradients of a row unit after unit, in the order of the workers whose events they are: with a unit
for each source the order of the flat exchange, and so its bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainer.tables.routes.partitioned.request_kernels import put_rows
from trainer.tables.routes.partitioned.requests import Requests
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.towers.partial_sums import Beside, ReturnedSums
from trainer.tables.wire.encoded_values import check_encoded, encoded_bytes, floats_of_pieces
from transforms.arrays import Array
from transforms.errors import DataError

#: Rows of parts that a worker has, and their numbers by part.
Asked = tuple[Array, Array]
#: By place of a worker of the tower, then by its unit.
AskedByWorker = list[list[Asked]]


@dataclass(frozen=True, slots=True, eq=False)
class UnitRows:
    """What a worker has of one unit after step d.

    Attributes:
        requests: what it asked for.
        weights: the rows, in the order of their slots.
    """

    requests: Requests
    weights: Array


class TowerRows(ShardedTables):
    """One worker's part of its tower's tables. All workers of the tower make the same calls in the same order.

    The exchange is that of the tower's workers; states and snapshots are those of :class:`ShardedTables`.
    """

    def shuffle_requests(self, units: Sequence[Requests], beside: Beside | None = None) -> AskedByWorker:
        """Step b: ask the owners for the rows of all units; returns what each worker asks this one for."""
        sent = []
        for owner in range(self._exchange.hosts):
            rows = [one.reads.rows[one.reads.of_owner(owner)] for one in units]
            sent.append([_joined(rows), _joined([one.reads.counts[owner] for one in units])])
        parts = len(self._parts.parts)
        return [
            split_asked(message, parts, f"worker {place}") for place, message in enumerate(self._shuffled(sent, beside))
        ]

    def read(self, asked: AskedByWorker) -> list[list[Array]]:
        """Step c: the rows that each worker asked this one for, by unit, as they are sent."""
        return [[self._sent(self.store.read_rows(rows, counts), counts) for rows, counts in units] for units in asked]

    def shuffle_rows(
        self, units: Sequence[Requests], answers: Sequence[Sequence[Array]], beside: Beside | None = None
    ) -> list[UnitRows]:
        """Step d: give each worker its ``answers``; returns the rows of this worker's units. Raises :class:`DataError`."""
        received = self._shuffled([[_joined(one)] for one in answers], beside)
        found = [
            UnitRows(one, np.empty(int((one.layout.vocabulary * one.layout.dims).sum()), np.float32)) for one in units
        ]
        for owner, message in enumerate(received):
            values = self._of_units(owner, message, [one.reads.counts[owner] for one in units])
            for one, own in zip(found, values, strict=True):
                reads = one.requests.reads
                put_rows(
                    reads.places[reads.of_owner(owner)], reads.counts[owner], one.requests.part_values, own, one.weights
                )
        return found

    def combine(self, unit: UnitRows) -> Array:
        """The activations of a unit's events, float32 [events, width]."""
        return self._gathered.combine(unit.requests, unit.weights)

    def update_units(
        self, units: Sequence[UnitRows], gradients: Sequence[Array], asked: AskedByWorker, order: Sequence[tuple[int, int]], returned: ReturnedSums | None = None,
    ) -> None:  # fmt: skip
        """The way back of steps d, c and b: one update of each row that any worker of the tower has read.

        A store that needs it gets how often each row was looked up, unit by unit.

        Args:
            gradients: of each unit's activations.
            asked: what the workers asked this one for in the lookup.
            order: pairs of a place and a unit, in the order in which gradients of a row are added.
            returned: the gradients of bags whose sums this worker has given.
        """
        sent: list[list[list[Array]]] = [[] for _ in range(self._exchange.hosts)]
        for one, gradient in zip(units, gradients, strict=True):
            requests, sums = one.requests, np.empty(len(one.weights), np.float32)
            self._gathered.sum_gradients(requests, np.ascontiguousarray(gradient).reshape(-1), sums)
            for to_owner, arrays in zip(sent, self._gradient_messages(requests, sums), strict=True):
                to_owner.append(arrays)
        received = self._shuffled([_joined_arrays(one) for one in sent], None if returned is None else returned.beside)
        parts = len(self._parts.parts)
        if self._parts.has_replicas:
            asked = [split_asked(arrays[1:], parts, f"worker {place}") for place, arrays in enumerate(received)]
        if self._sharing is not None:
            every = [*itertools.chain(*asked), *(() if returned is None else returned.asked())]
            self._sharing.grant_places(self._sharing.exchange_wanted(self._sharing.wanted_places(every)))
        sums_of, lookups_of = [], []
        for place, (of_worker, message) in enumerate(zip(asked, received, strict=True)):
            sums_of.append(self._of_units(place, message[:1], [counts for _, counts in of_worker]))
            if self.store.needs_lookups:
                lookups_of.append(_split_lookups(message[1:], of_worker, place))
        updates = [
            (asked[place][unit], sums_of[place][unit], lookups_of[place][unit] if lookups_of else None)
            for place, unit in order
        ]
        if returned is not None:
            updates += returned.updates()
        self.store.update_rows(
            [rows for rows, _, _ in updates],
            [values for _, values, _ in updates],
            lookups=[lookups for _, _, lookups in updates if lookups is not None],
        )

    def _shuffled(self, messages: Sequence[Sequence[Array]], beside: Beside | None) -> list[Sequence[Array]]:
        """What the workers of the tower have sent in a step, whose messages have equally many arrays; and what passes beside."""
        if beside is None:
            return self._exchange.all_to_all(messages)
        received = self._exchange.all_to_all([[*one, *other] for one, other in zip(messages, beside.sent, strict=True)])
        own = len(messages[0])
        beside.received = [one[own:] for one in received]
        return [one[:own] for one in received]

    def _of_units(self, place: int, message: Sequence[Array], counts: Sequence[Array]) -> list[Array]:
        """The values of each unit's rows in a message of ``place``; ``counts``: by unit, of the rows of each part. Raises as :meth:`_received`."""
        pieces = [floats_of_pieces(one, self._parts.layout.dims) for one in counts]
        check_encoded(message, list(itertools.chain(*pieces)), self._flag, f"worker {place}")
        sizes = [encoded_bytes(one, self._flag) if self._flag else sum(one) for one in pieces]
        own = np.split(message[0], np.cumsum(sizes)[:-1])
        return [self._received(place, [one], count) for one, count in zip(own, counts, strict=True)]


def split_asked(message: Sequence[Array], parts: int, where: str) -> list[Asked]:
    """The requests of each unit in a message of rows and counts. Raises :class:`DataError` for arrays that do not fit together."""
    if len(message) != 2 or any(one.dtype != np.int64 or one.ndim != 1 for one in message) or len(message[1]) % parts:
        raise DataError("a request must be int64 rows and their numbers by part", where=where, value=f"{len(message)} arrays",
                        allowed=f"2 arrays, the second with a multiple of {parts} numbers")  # fmt: skip
    rows, counts = message[0], message[1].reshape(-1, parts)
    ends = np.cumsum(counts.sum(axis=1))
    if (counts < 0).any() or (int(ends[-1]) if len(ends) else 0) != len(rows):
        raise DataError("a request must have as many rows as its numbers say", where=where, value=f"{len(rows)} rows")
    return list(zip(np.split(rows, ends[:-1]), counts, strict=True)) if len(ends) else []


def _joined(arrays: Sequence[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _joined_arrays(units: Sequence[Sequence[Array]]) -> list[Array]:
    """The arrays of one owner, each joined over the units."""
    return [_joined(one) for one in zip(*units, strict=True)]


def _split_lookups(message: Sequence[Array], asked: Sequence[Asked], place: int) -> list[Array]:
    """How often each row of each unit was looked up. Raises :class:`DataError` for a message that does not say it of each row."""
    sizes = [len(rows) for rows, _ in asked]
    if len(message) != 1 or message[0].dtype != np.int32 or message[0].shape != (sum(sizes),):
        raise DataError("an update must say how often each of its rows was looked up", where=f"worker {place}",
                        value=", ".join(f"{one.dtype} {one.shape}" for one in message) or "no array", allowed=f"int32 ({sum(sizes)},)")  # fmt: skip
    return np.split(message[0], np.cumsum(sizes)[:-1])
