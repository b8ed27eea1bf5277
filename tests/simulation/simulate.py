"""One simulation: workers, tasks and faults, until no task is left."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation.event_loop import EventLoop
from tests.simulation.faults import NO_FAULTS, Faults
from tests.simulation.fleet import DEFAULT_FLEET, Fleet, FleetConfig, FleetCounts
from tests.simulation.memory_queue import MemoryQueue
from tests.simulation.referee import Ending, Referee
from tests.simulation.work import SimTask
from warehouse.scheduling.fair_shares import ClientShare
from warehouse.scheduling.task_states import DEFAULT_LIMITS, AttemptLimits

#: The start of virtual time in epoch seconds: long after 0, when new tasks are due, on all clocks.
EPOCH_SECS = 1_760_000_000.0

#: A week, the longest simulation.
MOST_SECS = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run of ``virtual_secs``; the last task was finished at ``drained_secs``."""

    ending: Ending
    counts: FleetCounts
    events: int
    virtual_secs: float
    drained_secs: float


def make_tasks(
    draw: random.Random, tasks: int, *, clients: Sequence[str], fragment_tasks: int = 5, partition_fragments: int = 4
) -> tuple[SimTask, ...]:
    """Random work: components over fragments, in partitions, a fifth of them wanted by two clients.

    A task takes two core seconds on average, some ten times as long as others; the queue's estimate is off by up
    to half.
    """
    made = []
    for number in range(1, tasks + 1):
        fragment = (number - 1) // fragment_tasks
        waiting = draw.sample(clients, 2 if len(clients) > 1 and draw.random() < 0.2 else 1)
        secs = draw.lognormvariate(0.43, 0.7)
        made.append(
            SimTask(
                f"{number:07d}", ("log", f"hour={fragment // partition_fragments:07d}"), fragment,
                {client: draw.randint(0, 3) for client in waiting}, secs * draw.uniform(0.5, 1.5), secs,
                {"query": 2e8, "title": 1e8}, 4e7,
            )
        )  # fmt: skip
    return tuple(made)


def simulate(
    tasks: Sequence[SimTask],
    workers: int,
    *,
    seed: int,
    fleet: FleetConfig = DEFAULT_FLEET,
    faults: Faults = NO_FAULTS,
    limits: AttemptLimits = DEFAULT_LIMITS,
    lease_secs: float = 60.0,
    weights: dict[str, float] | None = None,
) -> Outcome:
    """Let ``workers`` compute ``tasks``. Raises :class:`~tests.simulation.referee.InvariantViolation`."""
    draw, loop = random.Random(seed), EventLoop(EPOCH_SECS)
    names = sorted({client for task in tasks for client in task.priorities})
    shares = [ClientShare(name, (weights or {}).get(name, 1.0)) for name in names]
    drained: list[float] = [0.0]

    queue = MemoryQueue(shares, lease_secs=lease_secs, limits=limits,
                        watchers=[lambda *_: drained.__setitem__(0, loop.now)])  # fmt: skip
    referee = Referee(queue.statuses, limits, lease_secs)
    queue.add(*tasks)
    team = Fleet(loop, queue, referee, fleet, faults, draw)
    team.start(workers)
    team.inject()
    loop.run(EPOCH_SECS + MOST_SECS)
    return Outcome(referee.ending(tasks), team.counts, loop.events, loop.now - EPOCH_SECS, drained[0] - EPOCH_SECS)
