from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.support.examples import scaled
from tests.trainer.scheduling.random_events import ROLES, RandomEvents, random_settings
from trainer.errors import EventNotLogged, IllegalEvent, LeaseLost
from trainer.job.control.event_log import EventLog, LogOwner, read_log
from trainer.job.control.logged_job import LoggedJob, differs_in_time_only, replay
from trainer.job.control.open_controller import first_job
from trainer.scheduling.events import Heartbeat, Joined, Released, Role, RoleKind, StopAsked, Tick
from trainer.scheduling.job import Job, JobSettings, PhaseSettings
from trainer.scheduling.orders import Commit
from trainer.scheduling.transitions import FINAL, JobState

OWNER = LogOwner("job", "", 1)
HOST = Role(RoleKind.HOST, "h0")


def opened(path, job: Job, **options) -> LoggedJob:
    return LoggedJob(job, EventLog(path, OWNER, job, **options), check_lease=lambda: None)


def replayed(path) -> Job:
    with read_log(path, job="job", release="") as found:
        assert found is not None
        return replay(found[0].job, found[1])


@pytest.mark.medium
def test_a_replay_gives_the_job_but_for_times(tmp_path):
    """Over random events, in random groups, with logs that are replaced: heartbeats and ticks alone need no line."""
    lines = events = 0
    for seed in range(scaled(60)):
        draw = random.Random(seed)
        first = Job(random_settings(draw))
        source = RandomEvents(draw)
        path = tmp_path / f"{seed}"
        logged = opened(path, first, most_bytes=draw.choice([3000, 1 << 20]))
        for _ in range(30):
            before, version = logged.job, logged.version
            group = [source.next(logged.job) for _ in range(draw.choice([1, 1, 2, 5]))]
            results = logged.apply(group)
            assert all(one.error is None or isinstance(one.error, IllegalEvent) for one in results)
            events += len(group)
            lines += logged.version - version
            assert logged.version > version or differs_in_time_only(before, logged.job)
            found = replayed(path)
            assert differs_in_time_only(found, logged.job)
            # A later event has the same result for both, once both have the same time.
            same = replace(
                found, clock_secs=logged.job.clock_secs, now_secs=logged.job.now_secs, members=logged.job.members
            )
            assert same == logged.job
    assert lines < events


def test_the_last_line_gives_the_job_exactly(tmp_path):
    logged = opened(tmp_path / "log", Job(JobSettings(hosts=2)))
    logged.apply([Joined(0.0, HOST, 1, "", 1)])
    for n in range(1, 20):
        logged.apply([Heartbeat(n / 3, HOST, 1)])
    logged.apply([Joined(7.0, replace(HOST, name="h1"), 1, "", 1)])
    assert replayed(tmp_path / "log") == logged.job
    assert logged.job.members[HOST].seen_secs > 6


def test_heartbeats_and_ticks_write_nothing(tmp_path):
    logged = opened(tmp_path / "log", Job())
    logged.apply([Joined(0.0, HOST, 1, "", 1)])
    size = (tmp_path / "log").stat().st_size
    for n in range(200):
        logged.apply([Heartbeat(n / 10, HOST, 1), Tick(n / 10)])
    assert (tmp_path / "log").stat().st_size == size


@pytest.mark.medium
def test_a_replayed_attempt_is_at_most_five_seconds_younger(tmp_path):
    phase = PhaseSettings(least_readers=0, epoch_secs=600.0)
    logged = opened(tmp_path / "log", Job(JobSettings(initial=phase)))
    source = RandomEvents(random.Random(0))
    source._units = 10
    logged.apply([Joined(0.0, HOST, 1, "", 1), replace(source.data(logged.job), at_secs=0.0)])
    assert logged.job.state is JobState.TRAINING
    for n in range(1, 400):
        logged.apply([Heartbeat(n / 4, HOST, 1), Tick(n / 4)])
        assert logged.job.now_secs - replayed(tmp_path / "log").now_secs < 5
    assert logged.job.now_secs == 399 / 4


def test_an_event_that_is_not_logged_has_no_effect(tmp_path):
    fails = [False]

    def sync(descriptor: int) -> None:
        if fails[0]:
            raise OSError(28, "No space left on device")

    logged = opened(tmp_path / "log", Job(), sync=sync)
    logged.apply([Joined(0.0, HOST, 1, "", 1)])
    before, fails[0] = logged.job, True
    with pytest.raises(EventNotLogged):
        logged.apply([Heartbeat(1.0, HOST, 1), StopAsked(1.0)])
    assert logged.job is before
    assert logged.apply([Heartbeat(1.0, HOST, 1)])[0].told == ()
    fails[0] = False
    logged.apply([StopAsked(2.0)])
    assert replayed(tmp_path / "log") == logged.job
    assert logged.job.state in FINAL


def test_an_event_that_is_impossible_fails_alone(tmp_path):
    logged = opened(tmp_path / "log", Job())
    one, two = logged.apply([Released(0.0), Joined(0.0, HOST, 1, "", 1)])
    assert isinstance(one.error, IllegalEvent)
    assert two.error is None
    assert HOST in logged.job.members


def test_nothing_is_logged_without_the_lease(tmp_path):
    def lost() -> None:
        raise LeaseLost("lost")

    logged = LoggedJob(Job(), EventLog(tmp_path / "log", OWNER, Job()), check_lease=lost)
    size = (tmp_path / "log").stat().st_size
    with pytest.raises(LeaseLost):
        logged.apply([Joined(0.0, HOST, 1, "", 1)])
    assert ((tmp_path / "log").stat().st_size, logged.job) == (size, Job())


def test_the_first_job_continues_unless_settings_or_storage_differ():
    settings = JobSettings(hosts=2)
    job = Job(settings, state=JobState.TRAINING, attempt=7, commit=Commit(3, 6, 30), incarnations={ROLES[0]: 5})
    assert first_job(job, settings, None) is job
    assert first_job(job, settings, Commit(3, 6, 30)) == job
    other = first_job(job, JobSettings(hosts=3), Commit(3, 6, 30))
    assert (other.state, other.attempt, other.commit, other.settings.hosts) == (
        JobState.STARTING,
        7,
        Commit(3, 6, 30),
        3,
    )
    assert other.incarnations == job.incarnations
    older = first_job(job, settings, Commit(2, 4, 20))
    assert (older.attempt, older.commit) == (7, Commit(2, 4, 20))
    done = first_job(replace(job, state=JobState.DONE), settings, None)
    assert (done.state, done.commit) == (JobState.STARTING, job.commit)
    new = first_job(None, settings, Commit(3, 6, 30))
    assert (new.attempt, new.commit) == (6, Commit(3, 6, 30))
