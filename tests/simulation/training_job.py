"""The training job in virtual time: real decisions (:mod:`trainer.scheduling`), simulated roles, network, storage and clock.

The controller is killed and replays its log; roles are killed, suspended and replaced; messages are lost, repeated and
reordered; commits fail; notices come. :class:`Storage` checks every commit as it is published.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tests.simulation.event_loop import EventLoop
from trainer.options.document_field import DocumentField
from trainer.scheduling.advance import advance
from trainer.scheduling.attempts import want_roles
from trainer.scheduling.documents import read_value, value_document
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
    PartWritten,
    Position,
    Published,
    Recovered,
    Released,
    Role,
    RoleKind,
    StopAsked,
    Tick,
)
from trainer.scheduling.holds import ErrorClass, ErrorDocument
from trainer.scheduling.job import Job, JobSettings, resume_job
from trainer.scheduling.orders import (
    AskPosition,
    Commit,
    EndEpoch,
    GiveUp,
    Instruction,
    Leave,
    Order,
    Publish,
    Refuse,
    Rejoin,
    Send,
    StartEpoch,
    WantRoles,
    WritePart,
)
from trainer.scheduling.transitions import ATTEMPT, FINAL, EventKind, JobState

TRANSIENT = ErrorDocument(("ConnectionError",), "a connection broke")
PERMANENT = ErrorDocument(("NonFiniteLoss",), "training diverged")
NOT_READY = ErrorDocument(("DataNotReady",), "a memo is not ready")

#: The length of heartbeats and of the controller's ticks.
BEAT_SECS = 2.0
TICK_SECS = 1.0


class InvariantViolation(AssertionError):
    """An event violated an invariant of the job."""


def demand(holds: bool, text: str) -> None:
    if not holds:
        raise InvariantViolation(text)


@dataclass(frozen=True, slots=True)
class JobFaults:
    """Faults within the first ``window_secs``; shares of messages, and numbers of the others.

    Attributes:
        lost, repeated, delayed: shares of messages. A delayed one takes up to ``most_delay_secs``.
        kills, pauses: of roles.
        crashes: of the controller.
        jumps: of the controller's clock.
        role_notices, job_notices: preemption notices; the role is killed at their end.
        transient, permanent, unready: errors that a host reports.
        failed_commits: the share of parts and of publications that fail.
    """

    window_secs: float = 300.0
    lost: float = 0.0
    repeated: float = 0.0
    delayed: float = 0.0
    most_delay_secs: float = 10.0
    kills: int = 0
    pauses: int = 0
    crashes: int = 0
    jumps: int = 0
    role_notices: int = 0
    job_notices: int = 0
    transient: int = 0
    permanent: int = 0
    unready: int = 0
    failed_commits: float = 0.0


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a commit: the units whose shares a host trained since the commit ``base``."""

    base: int
    units: tuple[int, ...]


@dataclass
class Storage:
    """Published commits, each checked when it is published."""

    commits: list[Publish] = field(default_factory=list)
    parts: dict[str, Part] = field(default_factory=dict)

    @property
    def last(self) -> Commit:
        return self.commits[-1].commit if self.commits else Commit()

    def put(self, name: str, part: Part) -> str:
        self.parts[name] = part
        return name

    def publish(self, order: Publish) -> None:
        last = self.last
        if last == order.commit:
            return
        new = order.commit
        demand(new.epochs == last.epochs + 1, f"commit {new} after {last}")
        demand(new.attempt > last.attempt and new.next_unit >= last.next_unit, f"commit {new} after {last}")
        demand(set(order.parts) == set(order.hosts), f"parts {sorted(order.parts)} of hosts {order.hosts}")
        expected = list(range(last.next_unit, new.next_unit))
        for host in order.hosts:
            part = self.parts[order.parts[host]]
            demand(part.base == last.attempt, f"part of {host} is based on attempt {part.base}, not on {last.attempt}")
            demand(list(part.units) == expected, f"part of {host} has units {part.units}, not {expected}")
        self.commits.append(order)


