"""The channels between the hosts of a job: streams of messages that do not wait for each other.

All hosts make the same calls on a channel in the same order. Calls on different channels may come from different threads, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from trainer.planning.host_grid import HostGrid
from trainer.tables.routes.exchange import Exchange, OneHost
from transforms.arrays import Array


class ChannelName(IntEnum):
    """The number of each channel in a stream's greeting."""

    TABLES = 0
    STEPS = 1
    SHARES = 2
    SUMS = 3
    NEAR_SHARES = 4
    NEAR_SUMS = 5
    FAR_SHARES = 6
    FAR_SUMS = 7


_NEAR = (ChannelName.NEAR_SHARES, ChannelName.NEAR_SUMS)
_FAR = (ChannelName.FAR_SHARES, ChannelName.FAR_SUMS)


def names_of(grid: HostGrid | None) -> tuple[ChannelName, ...]:
    """The channels of hosts on a grid, in the order of their numbers; those of legs only with one."""
    return tuple(one for one in ChannelName if grid is not None or one not in (*_NEAR, *_FAR))


def members_of(name: ChannelName, rank: int, hosts: int, grid: HostGrid | None) -> tuple[int, ...]:
    """The ranks of the hosts that share a channel with the host of ``rank``, which is one of them."""
    if grid is None or name not in (*_NEAR, *_FAR):
        return tuple(range(hosts))
    return grid.near_of(rank) if name in _NEAR else grid.far_of(rank)


class Channel(Exchange, Protocol):
    """An exchange whose sending and receiving may run in two threads, each in the order of the calls."""

    def send(self, parts: Sequence[Sequence[Array]]) -> None:
        """Send ``parts[r]`` to the host of rank r. Arrays of another host may be written to after it; this host's own are kept as they are.

        Raises an error if another host is lost.
        """

    def receive(self) -> list[Sequence[Array]]:
        """What each host sent to this one in the next call, by rank. Received arrays are read-only."""


@dataclass(frozen=True, slots=True)
class LegChannels:
    """The channels of one host inside its machine and between machines; ranks are places among their members.

    Attributes:
        grid: of all hosts.
        near_shares: dense gradients that a host is to sum for its machine.
        near_sums: sums over all hosts, on their way to a machine's hosts.
        far_shares: sums of machines that a host is to sum.
        far_sums: their sums.
    """

    grid: HostGrid
    near_shares: Channel
    near_sums: Channel
    far_shares: Channel
    far_sums: Channel


@dataclass(frozen=True, slots=True)
class Channels:
    """The channels of one host.

    Attributes:
        tables: rows and gradients of tables.
        steps: what the hosts agree on before each step.
        shares: dense gradients that a host is to sum; where hosts sum in two legs, the number of their events.
        sums: their sums.
        legs: of hosts on a grid; else None.
    """

    tables: Exchange
    steps: Exchange
    shares: Channel
    sums: Channel
    legs: LegChannels | None = None

    @classmethod
    def of(cls, each: Sequence[Channel], grid: HostGrid | None = None) -> Channels:
        """The channels by :class:`ChannelName`, see :func:`names_of`."""
        tables, steps, shares, sums, *legs = each
        return cls(tables, steps, shares, sums, None if grid is None else LegChannels(grid, *legs))


class OneHostChannel(OneHost):
    """The channel of a job with one host."""

    def __init__(self) -> None:
        self._sent: list[Sequence[Array]] = []

    def send(self, parts: Sequence[Sequence[Array]]) -> None:
        """See :class:`Channel`."""
        self._sent.append(parts[0])

    def receive(self) -> list[Sequence[Array]]:
        """See :class:`Channel`."""
        return [self._sent.pop(0)]
