from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.simulation.training_job import HEAVY, InvariantViolation, JobFaults, Part, Simulation, Storage
from tests.support.examples import scaled
from trainer.scheduling.job import JobSettings, PhaseSettings
from trainer.scheduling.orders import Commit, Publish
from trainer.scheduling.transitions import JobState

STOPS = (*range(40, 300, 40), 300)


def random_run(seed: int) -> Simulation:
    """A job of random settings under all faults."""
    draw = random.Random(seed)
    phase = PhaseSettings(epoch_secs=draw.choice([None, 15.0]), least_readers=draw.choice([0, 1]))
    hosts = draw.choice([1, 2, 3])
    settings = JobSettings(
        hosts=hosts,
        goes_on=draw.random() < 0.5,
        overlap=draw.random() < 0.5,
        is_finite=draw.random() < 0.8,
        most_restarts=draw.choice([3, 10]),
        behind_units=draw.choice([None, 30]),
        initial=phase,
        caught_up=replace(phase, hosts=draw.choice([0, *range(1, hosts + 1)])),
    )
    sim = Simulation(
        seed,
        settings=settings,
        faults=HEAVY,
        units=300,
        stops=STOPS if draw.random() < 0.5 else (),
        spare_hosts=draw.choice([0, 1]),
        grown=[(draw.uniform(1, 400), 50), (draw.uniform(1, 800), 20)],
        stop_secs=None if settings.is_finite else 900.0,
    )
    sim.run()
    return sim


def check(sim: Simulation) -> None:
    """The storage has checked every commit: consecutive epochs, and each unit once, in order. This is about the end."""
    last = sim.storage.commits[-1].commit
    data = sim.data if not sim.settings.is_finite else sim.controller.job.data
    assert data is not None
    assert last.next_unit == data.stop_unit, "all data is committed"
    assert sim.controller.job.commit == last
    assert sim.controller.job.state is (JobState.DONE if sim.settings.is_finite else JobState.STOPPED)


@pytest.mark.medium
def test_jobs_under_faults_train_every_unit_once() -> None:
    for seed in range(scaled(12)):
        check(random_run(seed))


@pytest.mark.slow
def test_many_jobs_under_faults_train_every_unit_once() -> None:
    reached: set[JobState] = set()
    for seed in range(1000, 1200):
        sim = random_run(seed)
        check(sim)
        reached |= {state for _, state in sim.states}
    assert reached == set(JobState)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_job_without_faults_needs_one_attempt_per_epoch(overlap: bool) -> None:
    settings = JobSettings(hosts=2, overlap=overlap)
    sim = Simulation(1, settings=settings, faults=JobFaults(window_secs=1.0), units=300, stops=STOPS)
    sim.run()
    assert sim.attempts == len(STOPS)
    assert [one.commit.next_unit for one in sim.storage.commits] == list(STOPS)


def test_an_overlapped_commit_shortens_the_job() -> None:
    secs = {}
    for overlap in (False, True):
        settings = JobSettings(hosts=1, overlap=overlap)
        sim = Simulation(3, settings=settings, faults=JobFaults(window_secs=1.0), units=300, stops=STOPS)
        sim.run()
        secs[overlap] = sim.states[-1][0]
    assert secs[True] < secs[False] - 20


@pytest.mark.medium
@pytest.mark.parametrize("overlap", [False, True])
def test_faults_do_not_change_where_epochs_end(overlap: bool) -> None:
    """Without wall time and notices, epochs are the same however often processes are lost: so are batches, and weights."""
    faults = replace(HEAVY, role_notices=0, job_notices=0, kills=25)
    for seed in range(scaled(6)):
        settings = JobSettings(hosts=1 + seed % 3, overlap=overlap, most_restarts=10)
        sim = Simulation(seed, settings=settings, faults=faults, units=300, stops=STOPS)
        sim.run()
        assert [one.commit.next_unit for one in sim.storage.commits] == list(STOPS)


def test_a_clock_that_jumps_restarts_nothing_and_ends_no_epoch() -> None:
    settings = JobSettings(hosts=2, initial=PhaseSettings(epoch_secs=100.0))
    sim = Simulation(5, settings=settings, faults=JobFaults(window_secs=100.0, jumps=30), units=300, stops=STOPS)
    sim.run()
    assert JobState.RESTARTING not in {state for _, state in sim.states}
    assert sim.attempts == len(STOPS)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_job_continues_with_other_numbers_of_hosts_and_readers(seed: int) -> None:
    """Each run is stopped under faults; the storage checks that the next one goes on at the same unit."""
    sim: Simulation | None = None
    for hosts, readers in ((2, 1), (3, 4), (1, 2)):
        sim = Simulation(
            seed,
            settings=JobSettings(hosts=hosts, most_restarts=10),
            faults=JobFaults(window_secs=60.0, kills=2, lost=0.02, repeated=0.05, failed_commits=0.05, crashes=1),
            units=300,
            stops=STOPS,
            readers=readers,
            stop_secs=70.0 if hosts > 1 else None,
            resumed=sim,
        )
        sim.run()
    assert sim is not None
    assert sim.storage.last.next_unit == 300
    assert len({len(one.hosts) for one in sim.storage.commits}) > 1


def test_a_hold_stops_all_roles_but_the_controller() -> None:
    settings = JobSettings(hosts=2)
    sim = Simulation(2, settings=settings, faults=JobFaults(window_secs=60.0, permanent=2, unready=2), units=300)
    sim.run()
    assert any(sim.held_with_roles)
    assert sim.released_with_roles
    assert not any(sim.released_with_roles)
    check(sim)


def test_most_preempted_epochs_commit_within_their_grace_period() -> None:
    """A notice of 30 s, units of half a second: the epoch ends early and is committed; none is given up."""
    given_up = notices = 0
    for seed in range(scaled(10)):
        settings = JobSettings(hosts=1 + seed % 2)
        faults = JobFaults(window_secs=400.0, role_notices=3, job_notices=3)
        sim = Simulation(seed, settings=settings, faults=faults, units=400)
        sim.run()
        given_up += sim.attempts - len(sim.storage.commits)
        notices += 6
    assert given_up <= 0.01 * notices + 1


@pytest.mark.parametrize(
    ("commits", "message"),
    [
        ([(Commit(2, 1, 4), {"h": Part(0, (0, 1, 2, 3))})], "commit"),
        ([(Commit(1, 1, 4), {"h": Part(0, (0, 1, 3))})], "units"),
        ([(Commit(1, 1, 4), {"h": Part(7, (0, 1, 2, 3))})], "based"),
        ([(Commit(1, 1, 4), {})], "parts"),
        ([(Commit(1, 1, 2), {"h": Part(0, (0, 1))}), (Commit(1, 2, 2), {"h": Part(1, ())})], "commit"),
        ([(Commit(1, 1, 2), {"h": Part(0, (0, 1))}), (Commit(2, 2, 3), {"h": Part(1, (1, 2))})], "units"),
    ],
)
def test_the_storage_finds_wrong_commits(commits: list[tuple[Commit, dict[str, Part]]], message: str) -> None:
    storage = Storage()
    orders = [
        Publish(
            commit.attempt,
            commit,
            ("h",),
            {host: storage.put(f"{number}/{host}", part) for host, part in parts.items()},
        )
        for number, (commit, parts) in enumerate(commits)
    ]
    for order in orders[:-1]:
        storage.publish(order)
    with pytest.raises(InvariantViolation, match=message):
        storage.publish(orders[-1])
