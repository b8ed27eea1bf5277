"""The work that a shard of a table is in a step, and the seconds that it takes. Pure.

Rows cross the network, each once for a core that needs it; sums of rows never do. So the owner of a row serves one request for it from
each core whose events have it, adds as many gradients, and updates the row once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from trainer.planning.stacks import PADDED_COLUMNS, padded_units
from trainer.planning.tables import VALUE_BYTES, TableFacts
from trainer.planning.topologies import CoreRates, PlanTopology
from transforms.arrays import Array

#: The phases of a step, between which all cores wait for each other.
PHASES = ("lookup", "exchange", "update")
#: The bytes of a row's number in a request.
_ID_BYTES = 8


@dataclass(frozen=True, slots=True)
class Way:
    """A way to partition a table: ``column_slices`` slices, the rows of each on ``places`` cores; or a copy on every core."""

    column_slices: int = 1
    places: int = 1
    is_replicated: bool = False


@dataclass(frozen=True)
class TableWork:
    """What a table asks of the cores of a topology in a step of ``batch_events`` events."""

    table: TableFacts
    topology: PlanTopology
    batch_events: int

    @property
    def _local_ids(self) -> float:
        return self.table.ids_per_event * self.batch_events / self.topology.cores

    @property
    def _others_share(self) -> float:
        """The share of a core's rows and requests that cross the network, since its own do not."""
        return 1 - 1 / self.topology.cores

    @cached_property
    def _head(self) -> Array:
        """[rows of the head, 3]: the row, and the chances that it is among the ids of a core and of the whole batch."""
        head = self.table.frequencies().head
        rows = np.array([row for row, _ in head], np.int64)
        shares = np.array([share for _, share in head])
        return np.stack(
            [rows, _chance(shares, self._local_ids), _chance(shares, self._local_ids * self.topology.cores)], axis=1
        )

    @cached_property
    def _tail(self) -> tuple[float, float]:
        """The distinct rows beside the head among the ids of a core and of the whole batch."""
        frequencies, cores = self.table.frequencies(), self.topology.cores
        local = frequencies.distinct(self._local_ids) - self._head[:, 1].sum()
        whole = frequencies.distinct(self._local_ids * cores) - self._head[:, 2].sum()
        return max(local, 0.0), max(whole, 0.0)

    def widths(self, way: Way) -> tuple[int, ...]:
        """The columns of each slice, multiples of :data:`~trainer.planning.stacks.PADDED_COLUMNS` but for the last one."""
        units = padded_units(self.table.columns)
        starts = [units * k // way.column_slices * PADDED_COLUMNS for k in range(way.column_slices)]
        cuts = [*starts, self.table.columns]
        return tuple(second - first for first, second in pairwise(cuts))

    def secs(self, way: Way, width: int) -> Array:
        """The seconds of each place of a slice in each phase: float64 [places, phases]; rows are spread cyclically."""
        place = self._head[:, 0].astype(np.int64) % way.places
        rows = self.table.rows // way.places + (np.arange(way.places) < self.table.rows % way.places)
        return self._secs(way, width, place, rows)

    def block_secs(self, way: Way, width: int, row_ends: Sequence[int]) -> Array:
        """The same for blocks of rows."""
        ends = np.array(row_ends, np.int64)
        return self._secs(way, width, np.searchsorted(ends, self._head[:, 0], side="right"), np.diff(ends, prepend=0))

    def _secs(self, way: Way, width: int, place: Array, rows: Array) -> Array:
        """``place``: of each row of the head; ``rows``: of each place."""
        cores, rates, table = self.topology.cores, self.topology.rates, self.table
        shares = rows / table.rows
        local, whole = (np.bincount(place, self._head[:, 1 + k], len(rows)) + self._tail[k] * shares for k in (0, 1))
        served = local if way.is_replicated else local * cores
        added = local * cores
        row_bytes = VALUE_BYTES * width
        state_bytes = table.slice_row_bytes(width)
        crossings = 1 if way.is_replicated else 2  # gradients, and values unless each core has them
        sent = self._others_share * (_ID_BYTES + row_bytes * crossings)
        if way.is_replicated and self.topology.device_cores:
            return self._summed_secs(width, local, rows)
        found = np.empty((len(rows), len(PHASES)))
        found[:, 0] = rates.shard_secs + served * (
            rates.request_secs + _accessed(row_bytes, rates) * rates.read_byte_secs
        )
        found[:, 1] = added * sent * rates.wire_byte_secs
        found[:, 2] = added * row_bytes * rates.gradient_byte_secs + whole * (
            rates.update_secs + 2 * _accessed(state_bytes, rates) * rates.update_byte_secs
        )
        return found

    def _summed_secs(self, width: int, local: Array, rows: Array) -> Array:
        """Of a copy that sums over devices update: those of a ring are sent and received, two times each; all rows are read and written."""
        rates, own = self.topology.rates, rows / self.topology.device_cores
        devices = self.topology.cores // self.topology.device_cores
        row_bytes, state_bytes = VALUE_BYTES * width, self.table.slice_row_bytes(width)
        found = np.empty((len(rows), len(PHASES)))
        read_secs = rates.request_secs + _accessed(row_bytes, rates) * rates.read_byte_secs
        found[:, 0] = rates.shard_secs + local * read_secs
        found[:, 1] = own * (row_bytes + VALUE_BYTES) * 4 * (1 - 1 / devices) * rates.wire_byte_secs
        found[:, 2] = local * row_bytes * rates.gradient_byte_secs + own * 2 * state_bytes * rates.update_byte_secs
        return found

    def reader_secs(self, way: Way) -> float:
        """The seconds that a core takes for its own events: to find their rows, receive and place them, combine them and send gradients."""
        rates, ids = self.topology.rates, self._local_ids
        local = float(self._head[:, 1].sum()) + self._tail[0]
        row_bytes = VALUE_BYTES * self.table.columns
        sent = 0.0 if way.is_replicated else self._others_share * (2 * row_bytes + _ID_BYTES)
        of_rows = local * (2 * row_bytes * rates.place_byte_secs + sent * rates.wire_byte_secs)
        return of_rows + ids * (way.column_slices * rates.id_secs + 2 * row_bytes * rates.combine_byte_secs)


def _chance(shares: Array, ids: float) -> Array:
    """The chance that a row with a share of the ids is among so many."""
    with np.errstate(divide="ignore"):
        found: Array = -np.expm1(ids * np.log1p(-np.minimum(shares, 1.0))) if ids else np.zeros(len(shares))
    return found


def _accessed(size_bytes: float, rates: CoreRates) -> float:
    return -(-size_bytes // rates.access_bytes) * rates.access_bytes
