"""Channels between threads of one process, for tests of what hosts do at once on several channels."""

from __future__ import annotations

import queue
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.support.processes import PATIENCE_SECS
from trainer.job.host.channels import ChannelName, Channels


class ThreadChannel:
    """One host's end of a channel; counts what it sends to others. ``delays``: sleeps up to so many seconds before each send."""

    def __init__(self, rank: int, hosts: int, queues: Sequence[Sequence[queue.SimpleQueue]], delays: float) -> None:
        self.rank, self.hosts, self._queues = rank, hosts, queues
        self._delays, self._draw = delays, random.Random(rank)
        self.sent_bytes = self.messages = 0

    def send(self, parts):
        if self._delays:
            time.sleep(self._draw.uniform(0, self._delays))
        for to, arrays in enumerate(parts):
            own = to == self.rank
            self._queues[to][self.rank].put(arrays if own else [array.copy() for array in arrays])
            if not own:
                self.sent_bytes += sum(array.nbytes for array in arrays)
                self.messages += 1

    def receive(self):
        return [self._queues[self.rank][sender].get(timeout=PATIENCE_SECS) for sender in range(self.hosts)]

    def all_to_all(self, parts):
        self.send(parts)
        return self.receive()


def on_channels(hosts: int, work: Callable[[Channels], Any], *, delays: float = 0.0) -> list[Any]:
    """The results of ``work`` in one thread per host, by rank; its first error is raised."""
    queues = [[[queue.SimpleQueue() for _ in range(hosts)] for _ in range(hosts)] for _ in ChannelName]
    with ThreadPoolExecutor(hosts) as pool:
        running = [
            pool.submit(work, Channels(*(ThreadChannel(rank, hosts, queues[name], delays) for name in ChannelName)))
            for rank in range(hosts)
        ]
        return [one.result() for one in running]
