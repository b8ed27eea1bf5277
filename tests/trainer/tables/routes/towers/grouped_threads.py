"""The workers of a tower placement as threads of one process, each with its exchanges."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from tests.support.processes import PATIENCE_SECS
from trainer.tables.routes.exchange import Exchange
from trainer.tables.routes.partitioned.core_threads import CoreThreads, ThreadExchange
from trainer.tables.routes.towers.counted_exchange import CountedExchange, SentBytes, TowerExchanges
from trainer.tables.routes.towers.placement import TowerPlacement


def on_workers(placement: TowerPlacement, work: Callable[[int, TowerExchanges, SentBytes], Any]) -> list[Any]:
    """The results of ``work`` in one thread per worker, by rank; its first error is raised."""
    threads = CoreThreads(placement.workers, patience_secs=PATIENCE_SECS)
    groups = {members: _exchanges(len(members)) for members in _groups(placement)}

    def run(rank: int) -> Any:
        sent = SentBytes()

        def counted(members: Sequence[int]) -> Exchange:
            hosts = [placement.host_of(one) for one in members]
            return CountedExchange(groups[tuple(members)][members.index(rank)], hosts, sent)

        world = CountedExchange(
            threads.exchanges[rank], [placement.host_of(one) for one in range(placement.workers)], sent
        )
        tower = placement.tower_of(placement.host_of(rank))
        exchanges = TowerExchanges(counted(placement.peers_of(rank)), counted(placement.group_of(tower)), world)
        return work(rank, exchanges, sent)

    return threads.run(run)


def _groups(placement: TowerPlacement) -> set[tuple[int, ...]]:
    groups = {placement.group_of(t) for t in range(len(placement.towers))}
    return groups | {placement.peers_of(rank) for rank in range(placement.host_workers)}


def _exchanges(members: int) -> list[ThreadExchange]:
    boxes: list[list[Any]] = [[()] * members for _ in range(members)]
    barrier = threading.Barrier(members, timeout=PATIENCE_SECS)
    return [ThreadExchange(place, members, boxes, barrier) for place in range(members)]