class Simulation:
    """One run. ``run`` returns when the job is done; it raises :class:`InvariantViolation` or RuntimeError for a deadlock."""

    def __init__(
        self,
        seed: int,
        *,
        settings: JobSettings,
        faults: JobFaults,
        units: int = 200,
        stops: Sequence[int] = (),
        readers: int = 2,
        spare_hosts: int = 0,
        grown: Sequence[tuple[float, int]] = (),
        unit_secs: float = 0.5,
        stop_secs: float | None = None,
        resumed: Simulation | None = None,
    ) -> None:
        self.draw = random.Random(seed)
        self.loop = EventLoop()
        self.settings, self.faults, self.unit_secs = settings, faults, unit_secs
        self.storage: Storage = resumed.storage if resumed else Storage()
        self.moves: Counter[tuple[JobState, EventKind, JobState]] = Counter()
        self.trained: dict[tuple[int, str, int], int] = {}
        self.starts: dict[int, StartEpoch] = {}
        self.hosts_wanted = 0
        self.held_with_roles: list[bool] = []
        self.released_with_roles: list[bool] = []
        self.noticed: set[int] = set()
        self.lost_secs: list[float] = []
        self.states: list[tuple[float, JobState]] = []
        self.attempts = 0
        self.data = DataRange("plan", units, tuple(stops) or (units,))
        job = resume_job(resumed.controller.job, settings, resumed.storage.last) if resumed else Job(settings)
        self.controller: Controller = Controller(self, job)
        self.actors: dict[Role, Actor] = {}
        for n in range(settings.hosts + spare_hosts):
            self._add(SimHost(self, Role(RoleKind.HOST, f"h{n}")))
        for n in range(readers):
            self._add(Actor(self, Role(RoleKind.READER, f"r{n}")))
        self.loop.after(0.1, self._deliver_data)
        for moment, more in grown:
            self.loop.after(moment, partial(self._grow, more))
        self._last_growth = max((moment for moment, _ in grown), default=0.0)
        self._schedule_faults()
        if stop_secs is not None:
            self.loop.after(stop_secs, self._stop)

    def _stop(self) -> None:
        self._last_growth = self.loop.now
        if not self.controller.receive(StopAsked):
            self.loop.after(1.0, self._stop)

    def _add(self, actor: Actor) -> None:
        self.actors[actor.role] = actor
        actor.incarnation = self.controller.job.incarnations.get(actor.role, 0)
        self.loop.after(self.draw.uniform(0.0, 3.0), actor.start)

    def _grow(self, more: int) -> None:
        stop = self.data.stop_unit + more
        self.data = DataRange("plan", stop, (*self.data.stops, stop))
        self._deliver_data()

    def _deliver_data(self) -> None:
        """The controller's edge repeats what it could not log."""
        if not self.controller.receive(lambda at: DataChanged(at, self.data)):
            self.loop.after(1.0, self._deliver_data)

    def _schedule_faults(self) -> None:
        faults, draw = self.faults, self.draw
        actions: list[tuple[int, Callable[[], None]]] = [
            (faults.kills, lambda: self.any_actor().kill(draw.uniform(1, 15))),
            (faults.pauses, lambda: self.any_actor().pause(draw.choice([3.0, 20.0, 60.0, 100.0]))),
            (faults.crashes, lambda: self.controller.crash(draw.uniform(0.5, 12))),
            (faults.jumps, lambda: self.controller.jump(draw.choice([-5000.0, -10.0, 40.0, 5000.0]))),
            (faults.role_notices, lambda: self.notice(self.any_actor())),
            (faults.job_notices, lambda: self.notice(None)),
            (faults.transient, lambda: self.any_actor().fail(TRANSIENT)),
            (faults.permanent, lambda: self.any_actor().fail(PERMANENT)),
            (faults.unready, lambda: self.any_actor().fail(NOT_READY)),
        ]
        for count, action in actions:
            for _ in range(count):
                self.loop.at(draw.uniform(1, faults.window_secs), action)

    def any_actor(self) -> Actor:
        return self.draw.choice(list(self.actors.values()))

    @property
    def is_quiet(self) -> bool:
        """Whether the time of faults is over."""
        return self.loop.now > self.faults.window_secs

    def notice(self, actor: Actor | None, grace_secs: float = 30.0) -> None:
        role = actor.role if actor else None
        self.controller.receive(lambda at: Notice(at, grace_secs, role))
        gone = [(one, one.incarnation) for one in ([actor] if actor else self.actors.values())]
        for one, incarnation in gone:
            self.loop.after(grace_secs, partial(one.evict, incarnation))

    def transmit(self, deliver: Callable[[], None]) -> None:
        """Carry a message over the network."""
        faults, draw = self.faults, self.draw
        copies = 1
        if not self.is_quiet:
            if draw.random() < faults.lost:
                return
            copies += draw.random() < faults.repeated
        for _ in range(copies):
            late = not self.is_quiet and draw.random() < faults.delayed
            self.loop.after(draw.uniform(0.0, faults.most_delay_secs if late else 0.2), deliver)

    def run(self, patience_secs: float = 900.0) -> None:
        """Run until the job ends; ``patience_secs``: the virtual time after the last fault within which it must."""
        end = max(self.faults.window_secs, self._last_growth) + patience_secs
        self.loop.after(TICK_SECS, self._tick)
        try:
            self.loop.run(until=end)
        except RuntimeError:
            job = self.controller.job
            raise InvariantViolation(f"no progress: {job.state}, commit {job.commit}, hold {job.hold}") from None
        finally:
            self.attempts = self.controller.job.attempt

    @property
    def preempted(self) -> tuple[int, int]:
        """The attempts that a notice ended, and those of them that were committed or had trained nothing."""
        kept = {one.commit.attempt for one in self.storage.commits}
        trained = {attempt for attempt, *_ in self.trained}
        return len(self.noticed), sum(one in kept or one not in trained for one in self.noticed)

    def _tick(self) -> None:
        self.controller.receive(Tick)
        if self.controller.job.state not in FINAL:
            self.loop.after(TICK_SECS, self._tick)


