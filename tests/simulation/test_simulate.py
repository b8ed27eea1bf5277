"""Simulated fleets under faults: the referee checks every event, the tests check the end."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.simulation import simulate as simulation
from tests.simulation.faults import Faults, with_bad_tasks
from tests.simulation.fleet import FleetConfig
from tests.simulation.memory_queue import MemoryQueue
from tests.simulation.referee import InvariantViolation
from tests.simulation.simulate import Outcome, make_tasks, simulate
from tests.simulation.work import Grant, SimTask
from transforms.errors import InputError
from warehouse.scheduling.batching import BatchBudget
from warehouse.scheduling.fair_shares import Charge, ClientShare
from warehouse.scheduling.task_states import AttemptLimits, TaskState, apply_change, commit_change, is_leasable

CLIENTS = ("ads", "feed", "search")
FLEET = FleetConfig(budget=BatchBudget(1e9, 50))


def work(tasks: int = 400, seed: int = 0) -> tuple[SimTask, ...]:
    return make_tasks(random.Random(seed), tasks, clients=CLIENTS)


def run(tasks: tuple[SimTask, ...], faults: Faults, workers: int = 10, **others: Any) -> Outcome:
    return simulate(tasks, workers, seed=1, fleet=others.pop("fleet", FLEET), faults=faults, **others)


def test_work_is_done_and_nothing_is_done_twice() -> None:
    found = run(work(), Faults())
    assert (found.ending.done, found.counts.commits, found.counts.fenced) == (400, 400, 0)
    assert found.counts.busy_secs == pytest.approx(sum(task.true_secs for task in work()))


def test_the_same_seed_is_the_same_run() -> None:
    faults = Faults(window_secs=60, kills=5, pauses=3, skew_secs=5)
    assert run(work(), faults) == run(work(), faults)


@pytest.mark.parametrize("seed", range(4))
def test_everything_at_once(seed: int) -> None:
    draw = random.Random(seed)
    tasks = with_bad_tasks(work(600, seed), draw, flaky=30, poison=5, killers=3)
    faults = Faults(window_secs=120, kills=6, pauses=6, pause_secs=150, clock_jumps=6, skew_secs=5, slow_share=0.1,
                    outages=((30, 5), (60, 40)))  # fmt: skip
    found = simulate(tasks, 20, seed=seed, fleet=FLEET, faults=faults)
    assert (found.ending.done, found.ending.raised, found.ending.lost, found.ending.faultless) == (592, 5, 3, 0)


def test_a_paused_worker_is_fenced_off() -> None:
    found = run(work(), Faults(window_secs=30, pauses=5, pause_secs=500))
    assert found.counts.fenced > 0
    assert found.ending.done == found.counts.commits == 400


def test_a_killed_worker_s_tasks_wait_for_its_leases_to_run_out() -> None:
    calm, killed = run(work(), Faults()), run(work(), Faults(window_secs=30, kills=5))
    assert killed.counts.kills == 5
    assert killed.ending.done == 400
    assert killed.drained_secs > calm.drained_secs


def test_while_the_catalog_is_away_workers_wait_and_then_crash() -> None:
    short, long = run(work(), Faults(outages=((10, 60),))), run(work(), Faults(outages=((10, 700),)))
    assert short.counts.crashes == 0
    assert long.counts.crashes > 0
    assert short.ending.done == long.ending.done == 400


def test_stragglers_keep_their_leases() -> None:
    found = run(work(), Faults(slow_share=0.3, slowdown=50), lease_secs=10)
    assert (found.ending.done, found.counts.fenced) == (400, 0)


def test_a_task_that_kills_its_workers_fails_no_other_task() -> None:
    # One partition, and unlimited batches: a worker that leases the killer leases the other tasks with it.
    draw = random.Random(3)
    tasks = tuple(replace(task, place=("log", "one")) for task in work(100))
    found = run(
        with_bad_tasks(tasks, draw, killers=1), Faults(), workers=2, fleet=FleetConfig(budget=BatchBudget(1e12))
    )
    assert (found.ending.done, found.ending.lost, found.ending.faultless) == (99, 1, 0)
    assert found.counts.kills == AttemptLimits().max_losses


def test_clients_get_their_shares_while_all_wait() -> None:
    tasks = tuple(
        SimTask(f"{n:07d}", ("log", f"{client}{n}"), n, {client: 0}, raw_bytes={"query": 1e8})
        for n, client in enumerate(("ads", "feed", "search") * 400)
    )
    shares = [ClientShare("ads", 6.0), ClientShare("feed", 3.0), ClientShare("search", 0.01)]
    queue = MemoryQueue(shares)
    queue.add(*tasks)
    got = dict.fromkeys(("ads", "feed", "search"), 0.0)
    for turn in range(200):
        for grant in queue.lease(1e9, f"lease-{turn}", BatchBudget(3e8)):
            (client,) = grant.task.priorities
            got[client] += grant.task.secs
    # One lease is three seconds of work here: each client is within one lease of all clients from its share.
    assert got["search"] == pytest.approx(0.05 * 600, abs=9)
    assert got["ads"] == pytest.approx(0.95 * 600 * 6 / 9, abs=9)


def test_shares_are_of_measured_time_not_of_estimates() -> None:
    """One client's tasks take four times as long as is thought, the other's as long."""
    true_secs = {"ads": 4.0, "feed": 1.0}
    tasks = tuple(
        SimTask(f"{n:07d}", ("log", f"{client}{n}"), n, {client: 0}, 1.0, true_secs[client], raw_bytes={"query": 1e8})
        for n, client in enumerate(("ads", "feed") * 400)
    )
    queue = MemoryQueue([ClientShare("ads"), ClientShare("feed")])
    queue.add(*tasks)
    got = dict.fromkeys(true_secs, 0.0)
    for turn in range(100):
        grants = queue.lease(1e9, f"lease-{turn}", BatchBudget(3e8))
        assert queue.commit((grant, grant.task.true_secs) for grant in grants) == grants
        for grant in grants:
            (client,) = grant.task.priorities
            got[client] += grant.task.true_secs
    assert got["ads"] == pytest.approx(got["feed"], abs=15), "within a turn of both"


class _Unfenced(MemoryQueue):
    """A queue that forgets to look at fences."""

    def commit(self, done: Iterable[tuple[Grant, float]]) -> tuple[Grant, ...]:
        listed = tuple(one for one, _ in done if self.statuses[one.task.memo_key].state is TaskState.LEASED)
        for grant in listed:
            self._set(grant.task, apply_change(self.statuses[grant.task.memo_key], commit_change()))
        return listed


class _Hasty(MemoryQueue):
    """A queue that takes leases away before they have run out."""

    def _bring_up_to(self, now: float) -> None:
        super()._bring_up_to(now)
        for key, status in self.statuses.items():
            if status.state is TaskState.LEASED and is_leasable(status, now + 50):
                self._ready.remove(self.tasks[key])
                self._ready.add(self.tasks[key])


class _Forgetful(MemoryQueue):
    """A queue that counts no lost worker."""

    def _grant(self, task: SimTask, client: str, name: str, now: float, charge: Charge) -> Grant:
        grant = super()._grant(task, client, name, now, charge)
        self.statuses[task.memo_key] = replace(self.statuses[task.memo_key], losses=0)
        return grant


@pytest.mark.parametrize(
    ("queue", "why"), [(_Unfenced, "without the fencing token"), (_Hasty, "held twice"), (_Forgetful, "counts")]
)
def test_the_referee_detects_a_wrong_queue(queue: type[MemoryQueue], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "MemoryQueue", queue)
    with pytest.raises(InvariantViolation, match=why):
        run(work(), Faults(window_secs=30, kills=5, pauses=8, pause_secs=75))


def test_nonsense_is_refused() -> None:
    for nonsense in ({"kills": -1}, {"window_secs": 0.0}, {"slowdown": 0.5}):
        with pytest.raises(InputError, match="fault"):
            Faults(**nonsense)


@pytest.mark.slow
def test_a_thousand_workers_and_a_hundred_thousand_tasks() -> None:
    draw = random.Random(1)
    tasks = with_bad_tasks(make_tasks(draw, 100_000, clients=CLIENTS), draw, flaky=1000, poison=100, killers=20)
    faults = Faults(kills=100, pauses=50, clock_jumps=50, skew_secs=5, slow_share=0.05, outages=((60, 20),))
    found = simulate(tasks, 1000, seed=2, fleet=FleetConfig(budget=BatchBudget(1e9)), faults=faults)
    assert (found.ending.done, found.ending.raised, found.ending.lost, found.ending.faultless) == (99_880, 100, 20, 0)
