"""A training job at one moment: one frozen value. Replaying the log of events gives it again.

Times in it are *job seconds*: the sum of the steps of the controller's clock, of which a step back counts as none and a step
forward as at most ``most_step_secs``. So a clock that jumps, or a controller that was suspended, makes no role lost at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from trainer.scheduling.events import DataRange, Role, RoleKind
from trainer.scheduling.orders import BEGINNING, Commit, Hold, TrainingPhase
from trainer.scheduling.transitions import ATTEMPT, JobState
from transforms.derived_documents import Omitted
from transforms.errors import InputError
from warehouse.scheduling.backoff import Backoff

_BACKOFF = Backoff(first_secs=1.0, most_secs=60.0, jitter=0.0)


@dataclass(frozen=True, slots=True)
class PhaseSettings:
    """The settings of a phase of training.

    Attributes:
        epoch_secs: the longest time of an epoch, after which it ends early; None: it ends at a natural end only.
        least_readers: readers that an attempt needs to begin; 0 if hosts read by themselves.
        most_readers: the largest number of readers.
        hosts: the hosts of an attempt; 0: those of the job.
    """

    epoch_secs: float | None = None
    least_readers: int = 1
    most_readers: int = 8
    hosts: int = 0

    def __post_init__(self) -> None:
        if not (self.epoch_secs is None or 0 < self.epoch_secs < math.inf):
            raise InputError("epoch_secs must be a finite number above 0, or none", value=self.epoch_secs)
        if not 0 <= self.least_readers <= self.most_readers:
            raise InputError(
                "readers must be numbers with 0 <= least <= most", value=(self.least_readers, self.most_readers)
            )
        if self.hosts < 0:
            raise InputError("hosts of a phase must be at least 0", value=self.hosts)


_PHASE = PhaseSettings()


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The settings of a job.

    Attributes:
        release, protocol: of the controller; a process with others cannot join.
        hosts: the hosts of an attempt, in a phase that does not say otherwise.
        least_hosts: with ``goes_on``, the least hosts of an attempt while others are away.
        goes_on: after a preemption notice the job goes on with fewer hosts; else it waits until the role is back.
        least_servers: the job goes on with this number of parameter servers or more while others are away after a notice; 0: it waits
            for all of them.
        servers: the parameter servers of a job with spares, with these, and the most of a job that scales them; 0: it does neither.
        spare_servers: of these servers so many have no tables; one of them takes the place of a server with a preemption notice.
        scales_from: the least servers with tables of a job that scales them up to ``servers``; 0: their number is fixed.
        overlap: the next epoch trains while hosts still write their parts of the last commit.
        is_finite: the job is done when all data is trained; else it waits for more.
        lost_secs: a role without a heartbeat for so long is lost.
        most_step_secs: the most that one step of the clock counts.
        most_restarts: transient restarts without a commit between them; one more holds the job.
        most_reader_failures: failures of readers without a commit between them; one more holds the job.
        backoff: the waits before restarts.
        leave_margin_secs: an epoch is given up so long before the end of a grace period.
        behind_units: so many untrained units change caught-up training to initial training; None: never.
        initial, caught_up: the settings of the phases.
    """

    release: str = ""
    protocol: int = 1
    hosts: int = 1
    least_hosts: int = 1
    goes_on: bool = False
    least_servers: int = 0
    servers: Omitted[int] = 0
    spare_servers: Omitted[int] = 0
    scales_from: Omitted[int] = 0
    overlap: bool = False
    is_finite: bool = True
    lost_secs: float = 30.0
    most_step_secs: float = 5.0
    most_restarts: int = 5
    most_reader_failures: int = 20
    backoff: Backoff = _BACKOFF
    leave_margin_secs: float = 2.0
    behind_units: int | None = None
    initial: PhaseSettings = _PHASE
    caught_up: PhaseSettings = _PHASE

    def __post_init__(self) -> None:
        fewest = min(self.hosts_of(phase) for phase in TrainingPhase)
        if not 1 <= self.least_hosts <= fewest:
            raise InputError("hosts must be numbers with 1 <= least_hosts <= hosts", value=(self.least_hosts, fewest))
        if not 0 < 2 * self.most_step_secs <= self.lost_secs < math.inf:
            raise InputError(
                "lost_secs must be finite and at least twice most_step_secs, which is above 0",
                value=(self.lost_secs, self.most_step_secs),
            )
        if self.scales_from:
            if not 1 <= self.scales_from <= self.servers or self.spare_servers or self.least_servers:
                raise InputError("servers that scale must be from a least to a most number, without spares",
                                 value=(self.scales_from, self.servers, self.spare_servers, self.least_servers))  # fmt: skip
        elif not (self.servers == self.spare_servers == 0 or 1 <= self.spare_servers < self.servers):
            raise InputError(
                "spare servers must be fewer than the servers",
                value=self.spare_servers,
                allowed=f"below {self.servers}",
            )
        for name in ("most_restarts", "most_reader_failures", "leave_margin_secs", "least_servers"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name} must be finite and at least 0", value=getattr(self, name))

    def of(self, phase: TrainingPhase) -> PhaseSettings:
        """The settings of a phase."""
        return self.initial if phase is TrainingPhase.INITIAL else self.caught_up

    @property
    def most_hosts(self) -> int:
        """The hosts of the phase with the most."""
        return max(self.hosts_of(phase) for phase in TrainingPhase)

    def hosts_of(self, phase: TrainingPhase) -> int:
        """The hosts of an attempt in a phase."""
        return self.of(phase).hosts or self.hosts


