"""Random events of a training job, possible and impossible ones: what a network, a cluster and people may send in any order."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from trainer.scheduling.events import (
    CommitFailed,
    DataChanged,
    DataRange,
    Drained,
    Event,
    Failed,
    Heartbeat,
    Joined,
    Left,
    Notice,
    PartitionChanged,
    PartWritten,
    PlanFailed,
    Position,
    Published,
    Recovered,
    Released,
    Role,
    RoleKind,
    ServersChanged,
    StopAsked,
    Tick,
)
from trainer.scheduling.holds import ErrorDocument
from trainer.scheduling.job import Job, JobSettings, PhaseSettings
from trainer.scheduling.transitions import JobState

ERRORS = (
    ErrorDocument(("ConnectionError", "OSError"), "reset"),
    ErrorDocument(("ConnectionError", "OSError"), "reset"),
    ErrorDocument(("ConnectionError", "OSError"), "reset"),
    ErrorDocument(("NonFiniteLoss",), "NaN"),
    ErrorDocument(("DataNotReady",), "no memo"),
)
SERVERS = tuple(Role(RoleKind.SERVER, f"s{n}") for n in range(4))
WORKERS = tuple(Role(RoleKind.WORKER, f"w{n}") for n in range(2))
ROLES = (*(Role(RoleKind.HOST, f"h{n}") for n in range(3)), Role(RoleKind.READER, "r0"))


def random_settings(draw: random.Random) -> JobSettings:
    """Settings with every option on and off."""
    phase = PhaseSettings(epoch_secs=draw.choice([None, 10.0]), least_readers=draw.choice([0, 1]))
    return JobSettings(
        hosts=draw.choice([1, 2]),
        goes_on=draw.random() < 0.5,
        overlap=draw.random() < 0.5,
        is_finite=draw.random() < 0.5,
        most_restarts=draw.choice([0, 1, 5]),
        most_reader_failures=draw.choice([0, 5]),
        behind_units=draw.choice([None, 30]),
        initial=phase,
        caught_up=replace(phase, hosts=draw.choice([0, 0, 0, 1])),
        **draw.choice([{}, {}, {"servers": 3, "spare_servers": 1}, {"servers": 4, "scales_from": 1}]),
    )


class RandomEvents:
    """A source of events, more often of those that lead a job on."""

    def __init__(self, draw: random.Random, *, servers: bool = False) -> None:
        self._draw = draw
        self._now = 0.0
        self._units = draw.choice([0, 10])
        self._roles = (*ROLES, *SERVERS, *WORKERS) if servers else ROLES

    def next(self, job: Job) -> Event:
        """An event for a job in its state."""
        draw = self._draw
        self._now += draw.choice([0.0, 0.1, 1.0, 4.0, -3.0, 100.0] if draw.random() < 0.3 else [0.05, 0.2])
        if job.state in _ALONG and draw.random() < 0.7:
            made = draw.choice(_ALONG[job.state])(self, job)
        else:
            made = draw.choices(_KINDS, _WEIGHTS)[0](self, job)
        return made

    def _message(self, job: Job) -> tuple[float, Role, int]:
        role = self._draw.choice(self._roles)
        known = job.members[role].incarnation if role in job.members else 1
        return self._now, role, known if self._draw.random() < 0.95 else max(0, known + self._draw.choice([-1, 1]))

    def _attempt(self, job: Job) -> int:
        written = job.pending.commit.attempt if job.pending else job.attempt
        return self._draw.choice([job.attempt] * 8 + [written] * 4 + [max(0, job.attempt - 1), job.attempt + 1, 0])

    def tick(self, job: Job) -> Event:
        return Tick(self._now)

    def recovered(self, job: Job) -> Event:
        return Recovered(self._now)

    def joined(self, job: Job) -> Event:
        absent = [role for role in self._roles if role not in job.members] or list(self._roles)
        role = self._draw.choice(absent)
        number = job.incarnations.get(role, 0) + self._draw.choice([1, 1, 1, 0])
        return Joined(self._now, role, number, self._draw.choice([""] * 20 + ["old"]), 1)

    def heartbeat(self, job: Job) -> Event:
        return Heartbeat(*self._message(job))

    def left(self, job: Job) -> Event:
        return Left(*self._message(job))

    def failed(self, job: Job) -> Event:
        return Failed(*self._message(job), self._attempt(job), self._draw.choice(ERRORS))

    def position(self, job: Job) -> Event:
        return Position(*self._message(job), self._attempt(job), self._draw.randint(job.first_unit, job.stop_unit + 1))

    def drained(self, job: Job) -> Event:
        return Drained(*self._message(job), self._attempt(job), self._draw.choice([job.stop_unit] * 9 + [0]))

    def part(self, job: Job) -> Event:
        return PartWritten(*self._message(job), self._attempt(job), f"part{self._draw.randint(0, 9)}")

    def commit_failed(self, job: Job) -> Event:
        at_secs, role, incarnation = self._message(job)
        error = self._draw.choice(ERRORS)
        if self._draw.random() < 0.5:
            return CommitFailed(at_secs, self._attempt(job), error)
        return CommitFailed(at_secs, self._attempt(job), error, role, incarnation)

    def published(self, job: Job) -> Event:
        return Published(self._now, self._attempt(job))

    def notice(self, job: Job) -> Event:
        return Notice(self._now, self._draw.choice([0.0, 5.0, 30.0]), self._draw.choice([None, *self._roles]))

    def data(self, job: Job) -> Event:
        self._units += self._draw.choice([0, 10, 25])
        return DataChanged(
            self._now, DataRange("plan", self._units, (*range(10, self._units, 10), self._units)[-self._units :])
        )

    def partition(self, job: Job) -> Event:
        return PartitionChanged(self._now, self._draw.choice(["", "plan a", "plan b"]))

    def servers(self, job: Job) -> Event:
        return ServersChanged(self._now, self._draw.randint(0, 5))

    def plan_failed(self, job: Job) -> Event:
        return PlanFailed(self._now, self._draw.choice(ERRORS))

    def released(self, job: Job) -> Event:
        return Released(self._now) if job.state is JobState.HELD else Tick(self._now)

    def stop(self, job: Job) -> Event:
        return StopAsked(self._now, self._draw.random() < 0.3)


_E = RandomEvents
_KINDS: tuple[Callable[[RandomEvents, Job], Event], ...] = (
    _E.tick, _E.recovered, _E.joined, _E.heartbeat, _E.left, _E.failed, _E.position, _E.drained, _E.part, _E.commit_failed,
    _E.published, _E.notice, _E.data, _E.partition, _E.servers, _E.plan_failed, _E.released, _E.stop,
)  # fmt: skip
_WEIGHTS = (20, 2, 10, 10, 4, 2, 5, 5, 5, 6, 5, 4, 2, 2, 2, 1, 5, 0.6)
_ALONG = {
    JobState.STARTING: (_E.joined, _E.joined, _E.data, _E.part, _E.published),
    JobState.AWAY: (_E.joined, _E.part, _E.published),
    JobState.TRAINING: (_E.drained, _E.drained, _E.tick, _E.part, _E.published),
    JobState.ENDING: (_E.position, _E.position, _E.drained),
    JobState.DRAINING: (_E.drained, _E.drained, _E.part),
    JobState.COMMITTING: (_E.part, _E.part, _E.published, _E.published),
    JobState.RESTARTING: (_E.tick, _E.part, _E.published),
    JobState.WAITING_FOR_DATA: (_E.data, _E.data, _E.tick, _E.failed, _E.plan_failed),
    JobState.HELD: (_E.released, _E.data),
}