class Controller:
    """The controller's edge: a log, a clock, orders, and the publication of commits."""

    def __init__(self, sim: Simulation, job: Job) -> None:
        self._sim = sim
        self._first = self.job = job
        self._log: list[str] = []
        self._offset = 1e6
        self._lease = 0
        self.is_up = True
        self._published: Publish | None = None
        sim.loop.after(0.0, lambda: self._follow((want_roles(job),)))

    def jump(self, secs: float) -> None:
        self._offset += secs

    def crash(self, secs: float) -> None:
        if self.is_up:
            self.is_up = False
            self._lease += 1
            self._sim.loop.after(secs, self._recover)

    def _recover(self) -> None:
        replayed = self._first
        for line in self._log:
            replayed, _ = advance(replayed, read_value(Event, DocumentField(json.loads(line), "log")))
        demand(replayed == self.job, "the replay of the log gives another job")
        self.is_up, self.job = True, replayed
        self.receive(Recovered)

    def receive(self, event_at: Callable[[float], Event]) -> bool:
        """Log and apply an event; False if the controller is down."""
        if not self.is_up:
            return False
        event = event_at(self._sim.loop.now + self._offset)
        before = self.job
        self.job, told = advance(before, event)
        self._log.append(json.dumps(value_document(event)))
        self._check(before, event, told)
        if not self._sim.is_quiet and self._sim.draw.random() < 0.002 * bool(self._sim.faults.crashes):
            self.crash(2.0)  # between the log and the instructions
            return True
        self._follow(told)
        return True

    def tell(self, event_at: Callable[[float], Event]) -> None:
        """Deliver a message, which is lost while the controller is down."""
        self.receive(event_at)

    def _check(self, before: Job, event: Event, told: Sequence[Instruction]) -> None:
        job, sim = self.job, self._sim
        sim.moves[before.state, event.kind, job.state] += 1
        if isinstance(event, Notice) and before.state in ATTEMPT and job.notices != before.notices:
            sim.noticed.add(job.attempt)
        if job.state is not before.state:
            sim.states.append((sim.loop.now, job.state))
        demand(job.attempt in (before.attempt, before.attempt + 1), f"attempt {job.attempt} after {before.attempt}")
        demand(job.commit.epochs >= before.commit.epochs, "a commit is gone")
        for order in told:
            if isinstance(order, Send) and isinstance(order.order, StartEpoch):
                start = order.order
                known = sim.starts.setdefault(start.attempt, start)
                same = replace(known, stop_unit=start.stop_unit, commit=start.commit)
                demand(start == same and start.stop_unit <= known.stop_unit, f"attempt repeats: {start}, {known}")
            if isinstance(order, Send) and job.state is JobState.HELD:
                demand(isinstance(order.order, (Leave, Refuse, GiveUp)), f"held, but {order}")
        if isinstance(event, Recovered):
            return
        demand(job.state is not JobState.TRAINING or bool(job.hosts), "training without hosts")

    def _follow(self, told: Sequence[Instruction]) -> None:
        sim = self._sim
        for one in told:
            if isinstance(one, Send):
                sim.transmit(partial(sim.actors[one.role].receive, one))
            elif isinstance(one, Publish):
                sim.loop.after(sim.draw.uniform(0.0, 3.0), partial(self._publish, one, self._lease))
            elif isinstance(one, WantRoles):
                sim.hosts_wanted = one.hosts
        if self.job.state is JobState.HELD and self.job.hold is not None:
            sim.held_with_roles.append(any(one.is_up for one in sim.actors.values()))
            sim.loop.after(sim.draw.uniform(5, 40), partial(self._end_hold, self.job.hold))

    def _end_hold(self, hold: object) -> None:
        """A person releases the hold, or the data becomes ready."""
        if self.job.hold is not hold or self.job.state is not JobState.HELD or not self.is_up:
            return
        self._sim.released_with_roles.append(any(one.is_up for one in self._sim.actors.values()))
        if self.job.hold is not None and self.job.hold.error_class is ErrorClass.DATA_NOT_READY:
            self.receive(lambda at: DataChanged(at, self._sim.data))
        else:
            self.receive(Released)

    def _publish(self, order: Publish, lease: int) -> None:
        if lease != self._lease:  # fenced: another controller has the lease
            return
        sim = self._sim
        fails = not sim.is_quiet and sim.draw.random() < sim.faults.failed_commits
        if fails and sim.storage.last != order.commit:
            self.receive(lambda at: CommitFailed(at, order.attempt, TRANSIENT))
            return
        sim.storage.publish(order)
        self.receive(lambda at: Published(at, order.attempt))


