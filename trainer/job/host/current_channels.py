"""The channels of the attempt that a host trains now: weights keep them while attempts come and go."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.job.host.channels import Channel, ChannelName, Channels, OneHostChannel
from transforms.arrays import Array


class CurrentChannels:
    """The channels of the host of ``rank``; those of one host until :meth:`connect`."""

    def __init__(self, rank: int, hosts: int) -> None:
        self.rank, self.hosts = rank, hosts
        self._each = [_CurrentChannel(rank, hosts) for _ in ChannelName]
        self.channels = Channels(*self._each)

    def connect(self, channels: Sequence[Channel]) -> None:
        """Use these channels from now on, by :class:`ChannelName`; without any, those of one host."""
        for name in ChannelName:
            self._each[name].now = channels[name] if channels else OneHostChannel()


class _CurrentChannel:
    """One channel of the attempt that is trained now."""

    def __init__(self, rank: int, hosts: int) -> None:
        self.rank, self.hosts = rank, hosts
        self.now: Channel = OneHostChannel()

    def all_to_all(self, parts: Sequence[Sequence[Array]]) -> list[Sequence[Array]]:
        """See :class:`~trainer.tables.routes.exchange.Exchange`."""
        return self.now.all_to_all(parts)

    def send(self, parts: Sequence[Sequence[Array]]) -> None:
        """See :class:`Channel`."""
        self.now.send(parts)

    def receive(self) -> list[Sequence[Array]]:
        """See :class:`Channel`."""
        return self.now.receive()
