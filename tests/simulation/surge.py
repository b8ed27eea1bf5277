"""A day of work with a tenfold surge in one hour, under an autoscaling policy."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tests.simulation.event_loop import EventLoop
from tests.simulation.faults import NO_FAULTS, Faults
from tests.simulation.fleet import Fleet, FleetConfig
from tests.simulation.memory_queue import MemoryQueue
from tests.simulation.referee import Referee
from tests.simulation.simulate import EPOCH_SECS, MOST_SECS
from tests.simulation.tally import Tally
from tests.simulation.work import SimTask
from warehouse.scheduling.backlog import Backlog
from warehouse.scheduling.capacity import CapacitySettings, FleetState, workers_wanted
from warehouse.scheduling.fair_shares import ClientShare
from warehouse.scheduling.task_states import DEFAULT_LIMITS

HOUR_SECS = 3600.0

#: Returns the number of workers for a backlog, a time and the current number.
ScalingPolicy = Callable[[Backlog, float, int], int]


@dataclass(frozen=True, slots=True)
class SurgeConfig:
    """The arriving work, by random fragments.

    Attributes:
        hours: The length of the day.
        surge_hour: The hour of the surge.
        surge: The factor of the surge.
        cores: Cores that are busy on average without the surge.
        fragment_tasks: Tasks of a fragment.
        task_secs: Average core seconds of a task, estimated to within half.
        deadlines: Clients with their deadlines in seconds.
        interval_secs: The time between two changes of the fleet.
    """

    hours: int = 12
    surge_hour: int = 3
    surge: float = 10.0
    cores: float = 8.0
    fragment_tasks: int = 5
    task_secs: float = 6.0
    deadlines: tuple[tuple[str, float], ...] = (("ads", 900.0), ("search", 3600.0))
    interval_secs: float = 60.0

    def rate(self, hour: int) -> float:
        """Core seconds of work that arrive per second of an hour, on average."""
        return self.cores * (self.surge if hour == self.surge_hour else 1.0)


@dataclass(frozen=True, slots=True)
class SurgeOutcome:
    """The result of a policy.

    Attributes:
        paid_hours: Hours of workers.
        needed_hours: Hours that they computed with all threads, the least of any policy.
        missed: The share of tasks done after their deadline.
        worst_late_secs: The largest delay of those.
        drain_secs: The time from the end of the surge until the queue was first empty.
        peak: The largest fleet.
        changes: The number of changes of the fleet.
    """

    paid_hours: float
    needed_hours: float
    missed: float
    worst_late_secs: float
    drain_secs: float
    peak: int
    changes: int

    @property
    def wasted(self) -> float:
        """Unused worker hours as a share of the needed ones."""
        return self.paid_hours / self.needed_hours - 1


def fixed(workers: int) -> ScalingPolicy:
    """A policy of a constant fleet."""
    return lambda backlog, now, running: workers


def hinted(settings: CapacitySettings) -> ScalingPolicy:
    """A policy of :func:`~warehouse.scheduling.capacity.workers_wanted`, which keeps its wishes."""
    wishes: tuple[tuple[float, int], ...] = ()

    def wanted(backlog: Backlog, now: float, running: int) -> int:
        nonlocal wishes
        hint = workers_wanted(backlog, FleetState(now, running, wishes), settings)
        wishes = hint.wishes
        return hint.workers

    return wanted


def arrivals(config: SurgeConfig, draw: random.Random) -> list[tuple[float, tuple[SimTask, ...]]]:
    """Arriving tasks, with their times in seconds from the beginning."""
    made: list[tuple[float, tuple[SimTask, ...]]] = []
    fragment_secs = config.fragment_tasks * config.task_secs
    for hour in range(config.hours):
        moment = hour * HOUR_SECS
        while (moment := moment + draw.expovariate(config.rate(hour) / fragment_secs)) < (hour + 1) * HOUR_SECS:
            fragment, client = len(made), draw.choice(config.deadlines)[0]
            first = fragment * config.fragment_tasks + 1
            made.append((moment, tuple(_task(f"{first + n:07d}", fragment, client, config, draw)
                                       for n in range(config.fragment_tasks))))  # fmt: skip
    return made


def _task(key: str, fragment: int, client: str, config: SurgeConfig, draw: random.Random) -> SimTask:
    secs = config.task_secs * draw.lognormvariate(-0.125, 0.5)
    return SimTask(key, ("log", f"part={fragment:07d}"), fragment, {client: 0}, secs * draw.uniform(0.5, 1.5), secs,
                   {"query": 1e8}, 2e7)  # fmt: skip


def run_surge(
    config: SurgeConfig,
    policy: ScalingPolicy,
    *,
    seed: int,
    fleet: FleetConfig,
    faults: Faults = NO_FAULTS,
    lease_secs: float = 60.0,
) -> SurgeOutcome:
    """Simulate the day until all tasks are done. Equal seeds give equal work to every policy."""
    loop, draw = EventLoop(EPOCH_SECS), random.Random(seed + 1)
    deadlines = dict(config.deadlines)
    tally = Tally(lambda: loop.now, deadlines, {})
    limits = DEFAULT_LIMITS
    queue = MemoryQueue(
        [ClientShare(name) for name in deadlines], lease_secs=lease_secs, limits=limits, watchers=[tally]
    )
    team = Fleet(loop, queue, Referee(queue.statuses, limits, lease_secs), fleet, faults, draw)
    work = arrivals(config, random.Random(seed))
    for moment, tasks in work:
        loop.after(moment, partial(queue.add, *tasks))
    manager = _Manager(loop, queue, team, tally, config, policy)
    manager.set_fleet()
    team.inject()
    loop.run(EPOCH_SECS + MOST_SECS)
    return manager.outcome([task for _, tasks in work for task in tasks], fleet.threads)


class _Manager:
    """Sets the fleet by the policy at intervals, and stops it when all tasks are done."""

    def __init__(
        self, loop: EventLoop, queue: MemoryQueue, team: Fleet, tally: Tally, config: SurgeConfig, policy: ScalingPolicy
    ) -> None:
        self._loop, self._queue, self._team, self._tally = loop, queue, team, tally
        self._config, self._policy = config, policy
        self._surge_end = EPOCH_SECS + (config.surge_hour + 1) * HOUR_SECS
        self._day_end = EPOCH_SECS + config.hours * HOUR_SECS
        self._drained_at: float | None = None
        self._peak = self._changes = 0

    def set_fleet(self) -> None:
        """Change the fleet once."""
        now, running = self._loop.now, len(self._team.active)
        if now >= self._surge_end and self._drained_at is None and self._is_drained():
            self._drained_at = now
        if now >= self._day_end and not self._queue.unfinished:
            self._team.ask_to_stop(running)
            return
        wanted = self._policy(self._tally.backlog(), now, running)
        self._changes += wanted != running
        self._team.start(max(0, wanted - running))
        self._team.ask_to_stop(max(0, running - wanted))
        self._peak = max(self._peak, wanted)
        self._loop.after(self._config.interval_secs, self.set_fleet)

    def _is_drained(self) -> bool:
        """Whether all tasks that arrived in the surge are done."""
        now = self._loop.now
        return all(now - one.oldest_secs >= self._surge_end or not one.tasks for one in self._tally.backlog().clients)

    def outcome(self, tasks: Sequence[SimTask], threads: int) -> SurgeOutcome:
        """The result of the day."""
        late = [
            waited - deadline
            for client, deadline in self._config.deadlines
            for waited in self._tally.waits[client]
            if waited > deadline
        ]
        paid_secs = sum((worker.until or self._loop.now) - worker.since for worker in self._team.workers)
        needed_secs = sum(task.true_secs for task in tasks) / threads
        drained_at = self._drained_at or self._loop.now
        return SurgeOutcome(paid_secs / HOUR_SECS, needed_secs / HOUR_SECS, len(late) / len(tasks), max(late, default=0.0),
                            drained_at - self._surge_end, self._peak, self._changes)  # fmt: skip
