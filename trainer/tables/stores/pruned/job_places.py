"""The places that the hosts of a job share: how many are free, and which host's rows get them.

All hosts know the same numbers, which they exchange at steps that are equal on all of them, so each decides alike and none has to be asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trainer.planning.row_groups import RowGroup
from transforms.arrays import Array
from transforms.errors import DataError


class PeerHosts(Protocol):
    """The hosts of a job as their places need them: an :class:`~trainer.tables.routes.exchange.Exchange`."""

    @property
    def rank(self) -> int:
        """This host's place among all."""

    @property
    def hosts(self) -> int:
        """The number of hosts."""

    def all_to_all(self, parts: Sequence[Sequence[Array]]) -> list[Sequence[Array]]:
        """Send ``parts[r]`` to the host of rank r, and return what each host sent to this one."""


@dataclass(frozen=True, slots=True, eq=False)
class JobTables:
    """The pruned tables of all hosts of a job, and the rows of these that a host has.

    Attributes:
        groups: of the tables of the job, by position, with the places of all hosts.
        sizes: the rows of each table of the job.
        own: of each table of the host, its position in the job.
        strides, firsts: row r of the host is row ``strides[t] * r + firsts[t]`` of its table.
        counts: the rows that the host has of each of its tables.
    """

    groups: tuple[RowGroup, ...]
    sizes: tuple[int, ...]
    own: tuple[int, ...]
    strides: tuple[int, ...]
    firsts: tuple[int, ...]
    counts: tuple[int, ...]

    def chosen(self, tables: Sequence[int]) -> JobTables:
        """The same job, of a host that has some of its tables, by position."""
        columns = (tuple(column[t] for t in tables) for column in (self.own, self.strides, self.firsts, self.counts))
        return JobTables(self.groups, self.sizes, *columns)

    def tables_of(self, group: int) -> tuple[int, ...]:
        """The tables of a group of the job of which this host has rows, by their positions here."""
        members = set(self.groups[group].tables)
        return tuple(t for t, at in enumerate(self.own) if at in members and self.counts[t])

    def whole_rows(self, t: int, rows: Array) -> Array:
        """The numbers in the whole table of rows of this host."""
        found: Array = rows * self.strides[t] + self.firsts[t]
        return found

    def own_rows(self, t: int, whole: Array) -> tuple[Array, Array]:
        """Which rows of a whole table are on this host, as a mask, and their numbers here."""
        rows = (whole - self.firsts[t]) // self.strides[t]
        mine = (rows >= 0) & (rows < self.counts[t]) & (rows * self.strides[t] + self.firsts[t] == whole)
        return mine, rows[mine]


