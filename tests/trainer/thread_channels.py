"""Channels between threads of one process, for tests of what hosts do at once on several channels."""

from __future__ import annotations

import queue
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.support.processes import PATIENCE_SECS
from trainer.job.host.channels import Channels, members_of, names_of
from trainer.planning.host_grid import HostGrid


class ThreadChannel:
    """One host's end of a channel between ``members``; counts what it sends to others, also by their ranks.

    ``delays``: sleeps up to so many seconds before each send.
    """

    def __init__(
        self, rank: int, members: Sequence[int], queues: Sequence[Sequence[queue.SimpleQueue]], delays: float
    ) -> None:
        self.rank, self.hosts, self._members, self._queues = members.index(rank), len(members), members, queues
        self._delays, self._draw = delays, random.Random(rank)
        self.sent_bytes = self.messages = 0
        self.sent_to: Counter[int] = Counter()

    def send(self, parts):
        if self._delays:
            time.sleep(self._draw.uniform(0, self._delays))
        for to, arrays in enumerate(parts):
            own = to == self.rank
            self._queues[self._members[to]][self._members[self.rank]].put(
                arrays if own else [array.copy() for array in arrays]
            )
            if not own:
                size = sum(array.nbytes for array in arrays)
                self.sent_bytes += size
                self.sent_to[self._members[to]] += size
                self.messages += 1

    def receive(self):
        own = self._queues[self._members[self.rank]]
        return [own[sender].get(timeout=PATIENCE_SECS) for sender in self._members]

    def all_to_all(self, parts):
        self.send(parts)
        return self.receive()


def on_channels(
    hosts: int, work: Callable[[Channels], Any], *, delays: float = 0.0, grid: HostGrid | None = None
) -> list[Any]:
    """The results of ``work`` in one thread per host, by rank; its first error is raised. ``grid``: of the hosts, if they are on one."""
    queues = {name: [[queue.SimpleQueue() for _ in range(hosts)] for _ in range(hosts)] for name in names_of(grid)}

    def channels_of(rank: int) -> Channels:
        each = [
            ThreadChannel(rank, members_of(name, rank, hosts, grid), queues[name], delays) for name in names_of(grid)
        ]
        return Channels.of(each, grid)

    with ThreadPoolExecutor(hosts) as pool:
        running = [pool.submit(work, channels_of(rank)) for rank in range(hosts)]
        return [one.result() for one in running]
