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

    def __init__(self, status_of: Callable[[str], TaskStatus], lease_secs: float) -> None:
        self._status_of, self._lease_secs = status_of, lease_secs
        # By kind of time: the largest distance, and the latest one so far.
        self._spans = (MOST_BACKOFF_SECS, STUCK_LEASES * lease_secs)
        self._latest = [-float("inf"), -float("inf")]
        self._void: dict[str, int] = {}
        self._stamp = 0
        self._stamps: dict[str, tuple[int, _Moment]] = {}
        self._coming: list[tuple[_Moment, int, str]] = []
        self._past: list[tuple[float, int, int, str]] = []

    def watch(self, key: str) -> None:
        """Register the new status of a task."""
        moment = _moment(self._status_of(key))
        known = self._stamps.get(key)
        if moment is None:
            self._stamps.pop(key, None)
        elif known is None or known[1] > moment or known[1][1] != moment[1] or known[0] < 0:
            self._push(key)
        else:
            self._latest[moment[1]] = max(self._latest[moment[1]], moment[0])
            # Its entry is earlier than its time (after a heartbeat), and is moved then.

    def turned(self, now: float) -> Iterable[tuple[str, bool]]:
        """Tasks that are leasable at ``now`` and were not at the last call (True), or the reverse (False)."""
        is_past = not self._past or (-self._past[0][0], -self._past[0][1]) <= (now, 0)
        is_coming = not self._coming or self._coming[0][0] > (now, 0)
        if is_past and is_coming and not self._void and not self._is_set_back(now):
            return ()
        return self._turned(now)

    def _is_set_back(self, now: float) -> bool:
        """Whether some time may be void."""
        return self._latest[0] > now + self._spans[0] or self._latest[1] > now + self._spans[1]

    def _turned(self, now: float) -> Iterator[tuple[str, bool]]:
        yield from self._no_longer_void(now)
        while self._past and (-self._past[0][0], -self._past[0][1]) > (now, 0):
            _, _, stamp, key = heapq.heappop(self._past)
            if self._is_known(key, stamp):
                self._push(key)
                yield key, False
        while self._coming and self._coming[0][0] <= (now, 0):
            _, stamp, key = heapq.heappop(self._coming)
            if not self._is_known(key, stamp):
                continue
            if not is_leasable(self._status_of(key), now, self._lease_secs):
                self._push(key)
                continue
            moment = self._turn(key)
            heapq.heappush(self._past, (-moment[0], -moment[1], -self._stamp, key))
            yield key, True
        if self._is_set_back(now):
            yield from self._become_void(now)

    def _become_void(self, now: float) -> Iterator[tuple[str, bool]]:
        self._latest = [-float("inf"), -float("inf")]
        for key, (stamp, _) in list(self._stamps.items()):
            if stamp < 0:
                continue
            if is_leasable(self._status_of(key), now, self._lease_secs):
                self._turn(key)
                self._void[key] = -self._stamp
                yield key, True
            else:
                self._push(key)

    def _no_longer_void(self, now: float) -> Iterator[tuple[str, bool]]:
        for key, stamp in list(self._void.items()):
            if not self._is_known(key, stamp):
                del self._void[key]
            elif not is_leasable(self._status_of(key), now, self._lease_secs):
                del self._void[key]
                self._push(key)
                yield key, False

    def _turn(self, key: str) -> _Moment:
        """Mark the task as leasable, so that its earlier entries are ignored."""
        moment = _moment(self._status_of(key))
        assert moment is not None
        self._stamp += 1
        self._stamps[key] = (-self._stamp, moment)
        return moment

    def _push(self, key: str) -> None:
        moment = _moment(self._status_of(key))
        assert moment is not None
        self._stamp += 1
        self._stamps[key] = (self._stamp, moment)
        self._latest[moment[1]] = max(self._latest[moment[1]], moment[0])
        heapq.heappush(self._coming, (moment, self._stamp, key))

    def _is_known(self, key: str, stamp: int) -> bool:
        known = self._stamps.get(key)
        return known is not None and known[0] == stamp