@dataclass(frozen=True, slots=True)
class Member:
    """A process of the job.

    Attributes:
        incarnation: its number among the processes of its role.
        seen_secs: when its last message came, in job seconds.
        is_leaving: it was ordered to leave and gets no more work.
    """

    incarnation: int
    seen_secs: float
    is_leaving: bool = False


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """The commit of an attempt whose hosts are drained, until it is published or given up.

    Attributes:
        commit: the commit that it will be.
        hosts: the hosts by rank.
        incarnations: of each host, the process that holds the part.
        parts: of the hosts that have written theirs, the part.
        is_publishing: all parts are written and the controller was ordered to publish; the outcome is unknown until it answers.
        partition: the plan of the tables in the parts.
    """

    commit: Commit
    hosts: tuple[str, ...]
    incarnations: Mapping[str, int]
    parts: Mapping[str, str] = field(default_factory=dict)
    is_publishing: bool = False
    partition: Omitted[str] = ""

    @property
    def missing(self) -> tuple[str, ...]:
        """The hosts that have not written their parts."""
        return tuple(host for host in self.hosts if host not in self.parts)


@dataclass(frozen=True, slots=True)
class Job:
    """A job at one moment. Mappings are never changed in place.

    Attributes:
        clock_secs: the controller's clock at the last event; None before the first.
        now_secs: job seconds.
        members: the processes that have joined, by role.
        incarnations: the highest incarnation of each role so far.
        commit: the last published commit.
        pending: the commit that is being written.
        attempt: the number of the last attempt.
        epoch, first_unit, stop_unit, hosts: of that attempt. ``stop_unit`` is lowered when the epoch ends early.
        unused_servers: the parameter servers that the attempt leaves out, ascending by their numbers.
        scaled_servers: of a job that scales them, how many shall have the tables; 0: the least number.
        continues: the attempt at whose end the hosts of ``hosts`` are; None if they must restore.
        retry_stop: the end of the epoch that is trained again after its attempt was given up; None: the next natural end.
        begun_secs: when the attempt began.
        positions: in ENDING, the reported positions by host.
        drained: the hosts that are drained at ``stop_unit``.
        data, next_data: the units to train; what replaces them at the next attempt.
        partition, next_partition: the name of the plan by which hosts hold the tables, empty if rows are spread over them; what replaces
            it at the next attempt, None if nothing does.
        notices: ends of grace periods in job seconds, by role; None: of the whole job.
        away: hosts, parameter servers and embedding workers that left after a notice and are not back.
        away_secs: when the first of them left, in job seconds.
        is_all_away: the notice was for the whole job, which waits for all hosts.
        restarts, reader_failures: since the last commit.
        resume_secs: in RESTARTING, when the backoff ends.
        hold: in HELD, the reason.
        stop_asked: a person asked the job to stop.
    """

    settings: JobSettings = JobSettings()
    state: JobState = JobState.STARTING
    clock_secs: float | None = None
    now_secs: float = 0.0
    members: Mapping[Role, Member] = field(default_factory=dict)
    incarnations: Mapping[Role, int] = field(default_factory=dict)
    commit: Commit = BEGINNING
    pending: PendingCommit | None = None
    attempt: int = 0
    epoch: int = 0
    first_unit: int = 0
    stop_unit: int = 0
    hosts: tuple[str, ...] = ()
    unused_servers: tuple[str, ...] = ()
    scaled_servers: Omitted[int] = 0
    continues: int | None = None
    retry_stop: int | None = None
    begun_secs: float = 0.0
    positions: Mapping[str, int] = field(default_factory=dict)
    drained: frozenset[str] = frozenset()
    data: DataRange | None = None
    next_data: DataRange | None = None
    partition: Omitted[str] = ""
    next_partition: Omitted[str | None] = None
    phase: TrainingPhase = TrainingPhase.INITIAL
    notices: Mapping[Role | None, float] = field(default_factory=dict)
    away: frozenset[Role] = frozenset()
    away_secs: float = 0.0
    is_all_away: bool = False
    restarts: int = 0
    reader_failures: int = 0
    resume_secs: float = 0.0
    hold: Hold | None = None
    stop_asked: bool = False

    def present(self, kind: RoleKind) -> tuple[str, ...]:
        """The names of the members of a kind that can work, ascending; the shorter ones first, so h10 is after h9."""
        return _ascending(role.name for role, one in self.members.items() if role.kind is kind and not one.is_leaving)

    def away_of(self, kind: RoleKind) -> tuple[str, ...]:
        """The names of the roles of a kind that left after a notice and are not back, ascending."""
        return _ascending(role.name for role in self.away if role.kind is kind)

    @property
    def wanted_hosts(self) -> int:
        """The hosts of an attempt in this phase."""
        return self.settings.hosts_of(self.phase)

    @property
    def needed_hosts(self) -> int:
        """The hosts that an attempt needs now."""
        if not self.settings.goes_on or self.is_all_away:
            return self.wanted_hosts
        return max(self.settings.least_hosts, self.wanted_hosts - len(self.away_of(RoleKind.HOST)))

    @property
    def misses_servers(self) -> bool:
        """Whether an attempt must wait for a parameter server that left after a notice."""
        if not self.away_of(RoleKind.SERVER):
            return False
        least, needed = self.settings.least_servers, self.settings.scales_from or self.wanted_servers
        if needed and self.settings.servers - len(self.next_unused) >= needed:
            return False
        return not least or len(self.present(RoleKind.SERVER)) < least

    @property
    def wanted_servers(self) -> int:
        """How many parameter servers shall have the tables, of a job with spares or one that scales them; 0 for others."""
        settings = self.settings
        if not settings.scales_from:
            return settings.servers - settings.spare_servers
        return min(max(self.scaled_servers, settings.scales_from), settings.servers)

    @property
    def next_unused(self) -> tuple[str, ...]:
        """The parameter servers that an attempt leaves out now: those that are away, and the rest of the spares or of those that may be added.

        A server that is back is a spare, so that tables stay where they are.
        """
        if not self._has_others:
            return self.away_of(RoleKind.SERVER)
        there = self.present(RoleKind.SERVER)
        held, others = self._servers_by_use()
        used = [*held, *(one for one in others if one in there)][: self.wanted_servers]
        return tuple(one for one in self._server_names if one not in used)

    @property
    def running_servers(self) -> tuple[str, ...]:
        """The parameter servers that must run now, of a job that scales them: those with tables, and those that shall have them.

        A server that is away is wanted back only where there are too few others.
        """
        if not self.settings.scales_from:
            return ()
        held, others = self._servers_by_use()
        wanted = [*held, *others, *self.away_of(RoleKind.SERVER)][: self.wanted_servers]
        has_rows = self.state in ATTEMPT or self.pending is not None
        return tuple(
            one for one in self._server_names if one in wanted or (has_rows and one not in self.unused_servers)
        )

    def is_surplus(self, role: Role) -> bool:
        """Whether the role is a parameter server that ends because the job needs fewer: it is not waited for."""
        return role.kind is RoleKind.SERVER and self.settings.scales_from > 0 and role.name not in self.running_servers

    @property
    def _has_others(self) -> bool:
        """Whether the job has servers that need not have tables."""
        return self.settings.spare_servers > 0 or self.settings.scales_from > 0

    @property
    def _server_names(self) -> tuple[str, ...]:
        return tuple(f"s{k}" for k in range(self.settings.servers))

    def _servers_by_use(self) -> tuple[list[str], list[str]]:
        """The servers that are not away: those of the last attempt, and the others."""
        away = self.away_of(RoleKind.SERVER)
        near = [one for one in self._server_names if one not in away]
        return [one for one in near if one not in self.unused_servers], [
            one for one in near if one in self.unused_servers
        ]

    @property
    def misses_workers(self) -> bool:
        """Whether an attempt must wait for an embedding worker: all of them left after notices."""
        return bool(self.away_of(RoleKind.WORKER)) and not self.present(RoleKind.WORKER)

    @property
    def deadline_secs(self) -> float | None:
        """When an epoch must be committed, in job seconds, by the earliest notice."""
        return min(self.notices.values()) - self.settings.leave_margin_secs if self.notices else None

    def is_current(self, role: Role, incarnation: int) -> bool:
        """Whether this process is a member."""
        member = self.members.get(role)
        return member is not None and member.incarnation == incarnation

    def is_ranked(self, role: Role) -> bool:
        """Whether the role is a host of the last attempt."""
        return role.kind is RoleKind.HOST and role.name in self.hosts

    def is_used(self, role: Role) -> bool:
        """Whether the last attempt needs the role to end with a commit.

        These are its hosts, the parameter servers with its tables, and an embedding worker without another one that stays.
        """
        if role.kind is RoleKind.SERVER:
            return role.name not in self.unused_servers
        if role.kind is RoleKind.WORKER:
            others = (Role(RoleKind.WORKER, name) for name in self.present(RoleKind.WORKER) if name != role.name)
            return all(one in self.notices for one in others)
        return self.is_ranked(role)


