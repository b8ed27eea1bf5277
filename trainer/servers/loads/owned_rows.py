"""Which rows of a table a server owns, and which rows of another server are among them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from trainer.tables.kernels.layout import TableOrigin
from trainer.tables.routes.servers.row_messages import RowSpread
from transforms.arrays import Array


@dataclass(frozen=True, slots=True)
class OwnedRows:
    """The rows of a table on a server: row r there is row ``stride * r + first`` of the table.

    Attributes:
        stride, first: of the numbers.
        count: how many there are; of a hashed table, the limit of its ids.
    """

    stride: int
    first: int
    count: int

    @classmethod
    def of(cls, origin: TableOrigin, count: int) -> OwnedRows:
        """The first ``count`` rows of a table of a server with this origin."""
        return cls(origin.row_stride, origin.row_first, count)

    def own(self, rows: Array) -> tuple[Array, Array]:
        """Which ``rows`` of the table are owned, as a mask, and their numbers on the server."""
        own = (rows - self.first) // self.stride
        mine = (own >= 0) & (own < self.count) & (own * self.stride + self.first == rows)
        return mine, own[mine]

    def whole(self, own: Array) -> Array:
        """The numbers in the table of rows of the server."""
        rows: Array = own * self.stride + self.first
        return rows

    def remainder(self, other: OwnedRows) -> tuple[int, int] | None:
        """A stride and a remainder: of the rows of ``other``, by its numbers, only those that leave it may be owned; None: none is.

        Row s of the other one is owned if ``other.stride * s + other.first`` leaves the remainder of ``first`` when it is divided by ``stride``.
        """
        shared = gcd(other.stride, self.stride)
        apart, left_over = divmod(self.first - other.first, shared)
        if left_over or not self.count or not other.count:
            return None
        if self._last < other.first or other._last < self.first:
            return None
        stride = self.stride // shared
        return stride, apart * pow(other.stride // shared, -1, stride) % stride

    @property
    def _last(self) -> int:
        return self.stride * (self.count - 1) + self.first

    def among(self, other: OwnedRows, first: int, stop: int) -> RowSpread | None:
        """The rows of ``other``, by its numbers, that are the owned rows from ``first`` up to ``stop``; None: there are none."""
        found = self.remainder(other)
        if found is None or first >= stop:
            return None
        least, most = self.stride * first + self.first, self.stride * (stop - 1) + self.first
        begin = max(-(-(least - other.first) // other.stride), 0)
        end = min((most - other.first) // other.stride + 1, other.count)
        return RowSpread(begin, end, *found) if begin < end else None
