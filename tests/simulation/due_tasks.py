"""The times at which tasks become leasable: due retries and expired leases. Each worker's clock differs."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator

from warehouse.scheduling.task_states import MOST_BACKOFF_SECS, STUCK_LEASES, TaskState, TaskStatus, is_leasable

#: A moment, and whether it must have passed: a lease runs out after ``lease_until``, a retry is due at ``not_before``.
_Moment = tuple[float, int]


def _moment(status: TaskStatus) -> _Moment | None:
    if status.state is TaskState.QUEUED:
        return status.not_before, 0
    if status.state is TaskState.LEASED and status.lease_until is not None:
        return status.lease_until, 1
    return None


class DueTasks:
    """Tasks by the moment from which on they can be leased. ``status_of``: how a task stands.

    What :func:`~warehouse.scheduling.task_states.is_leasable` says is decisive; the order of moments only tells whom to ask about. A
    moment that is too far away is void: that is looked for, in all tasks, only by a clock that was set far back.

    A task is told of (:meth:`watch`) whenever its status changes. What was told before does not count any more.
    """

    def __init__(self, status_of: Callable[[int], TaskStatus], lease_secs: float) -> None:
        self._status_of, self._lease_secs = status_of, lease_secs
        # By kind of moment: how far away it may be, and the latest one that was ever seen.
        self._spans = (MOST_BACKOFF_SECS, STUCK_LEASES * lease_secs)
        self._latest = [-float("inf"), -float("inf")]
        self._void: dict[int, int] = {}
        self._stamp = 0
        self._stamps: dict[int, tuple[int, _Moment]] = {}
        self._coming: list[tuple[_Moment, int, int]] = []
        self._past: list[tuple[float, int, int, int]] = []

    def watch(self, task_id: int) -> None:
        """The task's status is a new one."""
        moment = _moment(self._status_of(task_id))
        known = self._stamps.get(task_id)
        if moment is None:
            self._stamps.pop(task_id, None)
        elif known is None or known[1] > moment or known[1][1] != moment[1] or known[0] < 0:
            self._push(task_id)
        else:
            self._latest[moment[1]] = max(self._latest[moment[1]], moment[0])
            # It comes up earlier than it is due (its worker beat), and is put back then.

    def turned(self, now: float) -> Iterable[tuple[int, bool]]:
        """Tasks that by a clock at ``now`` can be leased and by the last one could not (True), or the other way round."""
        is_past = not self._past or (-self._past[0][0], -self._past[0][1]) <= (now, 0)
        is_coming = not self._coming or self._coming[0][0] > (now, 0)
        if is_past and is_coming and not self._void and not self._is_set_back(now):
            return ()
        return self._turned(now)

    def _is_set_back(self, now: float) -> bool:
        """Whether some moment may be void."""
        return self._latest[0] > now + self._spans[0] or self._latest[1] > now + self._spans[1]

    def _turned(self, now: float) -> Iterator[tuple[int, bool]]:
        yield from self._no_longer_void(now)
        while self._past and (-self._past[0][0], -self._past[0][1]) > (now, 0):
            _, _, stamp, task_id = heapq.heappop(self._past)
            if self._is_known(task_id, stamp):
                self._push(task_id)
                yield task_id, False
        while self._coming and self._coming[0][0] <= (now, 0):
            _, stamp, task_id = heapq.heappop(self._coming)
            if not self._is_known(task_id, stamp):
                continue
            if not is_leasable(self._status_of(task_id), now, self._lease_secs):
                self._push(task_id)
                continue
            moment = self._turn(task_id)
            heapq.heappush(self._past, (-moment[0], -moment[1], -self._stamp, task_id))
            yield task_id, True
        if self._is_set_back(now):
            yield from self._become_void(now)

    def _become_void(self, now: float) -> Iterator[tuple[int, bool]]:
        self._latest = [-float("inf"), -float("inf")]
        for task_id, (stamp, _) in list(self._stamps.items()):
            if stamp < 0:
                continue
            if is_leasable(self._status_of(task_id), now, self._lease_secs):
                self._turn(task_id)
                self._void[task_id] = -self._stamp
                yield task_id, True
            else:
                self._push(task_id)

    def _no_longer_void(self, now: float) -> Iterator[tuple[int, bool]]:
        for task_id, stamp in list(self._void.items()):
            if not self._is_known(task_id, stamp):
                del self._void[task_id]
            elif not is_leasable(self._status_of(task_id), now, self._lease_secs):
                del self._void[task_id]
                self._push(task_id)
                yield task_id, False

    def _turn(self, task_id: int) -> _Moment:
        """The task can be leased from now on: what stands in the order of moments says so no more."""
        moment = _moment(self._status_of(task_id))
        assert moment is not None
        self._stamp += 1
        self._stamps[task_id] = (-self._stamp, moment)
        return moment

    def _push(self, task_id: int) -> None:
        moment = _moment(self._status_of(task_id))
        assert moment is not None
        self._stamp += 1
        self._stamps[task_id] = (self._stamp, moment)
        self._latest[moment[1]] = max(self._latest[moment[1]], moment[0])
        heapq.heappush(self._coming, (moment, self._stamp, task_id))

    def _is_known(self, task_id: int, stamp: int) -> bool:
        known = self._stamps.get(task_id)
        return known is not None and known[0] == stamp
