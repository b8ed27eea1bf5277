"""The autoscale hint: the number of workers that the queues need. Pure.

By its fair share, each client's queue is empty after an amount of work of the whole fleet that does not depend on the
fleet's size. The hint is the smallest fleet that does this work by each client's deadline, counted from its oldest task,
less the start time of new workers. The fleet grows at once and shrinks when the hint was smaller for ``shrink_after_secs``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from transforms.errors import InputError
from warehouse.scheduling.backlog import Backlog, ClientBacklog
from warehouse.scheduling.fair_shares import FLOOR_SHARE, shares


@dataclass(frozen=True, slots=True)
class CapacitySettings:
    """The size of a worker, and the limits of the fleet.

    Attributes:
        threads: Threads of a worker.
        utilisation: The part of the time that threads compute; the rest is starts of jobs, and reading.
        start_secs: The time until a new worker computes.
        target_share: The part of a deadline that is planned with; the rest is a margin for wrong estimates.
        late_share: The part of its deadline in which late work is done.
        min_workers: The smallest fleet.
        max_workers: The largest fleet.
        shrink_after_secs: How long a smaller fleet must have been enough before the fleet shrinks.
        floor_share: The minimum share of a waiting client.
    """

    threads: int = 4
    utilisation: float = 0.8
    start_secs: float = 60.0
    target_share: float = 0.8
    late_share: float = 0.1
    min_workers: int = 0
    max_workers: int = 100
    shrink_after_secs: float = 300.0
    floor_share: float = FLOOR_SHARE

    def __post_init__(self) -> None:
        if not (self.threads >= 1 and 0 <= self.min_workers <= self.max_workers and self.max_workers >= 1):
            raise InputError("threads and workers must be in the allowed range", where="CapacitySettings",
                             value=(self.threads, self.min_workers, self.max_workers),
                             allowed="threads >= 1, 0 <= min_workers <= max_workers, max_workers >= 1")  # fmt: skip
        for name in ("utilisation", "target_share", "late_share"):
            if not 0 < getattr(self, name) <= 1:
                raise InputError(
                    f"{name} must be a share in (0, 1]", where=f"CapacitySettings.{name}", value=getattr(self, name)
                )
        for name in ("start_secs", "shrink_after_secs"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise InputError(f"{name} must be finite and >= 0", where=f"CapacitySettings.{name}",
                                 value=getattr(self, name), allowed="seconds >= 0")  # fmt: skip

    @property
    def worker_rate(self) -> float:
        """Seconds of one core that a worker computes per second."""
        return self.threads * self.utilisation


@dataclass(frozen=True, slots=True)
class FleetState:
    """The fleet at a moment.

    Attributes:
        now: The moment, in epoch seconds.
        running: Workers that run or start.
        wishes: Earlier hints as (moment, workers), oldest first.
    """

    now: float
    running: int = 0
    wishes: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ClientHint:
    """The hint for one client.

    Attributes:
        client: The client.
        workers: The fleet that its deadline needs.
        drain_secs: The time until its queue is empty with the hinted fleet.
        left_secs: The time until the deadline of its oldest task; below 0 after it.
    """

    client: str
    workers: int
    drain_secs: float
    left_secs: float


@dataclass(frozen=True, slots=True)
class CapacityHint:
    """The autoscale hint.

    Attributes:
        workers: The number of workers.
        needed: The same without the wait before shrinking.
        clients: The hints by client.
        binding: The client that needs the most workers.
        drain_secs: The time until all queues are empty with ``workers``.
        why: The reason in a sentence.
        wishes: For the next :class:`FleetState`.
    """

    workers: int
    needed: int
    clients: tuple[ClientHint, ...]
    binding: str
    drain_secs: float
    why: str
    wishes: tuple[tuple[float, int], ...]


def workers_wanted(backlog: Backlog, state: FleetState, settings: CapacitySettings) -> CapacityHint:
    """The hint for a backlog. Deterministic; more work, less time or fewer threads never need fewer workers."""
    waiting = [one for one in backlog.clients if one.tasks]
    work = drain_work(waiting, settings.floor_share)
    wanted = {one.client: _workers_for(one, work[one.client], state, settings) for one in waiting}
    asked = max(wanted.values(), default=0)
    binding = min((name for name, count in wanted.items() if count == asked), default="")
    # One fragment is computed by one thread.
    useful = min(asked, math.ceil(max(backlog.fragments, 1) / settings.threads))
    needed = min(max(useful, settings.min_workers), settings.max_workers)
    kept = tuple((at, count) for at, count in state.wishes if state.now - settings.shrink_after_secs < at <= state.now)
    wishes = (*kept, (state.now, needed))
    workers = max(needed, min(max(count for _, count in wishes), state.running))
    hints = tuple(
        ClientHint(one.client, wanted[one.client], _drain_secs(work[one.client], workers, state, settings),
                   one.deadline_secs - one.oldest_secs)
        for one in waiting
    )  # fmt: skip
    drain_secs = max((one.drain_secs for one in hints), default=0.0)
    why = _why(waiting, binding, asked, useful, workers, needed, settings)
    return CapacityHint(workers, needed, hints, binding, drain_secs, why, wishes)


def drain_work(clients: Sequence[ClientBacklog], floor_share: float = FLOOR_SHARE) -> dict[str, float]:
    """Core seconds of the whole fleet, divided by fair shares, until each client's queue is empty."""
    left = {one.client: one.secs for one in clients}
    weights = {one.client: one.weight for one in clients}
    done, found = 0.0, dict[str, float]()
    while left:
        share = shares({name: weights[name] for name in left}, floor_share)
        first = min(left, key=lambda name: (left[name] / share[name], name))
        step = left[first] / share[first]
        done += step
        found[first] = done
        left = {name: max(0.0, secs - step * share[name]) for name, secs in left.items() if name != first}
    return found


