"""The channels between the hosts of a job: streams of messages that do not wait for each other.

All hosts make the same calls on a channel in the same order. Calls on different channels may come from different threads, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from trainer.tables.routes.exchange import Exchange, OneHost
from transforms.arrays import Array


class ChannelName(IntEnum):
    """The number of each channel in a stream's greeting."""

    TABLES = 0
    STEPS = 1
    SHARES = 2
    SUMS = 3


class Channel(Exchange, Protocol):
    """An exchange whose sending and receiving may run in two threads, each in the order of the calls."""

    def send(self, parts: Sequence[Sequence[Array]]) -> None:
        """Send ``parts[r]`` to the host of rank r. Arrays of another host may be written to after it; this host's own are kept as they are.

        Raises an error if another host is lost.
        """

    def receive(self) -> list[Sequence[Array]]:
        """What each host sent to this one in the next call, by rank. Received arrays are read-only."""


@dataclass(frozen=True, slots=True)
class Channels:
    """The channels of one host.

    Attributes:
        tables: rows and gradients of tables.
        steps: what the hosts agree on before each step.
        shares: dense gradients that a host is to sum.
        sums: their sums.
    """

    tables: Exchange
    steps: Exchange
    shares: Channel
    sums: Channel


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