def resume_job(job: Job, settings: JobSettings, commit: Commit) -> Job:
    """A job that ended, and is started again, perhaps with other numbers of hosts and readers. A hold stays.

    Args:
        job: as its log gives it.
        settings: the new settings.
        commit: the newest commit in storage that is intact.
    """
    held = job.state is JobState.HELD
    return Job(
        settings=settings,
        state=JobState.HELD if held else JobState.STARTING,
        hold=job.hold if held else None,
        now_secs=job.now_secs,
        incarnations=job.incarnations,
        commit=commit,
        attempt=max(job.attempt, commit.attempt),
        phase=job.phase,
        scaled_servers=job.scaled_servers if settings.scales_from else 0,
    )


def _ascending(names: Iterable[str]) -> tuple[str, ...]:
    """Names with the shorter ones first, so that h10 is after h9."""
    return tuple(sorted(names, key=lambda name: (len(name), name)))


def without_watched(job: Job) -> Job:
    """The job before any parameter server or embedding worker has joined."""
    members = {role: one for role, one in job.members.items() if not role.kind.is_watched}
    away = frozenset(role for role in job.away if not role.kind.is_watched)
    notices = {role: secs for role, secs in job.notices.items() if role is None or not role.kind.is_watched}
    return replace(job, members=members, away=away, notices=notices)


def pass_time(job: Job, at_secs: float) -> Job:
    """The job after its clock has gone on to ``at_secs``."""
    if job.clock_secs is None:
        return replace(job, clock_secs=at_secs)
    step = min(max(at_secs - job.clock_secs, 0.0), job.settings.most_step_secs)
    return replace(job, clock_secs=at_secs, now_secs=job.now_secs + step)


def see(job: Job, role: Role) -> Job:
    """The job after a sign of life of a member."""
    return with_member(job, role, replace(job.members[role], seen_secs=job.now_secs))


def with_member(job: Job, role: Role, member: Member) -> Job:
    """The job with a member added or replaced."""
    return replace(job, members={**job.members, role: member})


def without_member(job: Job, role: Role) -> Job:
    """The job without a member."""
    return replace(job, members={one: member for one, member in job.members.items() if one != role})