def _workers_for(one: ClientBacklog, work_secs: float, state: FleetState, settings: CapacitySettings) -> int:
    """The smallest fleet that does ``work_secs`` in the client's remaining time; running workers need no start."""
    patience = one.deadline_secs * settings.target_share - one.oldest_secs
    left = max(patience, one.deadline_secs * settings.late_share, 1e-3)
    rate = settings.worker_rate
    if state.running * rate * left >= work_secs:
        return max(1, math.ceil(work_secs / (rate * left) * (1 - 1e-9)))
    useful = max(left - settings.start_secs, one.deadline_secs * settings.late_share, 1e-3)
    by_then = state.running * rate * (left - useful)
    return max(state.running + 1, math.ceil(max(work_secs - max(by_then, 0.0), 0.0) / (rate * useful) * (1 - 1e-9)))


def _drain_secs(work_secs: float, workers: int, state: FleetState, settings: CapacitySettings) -> float:
    if work_secs <= 0:
        return 0.0
    rate = settings.worker_rate
    early = min(state.running, workers) * rate
    if workers <= state.running:
        return work_secs / early
    if early * settings.start_secs >= work_secs:
        return work_secs / early
    return settings.start_secs + (work_secs - early * settings.start_secs) / (workers * rate)


def _why(
    waiting: Sequence[ClientBacklog], binding: str, asked: int, useful: int, workers: int, needed: int,
    settings: CapacitySettings,
) -> str:  # fmt: skip
    kept = f"; {needed} would do, but more were needed within the last {settings.shrink_after_secs:.0f} s"
    if not waiting:
        least = f"; never fewer than {settings.min_workers}" if settings.min_workers else ""
        return "nothing is queued" + least + (kept if workers > needed else "")
    one = next(one for one in waiting if one.client == binding)
    left = one.deadline_secs - one.oldest_secs
    late = f"{_span(left)} left to do it in" if left > 0 else f"its oldest task is {_span(-left)} late"
    text = f"{binding} has {one.tasks} {'task' if one.tasks == 1 else 'tasks'} in its queue, {_span(one.secs)} of work for one core, and {late}"
    if useful < asked:
        text += f"; its deadline asks for {asked}, but there are fragments for {useful} only"
    if needed == settings.max_workers < useful:
        text += f"; it asks for {asked}, and {needed} is the most allowed"
    return text + (kept if workers > needed else "")


def _span(secs: float) -> str:
    """An estimated duration, rounded to one unit."""
    if secs < 1:
        return "under 1 s"
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if secs >= 2 * size:
            return f"{secs / size:.0f} {unit}"
    return f"{secs:.0f} s"
