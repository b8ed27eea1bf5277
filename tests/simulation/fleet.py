"""Workers in virtual time. :func:`pipelines.worker.state_machine.decide` decides each step, as in production."""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from pipelines.worker.catalog_retry import CATALOG_RETRY_SECS, catalog_backoff
from pipelines.worker.state_machine import Lease, Run, Sleep, Stop, WorkerState, decide, heartbeat_secs
from tests.simulation.event_loop import EventLoop
from tests.simulation.faults import Faults, moments
from tests.simulation.memory_queue import MemoryQueue
from tests.simulation.referee import Referee
from tests.simulation.work import Grant
from warehouse.scheduling.backoff import TRANSACTION_BACKOFF
from warehouse.scheduling.batching import DEFAULT_BUDGET, BatchBudget


@dataclass(frozen=True, slots=True)
class FleetConfig:
    """Settings of workers; those without a line are as in :class:`~pipelines.worker.worker.WorkerConfig`.

    Attributes:
        job_start_secs: The time of a job before its first fragment.
        call_secs: The time of a lease.
        start_secs: The time from the request of a machine to its first lease.
    """

    threads: int = 1
    budget: BatchBudget = DEFAULT_BUDGET
    job_start_secs: float = 1.0
    call_secs: float = 0.02
    poll_secs: float = 5.0
    start_secs: float = 0.0
    until_idle: bool = True
    catalog_retry_secs: float = CATALOG_RETRY_SECS


