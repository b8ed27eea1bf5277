"""What hosts of one job exchange in a step, as an interface: arrays from each host to each host.

All hosts make the same calls in the same order; a call ends when the arrays of all hosts are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from transforms.arrays import Array


class Exchange(Protocol):
    """An exchange between ``hosts`` hosts, of which this one has ``rank``."""

    @property
    def rank(self) -> int:
        """This host's place among the hosts, from 0 on."""

    @property
    def hosts(self) -> int:
        """The number of hosts."""

    def all_to_all(self, parts: Sequence[Sequence[Array]]) -> list[Sequence[Array]]:
        """Send ``parts[r]``, flat arrays, to the host of rank r, and return what each host sent to this one, by rank.

        Received arrays are read-only. Raises an error if another host is lost.
        """


class GroupExchange:
    """The exchange of some hosts of ``exchange``, ``members`` by rank; this host is one of them.

    All hosts are in one group each, and all groups make their calls at once: others get messages without arrays.
    """

    def __init__(self, exchange: Exchange, members: Sequence[int]) -> None:
        self._exchange, self._members = exchange, tuple(members)
        self.rank, self.hosts = self._members.index(exchange.rank), len(self._members)

    def all_to_all(self, parts: Sequence[Sequence[Array]]) -> list[Sequence[Array]]:
        """See :class:`Exchange`."""
        sent: list[Sequence[Array]] = [()] * self._exchange.hosts
        for member, part in zip(self._members, parts, strict=True):
            sent[member] = part
        received = self._exchange.all_to_all(sent)
        return [received[member] for member in self._members]


class OneHost:
    """The exchange of a job with one host."""

    rank = 0
    hosts = 1

    def all_to_all(self, parts: Sequence[Sequence[Array]]) -> list[Sequence[Array]]:
        """What this host sends to itself."""
        return [parts[0]]
