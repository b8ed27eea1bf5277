"""The weights and slots of rows on servers, read and written by their only client."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from trainer.tables.engine import RowValues
from trainer.tables.optimizers import slot_width
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.servers.remote_tables import RemoteTables
from trainer.tables.routes.servers.row_messages import RowNumbers, split_by_part
from trainer.tables.spec import TableSpec
from transforms.arrays import Array

_NO_ROWS = np.zeros(0, np.int64)


class ServedRowValues:
    """Reads and writes the values of rows of ``tables``, on all servers at once.

    Args:
        tables: of an engine, in its order.
        order: their positions in the order of messages.
        parts: of the tables in that order.
        servers: the tables of each server.
        of_each: does the work of each server.
    """

    def __init__(
        self,
        tables: Sequence[TableSpec],
        order: Sequence[int],
        parts: TableParts,
        servers: Sequence[RemoteTables],
        of_each: Callable[[Callable[[int], object]], object],
    ) -> None:
        self._order, self._parts, self._servers, self._of_each = order, parts, servers, of_each
        #: The columns of a row of each table, and its slot values.
        self.weight_dims = np.array([one.dim for one in tables], np.int64)
        self.slot_dims = np.array([slot_width(one.optimizer, one.dim) for one in tables], np.int64)

    def read(self, rows: Sequence[Array]) -> RowValues:
        """The values of rows of each table, int64, as all that was sent before leaves them."""
        weights, slots = (
            [np.empty((len(own), width), np.float32) for own, width in zip(rows, dims.tolist(), strict=True)]
            for dims in (self.weight_dims, self.slot_dims)
        )

        def gather(server: int) -> None:
            places = self._places_on(server, rows, gives=True)
            found = self._servers[server].read_values(_numbers_of(places))
            for part, (mine, _), values in zip(self._parts.parts, places, found, strict=True):
                t = self._order[part.t]
                weights[t][mine, part.columns] = values[0]
                slots[t][np.ix_(mine, part.slots)] = values[1]

        self._of_each(gather)
        return RowValues(_flat(weights), _flat(slots))

    def write(self, rows: Sequence[Array], values: RowValues) -> None:
        """Replace the values of rows of each table, int64, on all servers that have them. What servers refuse is raised by the next call."""
        counts = np.array([len(own) for own in rows], np.int64)
        weights, slots = (
            split_by_part(flat, counts, dims)
            for flat, dims in ((values.weights, self.weight_dims), (values.slots, self.slot_dims))
        )

        def write(server: int) -> None:
            places = self._places_on(server, rows, gives=False)
            own_weights, own_slots = [], []
            for part, (mine, _) in zip(self._parts.parts, places, strict=True):
                t = self._order[part.t]
                own_weights.append(weights[t][mine, part.columns])
                own_slots.append(slots[t][np.ix_(mine, part.slots)])
            self._servers[server].write_values(_numbers_of(places), RowValues(_flat(own_weights), _flat(own_slots)))

        self._of_each(write)

    def _places_on(self, server: int, rows: Sequence[Array], *, gives: bool) -> list[tuple[Array, Array]]:
        """The positions of each part's rows on a server, and their numbers there; ``gives``: none that another server gives."""
        found = []
        for part in self._parts.parts:
            asked = rows[self._order[part.t]]
            if not len(asked) or (gives and not part.gives(server)):
                found.append((_NO_ROWS, _NO_ROWS))
                continue
            mine, own = part.own_rows(server, asked)
            found.append((np.flatnonzero(mine), own))
        return found


def _numbers_of(places: Sequence[tuple[Array, Array]]) -> RowNumbers:
    counts = np.array([len(own) for _, own in places], np.int64)
    return RowNumbers(np.concatenate([own for _, own in places]), counts)


def _flat(values: Sequence[Array]) -> Array:
    return np.concatenate([one.reshape(-1) for one in values])