DEFAULT_FLEET = FleetConfig()


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request to an unavailable catalog: its start, and attempt ``attempt`` of try ``tries``."""

    since: float
    attempt: int = 1
    tries: int = 1


@dataclass(slots=True, eq=False)
class SimWorker:
    """A worker.

    ``life`` is the number of its process; actions of earlier ones are not run. ``pending``: the unfinished fragments of job
    number ``job``. ``until``: when its machine was released.
    """

    name: str
    since: float
    skew_secs: float = 0.0
    slowdown: float = 1.0
    life: int = 0
    alive: bool = True
    paused_until: float = 0.0
    stop_requested: bool = False
    queue_was_empty: bool = False
    leased: tuple[Grant, ...] = ()
    open: dict[str, Grant] = field(default_factory=dict)
    pending: int = 0
    job: int = 0
    until: float | None = None


@dataclass(slots=True)
class FleetCounts:
    """Counters of the workers; ``busy_secs``: core seconds; ``crashes``: exits because of an unavailable catalog."""

    leases: int = 0
    jobs: int = 0
    commits: int = 0
    fenced: int = 0
    failures: int = 0
    kills: int = 0
    crashes: int = 0
    busy_secs: float = 0.0


class Fleet:
    """The workers of one queue."""

    def __init__(
        self,
        loop: EventLoop,
        queue: MemoryQueue,
        referee: Referee,
        config: FleetConfig,
        faults: Faults,
        draw: random.Random,
    ) -> None:
        self._loop, self._queue, self._referee = loop, queue, referee
        self._config, self._faults, self._draw = config, faults, draw
        self._catalog_retry = catalog_backoff(config.catalog_retry_secs)
        self._raised: defaultdict[str, int] = defaultdict(int)
        self._begun = loop.now
        self.workers: list[SimWorker] = []
        self.counts = FleetCounts()

    @property
    def active(self) -> list[SimWorker]:
        """Workers with a machine that are not stopping."""
        return [worker for worker in self.workers if worker.until is None and not worker.stop_requested]

    def start(self, count: int) -> None:
        """Start more workers."""
        for _ in range(count):
            worker = SimWorker(f"w{len(self.workers)}", self._loop.now)
            worker.skew_secs = self._draw.uniform(-1, 1) * self._faults.skew_secs
            worker.slowdown = self._faults.slowdown if self._draw.random() < self._faults.slow_share else 1.0
            self.workers.append(worker)
            self._later(worker, self._config.start_secs, self._step)

    def ask_to_stop(self, count: int) -> None:
        """Let random workers end after their current job."""
        for worker in self._draw.sample(self.active, count):
            worker.stop_requested = True

    def inject(self) -> None:
        """Schedule the faults of :class:`~tests.simulation.faults.Faults`."""
        faults, window = self._faults, self._faults.window_secs
        for moment in moments(faults.kills, window, self._draw):
            self._loop.after(moment, lambda: self._on_one(self._kill))
        for moment in moments(faults.pauses, window, self._draw):
            self._loop.after(moment, lambda: self._on_one(self._pause))
        for moment in moments(faults.clock_jumps, window, self._draw):
            self._loop.after(moment, lambda: self._on_one(self._jump))

    def _on_one(self, fault: Callable[[SimWorker], None]) -> None:
        alive = [worker for worker in self.workers if worker.alive]
        if alive:
            fault(self._draw.choice(alive))

    def _pause(self, worker: SimWorker) -> None:
        worker.paused_until = self._loop.now + self._faults.pause_secs

    def _jump(self, worker: SimWorker) -> None:
        worker.skew_secs += self._draw.uniform(-1, 1) * self._faults.jump_secs

    def _kill(self, worker: SimWorker) -> None:
        self.counts.kills += 1
        self._die(worker)

    def _die(self, worker: SimWorker) -> None:
        """End the process with its state; another one starts after ``restart_secs``."""
        worker.life += 1
        worker.alive = False
        worker.leased, worker.open, worker.pending = (), {}, 0
        self._later(worker, self._faults.restart_secs, self._come_back)

    def _come_back(self, worker: SimWorker) -> None:
        worker.alive, worker.queue_was_empty = True, False
        self._step(worker)

    def _later(self, worker: SimWorker, secs: float, action: Callable[[SimWorker], None]) -> None:
        """Schedule an action of a worker's current process; a pause delays it."""
        self._loop.after(secs, partial(self._act, worker, worker.life, action))

    def _act(self, worker: SimWorker, life: int, action: Callable[[SimWorker], None]) -> None:
        if worker.life != life:
            return
        if self._loop.now < worker.paused_until:
            self._loop.at(worker.paused_until, partial(self._act, worker, life, action))
            return
        action(worker)

    def _ask_catalog(self, worker: SimWorker, action: Callable[[SimWorker], None], asked: _Asked | None = None) -> None:
        """Run an action on the queue; while the catalog is unavailable, retry as production does, then crash."""
        if not self._faults.is_out(self._loop.now - self._begun):
            action(worker)
            return
        asked = asked or _Asked(self._loop.now)
        draw, passed_secs = self._draw.random(), self._loop.now - asked.since
        wait_secs = TRANSACTION_BACKOFF.next_wait_secs(asked.attempt, passed_secs, draw)
        again = replace(asked, attempt=asked.attempt + 1)
        if wait_secs is None:
            wait_secs = self._catalog_retry.next_wait_secs(asked.tries, passed_secs, draw)
            again = replace(asked, attempt=1, tries=asked.tries + 1)
        if wait_secs is None:
            self.counts.crashes += 1
            self._die(worker)
        else:
            self._later(worker, wait_secs, lambda one: self._ask_catalog(one, action, again))

    def _clock(self, worker: SimWorker) -> float:
        return self._loop.now + worker.skew_secs

    def _step(self, worker: SimWorker) -> None:
        unfinished = self._queue.unfinished if worker.queue_was_empty else 0
        held, empty = len(worker.leased), worker.queue_was_empty
        match decide(WorkerState(held, empty, unfinished, self._config.until_idle, worker.stop_requested)):
            case Lease():
                self._ask_catalog(worker, self._lease)
            case Run():
                self._run(worker)
            case Sleep():
                worker.queue_was_empty = False
                self._later(worker, self._config.poll_secs, self._step)
            case Stop():
                worker.alive, worker.until = False, self._loop.now

    def _lease(self, worker: SimWorker) -> None:
        self.counts.leases += 1
        clock = self._clock(worker)
        name = f"{worker.name}-{self.counts.leases}"
        worker.leased = self._queue.lease(clock, name, self._config.budget)
        self._referee.granted(worker.leased, clock)
        worker.queue_was_empty = not worker.leased
        self._later(worker, self._config.call_secs, self._step)

    def _run(self, worker: SimWorker) -> None:
        """Start a job: fragments in the order of the lease, each on the first free thread."""
        self.counts.jobs += 1
        groups: defaultdict[int, list[Grant]] = defaultdict(list)
        for grant in worker.leased:
            groups[grant.task.fragment].append(grant)
        worker.open = {grant.task.memo_key: grant for grant in worker.leased}
        worker.leased, worker.pending, worker.job = (), len(groups), self.counts.jobs
        free = [self._config.job_start_secs] * self._config.threads
        for grants in groups.values():
            secs = sum(grant.task.true_secs for grant in grants) * worker.slowdown
            end = heapq.heappop(free) + secs
            heapq.heappush(free, end)
            self._later(worker, end, lambda one, grants=grants, secs=secs: self._computed(one, grants, secs))  # type: ignore[misc]
        self._beat_later(worker)

    def _computed(self, worker: SimWorker, grants: list[Grant], secs: float) -> None:
        if any(grant.task.kills for grant in grants):
            self._kill(worker)
            return
        self.counts.busy_secs += secs
        self._ask_catalog(worker, lambda one: self._report(one, grants))

    def _report(self, worker: SimWorker, grants: list[Grant]) -> None:
        """Commit the memos of a fragment, and report failed attempts."""
        raising = {one.task.memo_key for one in grants if self._raised[one.task.memo_key] < one.task.raises}
        good = [one for one in grants if one.task.memo_key not in raising]
        held = self._queue.commit((one, one.task.true_secs * worker.slowdown) for one in good)
        self._referee.committed(good, held)
        self.counts.commits += len(held)
        self.counts.fenced += len(good) - len(held)
        for grant in grants:
            del worker.open[grant.task.memo_key]
            if grant.task.memo_key in raising:
                self._raised[grant.task.memo_key] += 1
                state = self._queue.fail(self._clock(worker), grant, self._draw.random())
                self._referee.failed(grant, state)
                self.counts.failures += state is not None
        worker.pending -= 1
        if not worker.pending:
            self._later(worker, self._config.call_secs, self._step)

    def _beat_later(self, worker: SimWorker) -> None:
        """Schedule the next heartbeat of a running job."""
        job = worker.job

        def beat(worker: SimWorker) -> None:
            if worker.pending and worker.job == job:
                clock, asked = self._clock(worker), list(worker.open.values())
                self._referee.beaten(asked, self._queue.beat(clock, asked), clock)
                self._beat_later(worker)

        self._later(worker, heartbeat_secs(self._queue.lease_secs), lambda one: self._ask_catalog(one, beat))
