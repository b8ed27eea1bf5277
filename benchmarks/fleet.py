"""A fleet for a week: slots stranded with holds and without, and training lost with preemption notices and without.

    python -m benchmarks.fleet [--days 7] [--seed 1]

The scheduler is the one of ``headrace jobs`` (:mod:`trainer.scheduling.fleet`), in a simulation of jobs that arrive, train, fail and wait
for a person. The demand is that of the published fleet: for an hour of training, jobs wait 1.03 hours in the queue and are held for
2.49 hours, each hour times the chips of its job. The arrivals and the time until a person comes were set by trying values until seed 1
of the side with holds and notices came near these ratios; other seeds have longer queues (1.4 to 3.2 with seeds 2 to 5). All other inputs,
also the share of preempted epochs that commit, are assumptions: the constants below. The other sides get the same jobs.

Without holds a failed job keeps its chips until a person comes; if it is preempted by a higher priority, it starts again uncorrected. Without notices a preempted job loses what it trained since its last commit.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from trainer.scheduling.fleet import HAS_SLOTS, FleetEvent, FleetJob, FleetState, StartJob, move, plan

CHIPS = 512
#: The chips of a job, and how many of a hundred jobs have so many.
SIZES = ((4, 30), (8, 25), (16, 20), (32, 14), (64, 8), (128, 3))
PRIORITIES = ((0, 60), (1, 30), (2, 10))
#: Hours of training of a job, and between the errors of one that a person must correct.
TRAINING_HOURS, ERROR_HOURS = 10.0, 8.0
#: Hours until a person has corrected an error: mean of an exponential distribution.
PERSON_HOURS = 22.5
#: Jobs per hour.
ARRIVALS = 3.4
#: Hours between preemptions of a running job by the machine.
PREEMPTION_HOURS = 12.0
EPOCH_HOURS = 0.5
#: The share of preempted epochs that are committed within the grace period, and the hours of a commit and of a start.
COMMITTED_SHARE, COMMIT_HOURS, START_HOURS = 0.99, 20 / 3600, 120 / 3600


@dataclass(frozen=True)
class Side:
    """What the fleet has."""

    name: str
    holds: bool
    notices: bool


SIDES = (
    Side("holds and notices", holds=True, notices=True),
    Side("no holds", holds=False, notices=True),
    Side("no notices", holds=True, notices=False),
    Side("neither", holds=False, notices=False),
)


@dataclass
class Work:
    """A job in the simulation. Times are hours."""

    job: FleetJob
    left: float
    arrived: float
    chance: random.Random
    until_error: float = 0.0
    until_preemption: float = 0.0
    since: float = 0.0
    life: int = 0
    is_stuck: bool = False


@dataclass
class Totals:
    """Chip-hours of a week, by what the chips or the jobs did."""

    training: float = 0.0
    lost_by_errors: float = 0.0
    lost_by_preemptions: float = 0.0
    stranded: float = 0.0
    queued: float = 0.0
    held: float = 0.0
    starting: float = 0.0
    preemptions: int = 0
    done: int = 0


class Simulation:
    """A fleet for some hours."""

    def __init__(self, side: Side, hours: float, seed: int) -> None:
        self.side, self.hours, self.now = side, hours, 0.0
        self.works: dict[int, Work] = {}
        self.totals = Totals()
        self._moments: list[tuple[float, int, int, int, str]] = []
        self._order = itertools.count()
        for number, (at, work) in enumerate(_arrivals(hours, seed), 1):
            self.works[number] = work
            self._at(at, number, work, "arrive")
        self.queue: dict[int, FleetJob] = {}

    def run(self) -> Totals:
        while self._moments and self._moments[0][0] <= self.hours:
            at, _, number, life, what = heapq.heappop(self._moments)
            work = self.works[number]
            if life != work.life and what != "arrive":
                continue
            self.now = at
            self._happen(number, work, what)
            self._schedule()
        self.now = self.hours
        for number in list(self.queue):
            self._account(self.works[number])
        return self.totals

    def _at(self, at: float, number: int, work: Work, what: str) -> None:
        heapq.heappush(self._moments, (at, next(self._order), number, work.life, what))

    def _happen(self, number: int, work: Work, what: str) -> None:
        job = work.job
        self._account(work)
        if what == "arrive":
            self.queue[number] = job
            work.since = self.now
        elif what == "end":
            self.totals.done += 1
            self._move(work, FleetEvent.FINISH)
        elif what == "error":
            work.until_error = work.chance.expovariate(1 / ERROR_HOURS)
            self.totals.lost_by_errors += self._lose(work)
            repaired = self.now + work.chance.expovariate(1 / PERSON_HOURS)
            if self.side.holds:
                self._move(work, FleetEvent.HOLD)
            else:
                work.life += 1
                work.is_stuck = True
            self._at(repaired, number, work, "repaired")
        elif what == "repaired":
            if self.side.holds:
                self._move(work, FleetEvent.RELEASE)
            else:
                work.is_stuck = False
                self._go_on(number, work)
        elif what == "preempted":
            work.until_preemption = work.chance.expovariate(1 / PREEMPTION_HOURS)
            self._leave(number, work)
        else:
            self._move(work, FleetEvent.LEAVE)

    def _leave(self, number: int, work: Work) -> None:
        """A notice, or the end of the machine: the job returns to the queue. Without holds, also one that is stuck."""
        was_stuck, work.is_stuck = work.is_stuck, False
        self.totals.preemptions += 1
        self._move(work, FleetEvent.NOTICE)
        commits = work.chance.random() < COMMITTED_SHARE
        if not was_stuck and not (self.side.notices and commits):
            self.totals.lost_by_preemptions += self._lose(work)
        self._at(self.now + COMMIT_HOURS, number, work, "left")

    def _lose(self, work: Work) -> float:
        """Training since the last commit is lost: a random part of an epoch. The chip-hours."""
        hours = EPOCH_HOURS * work.chance.random()
        work.left += hours
        self.totals.training -= hours * work.job.slots
        return hours * work.job.slots

    def _move(self, work: Work, event: FleetEvent, passed: tuple[int, ...] = ()) -> None:
        work.job = move(work.job, event, passed=passed)
        work.life += 1
        number = work.job.number
        if work.job.state is FleetState.DONE:
            del self.queue[number]
        else:
            self.queue[number] = work.job

    def _schedule(self) -> None:
        for action in plan(self.queue.values(), CHIPS, self.now * 3600):
            work = self.works[action.number]
            self._account(work)
            if isinstance(action, StartJob):
                self._move(work, FleetEvent.START, passed=action.passed)
                self._go_on(action.number, work)
            else:
                self._leave(action.number, work)

    def _go_on(self, number: int, work: Work) -> None:
        work.life += 1
        self.totals.starting += START_HOURS * work.job.slots
        start = self.now + START_HOURS
        work.since = start
        moments = {"end": work.left, "error": work.until_error, "preempted": work.until_preemption}
        what = min(moments, key=moments.__getitem__)
        self._at(start + moments[what], number, work, what)

    def _account(self, work: Work) -> None:
        """Add the chip-hours since the last look."""
        hours = max(0.0, self.now - work.since)
        chips, state = work.job.slots, work.job.state
        if work.is_stuck:
            self.totals.stranded += hours * chips
        elif state is FleetState.RUNNING:
            self.totals.training += hours * chips
            work.left = max(0.0, work.left - hours)
            work.until_error -= hours
            work.until_preemption -= hours
        elif state in HAS_SLOTS:
            self.totals.starting += hours * chips
        elif state is FleetState.HELD:
            self.totals.held += hours * chips
        elif work.job.number in self.queue:
            self.totals.queued += hours * chips
        work.since = max(work.since, self.now)


def _arrivals(hours: float, seed: int) -> Iterator[tuple[float, Work]]:
    chance, at = random.Random(seed), 0.0
    for number in itertools.count(1):
        at += chance.expovariate(ARRIVALS)
        if at >= hours:
            return
        own = random.Random(chance.getrandbits(64))
        size, priority = (
            own.choices([one for one, _ in table], [w for _, w in table])[0] for table in (SIZES, PRIORITIES)
        )
        job = FleetJob(number, f"job-{number}", size, priority)
        work = Work(job, own.expovariate(1 / TRAINING_HOURS), at, own)
        work.until_error = own.expovariate(1 / ERROR_HOURS)
        work.until_preemption = own.expovariate(1 / PREEMPTION_HOURS)
        yield at, work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    hours = options.days * 24
    sides = {side.name: Simulation(side, hours, options.seed).run() for side in SIDES}
    first = sides[SIDES[0].name]
    print(f"{CHIPS} chips for {options.days:g} days, seed {options.seed}: {CHIPS * hours:,.0f} chip-hours")
    print(f"with holds and notices: training 1 : queued {first.queued / first.training:.2f} : held {first.held / first.training:.2f}")  # fmt: skip
    columns = ("training kept", "of all", "stranded", "lost: errors", "lost: preempted", "preemptions", "jobs done")
    print(f"{'':20}" + "".join(f"{name:>17}" for name in columns))
    for name, one in sides.items():
        cells = (f"{one.training:,.0f}", f"{one.training / (CHIPS * hours):.1%}", f"{one.stranded:,.0f}", f"{one.lost_by_errors:,.0f}", f"{one.lost_by_preemptions:,.0f}",
                 f"{one.preemptions:,}", f"{one.done:,}")  # fmt: skip
        print(f"{name:20}" + "".join(f"{cell:>17}" for cell in cells))
    other = sides[SIDES[1].name]
    print(f"holds: {first.stranded:,.0f} chip-hours stranded against {other.stranded:,.0f} without; "
          f"{first.training / other.training:.2f} times the training")  # fmt: skip
    other = sides[SIDES[2].name]
    print(f"notices: {first.lost_by_preemptions:,.0f} chip-hours lost by {first.preemptions:,} preemptions against "
          f"{other.lost_by_preemptions:,.0f} by {other.preemptions:,} without")  # fmt: skip


if __name__ == "__main__":
    main()
