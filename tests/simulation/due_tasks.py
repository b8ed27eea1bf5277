"""The times at which tasks become leasable: due retries and expired leases. Each worker's clock differs."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator

from warehouse.scheduling.task_states import MOST_BACKOFF_SECS, STUCK_LEASES, TaskState, TaskStatus, is_leasable

#: A time, and whether it must have passed: a lease expires after ``lease_until``, a retry is due at ``not_before``.
_Moment = tuple[float, int]


def _moment(status: TaskStatus) -> _Moment | None:
    if status.state is TaskState.QUEUED:
        return status.not_before, 0
    if status.state is TaskState.LEASED and status.lease_until is not None:
        return status.lease_until, 1
    return None


class DueTasks:
    """Tasks by the time from which they can be leased; ``status_of`` returns the status of a task.

    :func:`~warehouse.scheduling.task_states.is_leasable` decides; the order of times only selects the tasks to check. A
    time that is too far away is void; all tasks are checked for that only if a clock was set far back.

    :meth:`watch` is called after each change of a task's status, and replaces the earlier time.
    """

    def __init__(self, status_of: Callable[[int], TaskStatus], lease_secs: float) -> None:
        self._status_of, self._lease_secs = status_of, lease_secs
        # By kind of time: the largest distance, and the latest one so far.
        self._spans = (MOST_BACKOFF_SECS, STUCK_LEASES * lease_secs)
        self._latest = [-float("inf"), -float("inf")]
        self._void: dict[int, int] = {}
        self._stamp = 0
        self._stamps: dict[int, tuple[int, _Moment]] = {}
        self._coming: list[tuple[_Moment, int, int]] = []
        self._past: list[tuple[float, int, int, int]] = []

    def watch(self, task_id: int) -> None:
        """Register the new status of a task."""
        moment = _moment(self._status_of(task_id))
        known = self._stamps.get(task_id)
        if moment is None:
            self._stamps.pop(task_id, None)
        elif known is None or known[1] > moment or known[1][1] != moment[1] or known[0] < 0:
            self._push(task_id)
        else:
            self._latest[moment[1]] = max(self._latest[moment[1]], moment[0])
            # Its entry is earlier than its time (after a heartbeat), and is moved then.

    def turned(self, now: float) -> Iterable[tuple[int, bool]]:
        """Tasks that are leasable at ``now`` and were not at the last call (True), or the reverse (False)."""
        is_past = not self._past or (-self._past[0][0], -self._past[0][1]) <= (now, 0)
        is_coming = not self._coming or self._coming[0][0] > (now, 0)
        if is_past and is_coming and not self._void and not self._is_set_back(now):
            return ()
        return self._turned(now)

    def _is_set_back(self, now: float) -> bool:
        """Whether some time may be void."""
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
        """Mark the task as leasable, so that its earlier entries are ignored."""
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
