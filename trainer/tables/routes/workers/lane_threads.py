"""The threads of the lanes of a client: each lane works in order, and all lanes at once.

Servers make the updates of all lanes in the order of their numbers, so a lane may wait for an update of another one. Each lane therefore has a
thread of its own, which notices at once when its worker ends, and sends again what was not made: a lane with nothing else to do waits until the
servers have made its updates.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Protocol, TypeVar

from trainer.errors import AttemptOver

_T = TypeVar("_T")


class Finishing(Protocol):
    """A lane, as its thread sees it; see :class:`~trainer.tables.routes.workers.lane.WorkerLane`."""

    def finish(self) -> None:
        """Wait until the servers have made all updates of the lane. Raises what they refused."""


class LaneThreads:
    """Works for the lanes of a client from its construction until :meth:`close`. One thread calls it.

    Work for one lane alone is done in the thread of the caller: nothing waits for another lane.

    After a failure all that waits ends with it: an update that was not made holds up those of all lanes.
    """

    def __init__(self, lanes: int) -> None:
        self._executors = [ThreadPoolExecutor(1, f"lane-{lane}") for lane in range(lanes)] if lanes > 1 else []
        self._given, self._begun = [0] * lanes, [0] * lanes
        self._failure: Future[None] = Future()
        self._lock, self._ends = threading.Lock(), False

    def check(self) -> None:
        """End what waits in a lane after :meth:`close`: raises :class:`AttemptOver`."""
        if self._ends:
            raise AttemptOver("the client no longer uses its embedding workers")

    def submit(self, lane: int, owner: Finishing, work: Callable[[], _T]) -> Future[_T]:
        """Do the work of a lane after all work that was given before. Raises the failure of earlier work.

        A lane without further work finishes ``owner``.
        """
        if self._failure.done():
            self._failure.result()
        if not self._executors:
            done: Future[_T] = Future()
            done.set_result(work())
            return done
        self._given[lane] += 1
        return self._executors[lane].submit(self._work, lane, owner, work)

    def result(self, work: Future[_T]) -> _T:
        """What work of a lane gives, once it is done. Raises its failure, and that of any other work meanwhile."""
        if not work.done():
            waiting: list[Future[Any]] = [work, self._failure]
            wait(waiting, return_when=FIRST_COMPLETED)
        if not work.done():
            self._failure.result()
        return work.result()

    def results(self, works: Sequence[Future[_T]]) -> list[_T]:
        """See :meth:`result`."""
        return [self.result(one) for one in works]

    def _work(self, lane: int, owner: Finishing, work: Callable[[], _T]) -> _T:
        self._begun[lane] += 1
        try:
            self.check()
            found = work()
            if self._begun[lane] == self._given[lane]:
                owner.finish()
        except BaseException as error:
            with self._lock:
                if not self._failure.done():
                    self._failure.set_exception(error)
            raise
        return found

    def close(self) -> None:
        """End the threads, after what runs in them has ended: what waits ends soon."""
        self._ends = True
        for executor in self._executors:
            executor.shutdown(cancel_futures=True)
