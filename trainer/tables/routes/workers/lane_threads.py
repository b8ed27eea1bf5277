"""The threads of the lanes of a client: each lane works in order, and all lanes at once.

Servers make the updates of all lanes in the order of their numbers, so a lane may wait for an update of another one. Each lane therefore has a
thread of its own, which notices soon when its worker ends, and sends again what was not made: a lane with nothing else to do waits until the
servers have made its updates.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from trainer.errors import AttemptOver

_T = TypeVar("_T")
#: A lane waits for its updates after so long without work. Sooner its next lookup would wait for them, too.
IDLE_SECS = 0.2


class Finishing(Protocol):
    """A lane, as its thread sees it; see :class:`~trainer.tables.routes.workers.lane.WorkerLane`."""

    def finish(self) -> None:
        """Wait until the servers have made all updates of the lane. Raises what they refused."""


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """Work for a lane, and what it gives."""

    owner: Finishing
    call: Callable[[], Any]
    result: Future[Any]


class LaneThreads:
    """Works for the lanes of a client from its construction until :meth:`close`. One thread calls it.

    Work for one lane alone is done in the thread of the caller: nothing waits for another lane.

    After a failure all that waits ends with it: an update that was not made holds up those of all lanes.

    Args:
        lanes: their number.
        idle_secs: after which a lane without work finishes its owner.
    """

    def __init__(self, lanes: int, *, idle_secs: float = IDLE_SECS) -> None:
        self._idle_secs = idle_secs
        self._queues: list[SimpleQueue[_Work | None]] = [SimpleQueue() for _ in range(lanes)] if lanes > 1 else []
        self._failure: Future[None] = Future()
        self._lock, self._ends = threading.Lock(), False
        self._threads = [
            threading.Thread(target=self._run, args=(queue,), name=f"lane {lane}", daemon=True)
            for lane, queue in enumerate(self._queues)
        ]
        for thread in self._threads:
            thread.start()

    def check(self) -> None:
        """End what waits in a lane after :meth:`close`: raises :class:`AttemptOver`."""
        if self._ends:
            raise AttemptOver("the client no longer uses its embedding workers")

    def submit(self, lane: int, owner: Finishing, call: Callable[[], _T]) -> Future[_T]:
        """Do the work of a lane after all work that was given before. Raises the failure of earlier work.

        A lane without further work finishes ``owner``.
        """
        if self._failure.done():
            self._failure.result()
        result: Future[_T] = Future()
        if self._queues:
            self._queues[lane].put(_Work(owner, call, result))
        else:
            result.set_result(call())
        return result

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

    def _run(self, queue: SimpleQueue[_Work | None]) -> None:
        owner: Finishing | None = None
        while True:
            try:
                work = queue.get(timeout=None if owner is None else self._idle_secs)
            except Empty:
                assert owner is not None
                with suppress(BaseException):  # it is noted
                    self._noted(owner.finish)
                owner = None
                continue
            if work is None:
                return
            owner = work.owner
            try:
                work.result.set_result(self._noted(work.call))
            except BaseException as error:
                work.result.set_exception(error)

    def _noted(self, call: Callable[[], _T]) -> _T:
        """Call it, and note its failure for all that waits."""
        try:
            self.check()
            return call()
        except BaseException as error:
            with self._lock:
                if not self._failure.done():
                    self._failure.set_exception(error)
            raise

    def close(self) -> None:
        """End the threads, after what runs in them has ended: what waits ends soon."""
        self._ends = True
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join()
