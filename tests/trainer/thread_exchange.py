"""An exchange between threads of one process, for tests of what hosts do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.support.processes import PATIENCE_SECS


class ThreadExchange:
    """One thread's end of an exchange between threads."""

    def __init__(self, rank: int, hosts: int, boxes: list[list[Any]], barrier: threading.Barrier) -> None:
        self.rank, self.hosts = rank, hosts
        self._boxes, self._barrier = boxes, barrier

    def all_to_all(self, parts: Sequence[Sequence[np.ndarray]]) -> list[Sequence[np.ndarray]]:
        """What each thread sent to this one."""
        assert len(parts) == self.hosts
        for to, arrays in enumerate(parts):
            self._boxes[to][self.rank] = [np.array(array) for array in arrays]
        self._barrier.wait(PATIENCE_SECS)
        received = list(self._boxes[self.rank])
        self._barrier.wait(PATIENCE_SECS)
        return received


def on_hosts(hosts: int, work: Callable[[ThreadExchange], Any]) -> list[Any]:
    """The results of ``work`` in one thread per host, by rank; its first error is raised."""
    boxes: list[list[Any]] = [[None] * hosts for _ in range(hosts)]
    barrier = threading.Barrier(hosts)
    results: list[Any] = [None] * hosts
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            results[rank] = work(ThreadExchange(rank, hosts, boxes, barrier))
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(hosts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((one for one in errors if not isinstance(one, threading.BrokenBarrierError)), errors[0])
    return results