class JobPlaces:
    """The free places of the groups of a job, as a host knows them.

    Args:
        tables: of the job, and of this host.
        exchange: with all hosts of the job, which call the methods that exchange in the same order.

    Attributes:
        tables: as given.
        free: int64, the free places of each group; only while :attr:`is_known`.
        is_known: whether the hosts have counted their rows since they were loaded.
    """

    def __init__(self, tables: JobTables, exchange: PeerHosts) -> None:
        self.tables, self._exchange = tables, exchange
        self._places = np.array([one.rows for one in tables.groups], np.int64)
        self._group_of = np.empty(len(tables.sizes), np.int64)
        for g, group in enumerate(tables.groups):
            self._group_of[list(group.tables)] = g
        self.group_of = self._group_of[list(tables.own)]
        self.free = np.zeros(len(tables.groups), np.int64)
        self.is_known = False

    @property
    def rank(self) -> int:
        """The place of this host among all."""
        return self._exchange.rank

    def of_tables(self, tables: Sequence[int]) -> JobPlaces:
        """Those of some of the tables of this host, by position."""
        return JobPlaces(self.tables.chosen(tables), self._exchange)

    def forget(self) -> None:
        """Count again before the next lookup or update, as all hosts do: one of them may have loaded its rows."""
        self.is_known = False

    def count(self, placed: Array) -> None:
        """Exchange how many rows have places; ``placed``: of each table here. :attr:`free` is below zero for a group with more rows than places."""
        own = self._by_table(placed)
        every = self.gather([own])
        self.free = self._places - self._by_group(np.sum([self._numbers(one, len(own)) for one in every], axis=0))
        self.is_known = True

    def wanted(self, rows: Array) -> Array:
        """What a message says of the rows without a place that an update has; ``rows``: of each table here. int64, by table of the job."""
        return self._by_table(rows)

    def exchange_wanted(self, wanted: Array) -> list[Array]:
        """The :meth:`wanted` of all hosts, by rank."""
        return [self._numbers(one, len(wanted)) for one in self.gather([wanted])]

    def grant(self, wanted: Sequence[Array]) -> Array:
        """Give free places to rows of all hosts, as far as there are some: table by table, then host by host.

        ``wanted``: of each host. Returns how many rows of each table here get one.
        """
        every = np.array([self._numbers([one], len(self.tables.sizes)) for one in wanted])
        given = np.zeros_like(every)
        for g, group in enumerate(self.tables.groups):
            tables = list(group.tables)
            asked = every[:, tables].T.reshape(-1)
            got = np.clip(self.free[g] - (np.cumsum(asked) - asked), 0, asked)
            given[:, tables] = got.reshape(len(tables), len(wanted)).T
            self.free[g] -= int(got.sum())
        found: Array = given[self.rank, list(self.tables.own)]
        return found

    def full_groups(self) -> list[int]:
        """The groups without a free place for a further row."""
        sizes = [sum(self.tables.sizes[t] for t in one.tables) for one in self.tables.groups]
        return [g for g, one in enumerate(self.tables.groups) if self.free[g] == 0 and one.rows < sizes[g]]

    def add_counts(self, counts: Array) -> Array:
        """The sum over all hosts of int64 ``counts``, of which few are not zero."""
        flat = counts.reshape(-1)
        at = np.flatnonzero(flat)
        total = np.zeros_like(flat)
        for rank, (rows, values) in enumerate(self._checked([at, flat[at]])):
            if rows.dtype != np.int64 or rows.shape != values.shape or (len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(flat)):  # fmt: skip
                raise DataError("counts of rows must be numbers of their bins", where=f"host {rank}", value=len(rows))
            np.add.at(total, rows, values)
        return total.reshape(counts.shape)

    def gather(self, arrays: Sequence[Array]) -> list[Sequence[Array]]:
        """The ``arrays`` of all hosts, by rank."""
        return self._exchange.all_to_all([list(arrays)] * self._exchange.hosts)

    def _checked(self, arrays: Sequence[Array]) -> list[Sequence[Array]]:
        found = self.gather(arrays)
        for rank, one in enumerate(found):
            if len(one) != len(arrays):
                raise DataError("a message of a round must have its arrays", where=f"host {rank}", value=len(one), allowed=str(len(arrays)))  # fmt: skip
        return found

    def _by_table(self, values: Array) -> Array:
        found = np.zeros(len(self.tables.sizes), np.int64)
        found[list(self.tables.own)] = values
        return found

    def _by_group(self, of_tables: Array) -> Array:
        counted = [of_tables[list(one.tables)].sum() for one in self.tables.groups]
        return np.array(counted, np.int64)

    @staticmethod
    def _numbers(message: Sequence[Array], count: int) -> Array:
        """The numbers of tables in a message of another host. Raises :class:`DataError`."""
        found = message[0] if len(message) == 1 else np.zeros(0)
        if found.dtype != np.int64 or found.shape != (count,) or (found < 0).any():
            raise DataError("a host must say a number for each table", value=f"{found.dtype} {found.shape}", allowed=f"int64 ({count},), >= 0")  # fmt: skip
        return found
