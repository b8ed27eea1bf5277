"""The channels of the attempt that a host trains now: weights keep them while attempts come and go."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.job.host.channels import Channel, Channels, OneHostChannel, members_of, names_of
from trainer.planning.host_grid import HostGrid
from transforms.arrays import Array


class CurrentChannels:
    """The channels of the host of ``rank``; those of one host until :meth:`connect`. ``grid``: of the hosts, if they are on one."""

    def __init__(self, rank: int, hosts: int, grid: HostGrid | None = None) -> None:
        self.rank, self.hosts = rank, hosts
        members = [members_of(name, rank, hosts, grid) for name in names_of(grid)]
        self._each = [_CurrentChannel(one.index(rank), len(one)) for one in members]
        self.channels = Channels.of(self._each, grid)

    def connect(self, channels: Sequence[Channel]) -> None:
        """Use these channels from now on, by :class:`~trainer.job.host.channels.ChannelName`; without any, those of one host."""
        for number, one in enumerate(self._each):
            one.now = channels[number] if channels else OneHostChannel()


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
