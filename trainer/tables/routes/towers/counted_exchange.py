"""The exchanges of a worker of the tower transform, and the bytes that they send between hosts and inside a host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.tables.routes.exchange import Exchange, GroupExchange, OneHost
from trainer.tables.routes.towers.placement import TowerPlacement
from transforms.arrays import Array


@dataclass(frozen=True, slots=True)
class TowerExchanges:
    """The exchanges of one worker.

    Attributes:
        peers: with the workers of equal rank on all hosts; a worker's rank is its host.
        group: with the workers of its tower; a worker's rank is its place among them.
        world: with all workers; needed if lookups come before the shuffle inside hosts, and where several workers of a host share the places of pruned tables.
    """

    peers: Exchange
    group: Exchange
    world: Exchange | None = None


@dataclass(slots=True)
class SentBytes:
    """The bytes and messages of arrays that a worker has sent to others; empty messages are not counted."""

    between_hosts: int = 0
    inside_hosts: int = 0
    messages_between_hosts: int = 0


class CountedExchange:
    """An exchange that adds what it sends to ``sent``; ``hosts_of``: the host of each of its members, by rank."""

    def __init__(self, exchange: Exchange, hosts_of: Sequence[int], sent: SentBytes) -> None:
        self._exchange, self._hosts_of, self.sent = exchange, hosts_of, sent
        self.rank, self.hosts = exchange.rank, exchange.hosts

    def all_to_all(self, parts: Sequence[Sequence[Array]]) -> list[Sequence[Array]]:
        """See :class:`~trainer.tables.routes.exchange.Exchange`."""
        for to, arrays in enumerate(parts):
            size = sum(array.nbytes for array in arrays)
            if to == self.rank or not size:
                continue
            if self._hosts_of[to] == self._hosts_of[self.rank]:
                self.sent.inside_hosts += size
            else:
                self.sent.between_hosts += size
                self.sent.messages_between_hosts += 1
        return self._exchange.all_to_all(parts)


def exchanges_of(world: Exchange, placement: TowerPlacement, sent: SentBytes) -> TowerExchanges:
    """The exchanges of a worker that has one with all workers; what they send is added to ``sent``.

    Workers that have towers of their own send nothing inside them, and do not wait for each other.
    """

    def counted(members: Sequence[int]) -> Exchange:
        return CountedExchange(GroupExchange(world, members), [placement.host_of(one) for one in members], sent)

    groups = [placement.group_of(tower) for tower in range(len(placement.towers))]
    own = groups[placement.tower_of(placement.host_of(world.rank))]
    is_alone = all(len(one) == 1 for one in groups)
    of_group = OneHost() if is_alone else counted(own)
    return TowerExchanges(counted(placement.peers_of(world.rank)), of_group, counted(range(placement.workers)))