class Actor:
    """A process of the job; this class is a reader."""

    def __init__(self, sim: Simulation, role: Role) -> None:
        self.sim, self.role = sim, role
        self.incarnation = 0
        self.is_up = False
        self._paused_until = 0.0
        self._life = 0

    @property
    def is_wanted(self) -> bool:
        """Whether the job wants processes, and this one among them; a spare host starts with any other."""
        wanted, hosts = self.sim.hosts_wanted, self.sim.settings.hosts
        is_surplus = self.role.kind is RoleKind.HOST and wanted <= int(self.role.name[1:]) < hosts
        return wanted > 0 and not is_surplus

    def start(self) -> None:
        """Start a new process, if the job wants it."""
        if self.is_up:
            return
        if not self.is_wanted:
            if self.sim.controller.job.state not in FINAL:
                self.sim.loop.after(2.0, self.start)
            return
        self.is_up = True
        self.reset(self.incarnation + 1)
        self._beat(self._life)

    def reset(self, incarnation: int) -> None:
        """Begin with nothing in memory."""
        self.incarnation = incarnation
        self._life += 1
        self.join()

    def join(self) -> None:
        incarnation, settings = self.incarnation, self.sim.settings
        self.send(lambda at: Joined(at, self.role, incarnation, settings.release, settings.protocol))

    def attempt_number(self) -> int:
        return 0

    def fail(self, error: ErrorDocument) -> None:
        if not self.is_up:
            return
        attempt, incarnation = self.attempt_number(), self.incarnation
        self.send(lambda at: Failed(at, self.role, incarnation, attempt, error))

    def pause(self, secs: float) -> None:
        self._paused_until = max(self._paused_until, self.sim.loop.now + secs)

    def kill(self, restart_secs: float) -> None:
        job = self.sim.controller.job
        if self.is_up and job.is_ranked(self.role) and job.state in ATTEMPT:
            self.sim.lost_secs.append(job.now_secs - job.begun_secs)
        if self.is_up:
            self.is_up = False
            self._life += 1
            self._paused_until = 0.0
            self.sim.loop.after(restart_secs, self.start)

    def evict(self, incarnation: int) -> None:
        """The machine is taken away at the end of a notice."""
        if self.incarnation == incarnation:
            self.kill(self.sim.draw.uniform(5, 30))

    def send(self, event_at: Callable[[float], Event]) -> None:
        if self.is_up:
            self.sim.transmit(partial(self.sim.controller.tell, event_at))

    def later(self, secs: float, action: Callable[[], None]) -> None:
        """Run an action of this process; a suspended process runs it when it goes on, a killed one never."""
        life = self._life

        def run() -> None:
            if life != self._life or not self.is_up:
                return
            if self.sim.loop.now < self._paused_until:
                self.sim.loop.at(self._paused_until + self.sim.draw.uniform(0, 0.1), run)
                return
            action()

        self.sim.loop.after(secs, run)

    def _beat(self, life: int) -> None:
        if not self.is_up:
            return
        incarnation = self.incarnation
        if self.sim.loop.now >= self._paused_until:
            self.send(lambda at: Heartbeat(at, self.role, incarnation))
            self.report()
        self.sim.loop.after(BEAT_SECS, lambda: self._beat(life))

    def report(self) -> None:
        """Repeat what the controller may have missed."""

    def receive(self, send: Send) -> None:
        if not self.is_up or send.incarnation != self.incarnation:
            return
        if self.sim.loop.now < self._paused_until:
            self.sim.loop.at(self._paused_until, lambda: self.receive(send))
            return
        order = send.order
        if isinstance(order, Leave):
            incarnation = self.incarnation
            self.send(lambda at: Left(at, self.role, incarnation))
            self.kill(self.sim.draw.uniform(3, 20))
        elif isinstance(order, Refuse):
            self.kill(self.sim.draw.uniform(3, 20))
        elif isinstance(order, Rejoin):
            if order.least_incarnation > self.incarnation:
                self.reset(order.least_incarnation)
            else:
                self.join()
        else:
            self.follow(order)

    def follow(self, order: Order) -> None:
        """An order to a host."""


