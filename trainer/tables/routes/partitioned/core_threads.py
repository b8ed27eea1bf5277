"""Simulated cores: one thread each, which exchange arrays at a barrier."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from transforms.arrays import Array

_T = TypeVar("_T")


class CoreThreads:
    """``cores`` threads, each with one end of an exchange; ``patience_secs``: how long one waits for the others, without end if None."""

    def __init__(self, cores: int, *, patience_secs: float | None = None) -> None:
        self.cores = cores
        self._boxes: list[list[Sequence[Array]]] = [[()] * cores for _ in range(cores)]
        self._barrier = threading.Barrier(cores, timeout=patience_secs)
        self._pool = ThreadPoolExecutor(cores, "core")
        self.exchanges = tuple(ThreadExchange(rank, cores, self._boxes, self._barrier) for rank in range(cores))

    def run(self, work: Callable[[int], _T]) -> list[_T]:
        """The results of ``work`` for every core, at once. After an error the other cores stop at their next exchange; it is raised."""
        running = [self._pool.submit(self._run, work, rank) for rank in range(self.cores)]
        wait(running)
        errors = [error for one in running if (error := one.exception()) is not None]
        if errors:
            self._barrier.reset()
            raise next((one for one in errors if not isinstance(one, threading.BrokenBarrierError)), errors[0])
        return [one.result() for one in running]

    def _run(self, work: Callable[[int], _T], rank: int) -> _T:
        try:
            return work(rank)
        except BaseException:
            self._barrier.abort()
            raise


class ThreadExchange:
    """One core's end of an exchange between threads: an :class:`~trainer.tables.routes.exchange.Exchange` that hands over references."""

    def __init__(self, rank: int, hosts: int, boxes: list[list[Sequence[Array]]], barrier: threading.Barrier) -> None:
        self.rank, self.hosts = rank, hosts
        self._boxes, self._barrier = boxes, barrier

    def all_to_all(self, parts: Sequence[Sequence[Array]]) -> list[Sequence[Array]]:
        """What each core sent to this one; the sender must not write to it before the next call."""
        for to, arrays in enumerate(parts):
            self._boxes[to][self.rank] = arrays
        self._barrier.wait()
        received = list(self._boxes[self.rank])
        self._barrier.wait()
        return received
