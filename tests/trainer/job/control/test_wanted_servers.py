"""The number of parameter servers that a controller wants, by what roles report to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainer.job.control.messages import RoleReport, ServerLoad
from trainer.job.control.wanted_servers import WantedServers, busy_share
from trainer.scheduling.buffer_control import BufferSample
from trainer.scheduling.events import Role, RoleKind
from trainer.scheduling.job import Job, JobSettings
from trainer.scheduling.server_control import ServerLimits
from trainer.scheduling.transitions import JobState

HOST = Role(RoleKind.HOST, "h0")
JOB = Job(
    JobSettings(servers=4, scales_from=1),
    JobState.TRAINING,
    attempt=1,
    unused_servers=("s1", "s2", "s3"),
)


class Reports:
    """Reports of a host and of a server, once a second."""

    def __init__(self, limits: ServerLimits | None = None) -> None:
        self.wanted = WantedServers(limits or ServerLimits(1, 1, measured_secs=5.0))
        self.at_secs = self.processor_secs = 0.0

    def second(self, job: Job = JOB, *, wait: float, busy: float, server: str = "s0", process: int = 1) -> int | None:
        self.at_secs += 1.0
        self.processor_secs += busy
        sample = BufferSample(self.at_secs, 1.0, 1000, 1.0, 1, 1000, 0.1, 0.0, 9, wait)
        self.wanted.add(HOST, RoleReport(buffer=sample))
        load = ServerLoad(process, self.processor_secs, self.at_secs)
        self.wanted.add(Role(RoleKind.SERVER, server), RoleReport(load=load))
        return self.wanted.update(replace(job, now_secs=self.at_secs))


def test_busy_servers_that_are_waited_for_become_more() -> None:
    reports = Reports()
    found = [reports.second(wait=0.8, busy=0.8) for _ in range(8)]
    assert found[:4] == [None] * 4, "until enough is measured"
    assert 4 in found


@pytest.mark.parametrize(("wait", "busy"), [(0.9, 0.02), (0.0, 0.9)])
def test_waits_without_work_and_work_without_waits_ask_for_nothing(wait: float, busy: float) -> None:
    reports = Reports()
    assert {reports.second(wait=wait, busy=busy) for _ in range(60)} == {None}


def test_a_server_without_tables_does_not_count() -> None:
    reports = Reports()
    assert {reports.second(wait=0.9, busy=0.9, server="s3") for _ in range(60)} == {None}


@pytest.mark.parametrize("state", [JobState.HELD, JobState.WAITING_FOR_DATA, JobState.DONE, JobState.AWAY])
def test_a_job_that_cannot_train_decides_nothing(state: JobState) -> None:
    reports = Reports()
    assert {reports.second(replace(JOB, state=state), wait=0.9, busy=0.9) for _ in range(60)} == {None}


def test_a_job_with_a_fixed_number_decides_nothing() -> None:
    reports = Reports()
    fixed = replace(JOB, settings=JobSettings(), unused_servers=())
    assert {reports.second(fixed, wait=0.9, busy=0.9) for _ in range(60)} == {None}


def test_the_number_of_a_person_is_where_it_goes_on() -> None:
    reports = Reports()
    for _ in range(10):
        reports.second(wait=0.8, busy=0.8)
    chosen = replace(JOB, scaled_servers=2, unused_servers=("s2", "s3"))
    assert reports.second(chosen, wait=0.0, busy=0.0) is None, "nothing is measured with it yet"


@pytest.mark.parametrize(
    ("before", "now", "share"),
    [
        (ServerLoad(1, 2.0, 10.0), ServerLoad(1, 3.0, 12.0), 0.5),
        (ServerLoad(1, 2.0, 10.0), ServerLoad(1, 9.0, 12.0), 1.0),  # several threads
        (ServerLoad(1, 2.0, 10.0), ServerLoad(2, 1.0, 12.0), 0.5),  # another process
        (ServerLoad(1, 2.0, 10.0), ServerLoad(1, 0.5, 12.0), 0.25),  # a child that was started again under its number
        (ServerLoad(1, 2.0, 10.0), ServerLoad(1, 2.0, 10.0), None),
        (ServerLoad(1, 2.0, 10.0), ServerLoad(1, 3.0, 9.0), None),
    ],
)
def test_the_share_of_busy_time(before: ServerLoad, now: ServerLoad, share: float | None) -> None:
    assert busy_share(before, now) == share