class SimHost(Actor):
    """A host: it trains its shares of units in order and keeps what it has trained in memory."""

    def reset(self, incarnation: int) -> None:
        super().reset(incarnation)
        self._start: StartEpoch | None = None
        self._base = 0
        self._units: list[int] = []
        self._due: list[int] = []
        self._stop = 0
        self._asked = self._drained = self._busy = False
        self._snapshots: dict[int, Part] = {}
        self._written: dict[int, str] = {}
        self._writing: set[int] = set()
        self._given_up = 0

    def attempt_number(self) -> int:
        return self._start.attempt if self._start else 0

    def follow(self, order: Order) -> None:
        if isinstance(order, StartEpoch):
            self._begin(order)
        elif isinstance(order, AskPosition) and order.attempt == self.attempt_number() and not self._drained:
            self._asked = True
            self._tell_position()
        elif isinstance(order, EndEpoch) and order.attempt == self.attempt_number():
            self._asked = False
            self._stop = order.stop_unit
            demand(not self._units or self._units[-1] < self._stop, f"{self.role} is past the end {order}")
            self._next()
        elif isinstance(order, WritePart):
            self._write(order)
        elif isinstance(order, GiveUp) and order.attempt >= self.attempt_number():
            self._given_up = max(self._given_up, order.attempt)
            self._start, self._asked, self._drained = None, False, False

    def _begin(self, order: StartEpoch) -> None:
        if order.attempt <= max(self.attempt_number(), self._given_up):
            return
        if order.continues is None:
            self._base = order.commit.attempt
        elif order.continues == self.attempt_number() and self._drained:
            self._snapshot()
            self._base = order.continues
        else:
            return
        self._start, self._stop = order, order.stop_unit
        self._units, self._asked, self._drained = [], False, False
        self._due = [*range(order.first_unit, order.stop_unit)][::-1]
        self._next()

    def _next(self) -> None:
        if self._start is None or self._busy or self._asked or self._drained:
            return
        if not self._due or self._due[-1] >= self._stop:
            self._drained = True
            self._tell_drained()
            return
        if not any(one.is_up for one in self.sim.actors.values() if one.role.kind is RoleKind.READER):
            self.later(1.0, self._next)
            return
        self._busy = True
        unit, attempt = self._due.pop(), self._start.attempt
        self._units.append(unit)
        first = self.sim.trained.setdefault((attempt, self.role.name, unit), self.incarnation)
        demand(first == self.incarnation, f"unit {unit} of attempt {attempt}, {self.role}: {first}, {self.incarnation}")
        demand(self._units.count(unit) == 1, f"unit {unit} twice in attempt {attempt}")
        self.later(self.sim.draw.uniform(0.2, 1.8) * self.sim.unit_secs, self._finish)

    def _finish(self) -> None:
        self._busy = False
        self._next()

    def _snapshot(self) -> None:
        if self._drained and self._start is not None:
            self._snapshots.setdefault(self._start.attempt, Part(self._base, tuple(self._units)))

    def _write(self, order: WritePart) -> None:
        attempt = order.attempt
        if attempt == self.attempt_number():
            self._snapshot()
        if attempt in self._written or attempt in self._writing:
            self.report()
            return
        incarnation = self.incarnation
        if attempt not in self._snapshots:
            self.send(lambda at: CommitFailed(at, attempt, TRANSIENT, self.role, incarnation))
            return
        self._writing.add(attempt)
        self.later(self.sim.draw.uniform(0.1, 8.0), lambda: self._finish_write(attempt))

    def _finish_write(self, attempt: int) -> None:
        sim, incarnation = self.sim, self.incarnation
        self._writing.discard(attempt)
        if not sim.is_quiet and sim.draw.random() < sim.faults.failed_commits:
            self.send(lambda at: CommitFailed(at, attempt, TRANSIENT, self.role, incarnation))
            return
        name = f"{attempt}/{self.role.name}/{incarnation}"
        self._written[attempt] = sim.storage.put(name, self._snapshots[attempt])
        self.report()

    def report(self) -> None:
        incarnation, attempt = self.incarnation, self.attempt_number()
        if self._asked and not self._drained:
            self._tell_position()
        if self._drained:
            self._tell_drained()
        for written in [one for one in self._written if one >= attempt - 1]:
            self.send(partial(self._part_written, incarnation, written))

    def _part_written(self, incarnation: int, attempt: int, at_secs: float) -> Event:
        return PartWritten(at_secs, self.role, incarnation, attempt, f"{attempt}/{self.role.name}/{incarnation}")

    def _tell_position(self) -> None:
        assert self._start is not None
        incarnation, attempt = self.incarnation, self.attempt_number()
        position = self._units[-1] + 1 if self._units else self._start.first_unit
        self.send(lambda at: Position(at, self.role, incarnation, attempt, position))

    def _tell_drained(self) -> None:
        incarnation, attempt = self.incarnation, self.attempt_number()
        stop = min(self._stop, self._start.stop_unit if self._start else 0)
        self.send(lambda at: Drained(at, self.role, incarnation, attempt, stop))


HEAVY = JobFaults(
    lost=0.05, repeated=0.05, delayed=0.05, kills=15, pauses=10, crashes=5, jumps=6, role_notices=5, job_notices=3,
    transient=5, permanent=1, unready=1, failed_commits=0.05,
)  # fmt: skip
