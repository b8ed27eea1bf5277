"""The roles of the simulator (:mod:`tests.simulation.training_job`) as real members of a real controller, in real time.

A virtual second takes ten milliseconds. Parts are files; the commits of a finished job are checked by the simulator's storage.
"""

from __future__ import annotations

import heapq
import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.simulation.training_job import Actor, JobFaults, Part, SimHost, Storage
from tests.support.processes import PATIENCE_SECS
from tests.trainer.job.control.controller_process import JOB, FolderPublisher
from trainer.job.control.controller_client import ControllerClient
from trainer.job.control.job_files import JobFiles
from trainer.job.control.membership import Membership
from trainer.job.control.messages import Peer, RoleReport
from trainer.scheduling.events import Role, RoleKind
from trainer.scheduling.orders import GiveUp, Leave, Order

SECS = 0.01


class RealLoop:
    """An event loop in real time, in a thread."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._is_over = False
        self.errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def now(self) -> float:
        return (time.monotonic() - self._begun) / SECS

    def at(self, moment: float, action: Callable[[], None]) -> None:
        with self._changed:
            self._count += 1
            heapq.heappush(self._heap, (moment, self._count, action))
            self._changed.notify_all()

    def after(self, secs: float, action: Callable[[], None]) -> None:
        self.at(self.now + secs, action)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_over and (not self._heap or self._heap[0][0] > self.now):
                    rest = self._heap[0][0] - self.now if self._heap else 1000.0
                    self._changed.wait(max(rest, 0.01) * SECS)
                if self._is_over:
                    return
                action = heapq.heappop(self._heap)[2]
            try:
                action()
            except BaseException as error:
                self.errors.append(error)

    def close(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._thread.join(PATIENCE_SECS)


class FolderStorage(Storage):
    """Parts as files, since the controller's process reads their names only."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, name: str, part: Part) -> str:
        path = self._folder / name.replace("/", "-")
        path.write_text(json.dumps([part.base, part.units]))
        return name


class SmallJob:
    """The roles of a job; the controller is another process. It has the parts of a Simulation that its roles use."""

    def __init__(self, run_dir: Path, *, hosts: int = 2, readers: int = 1, seed: int = 0, unit_secs: float = 0.5,
                 make_client: Callable[[JobFiles], ControllerClient] | None = None) -> None:  # fmt: skip
        self.files = JobFiles(run_dir)
        self.files.make_token()
        self.make_client = make_client or (lambda files: ControllerClient.of_run(files, job=JOB))
        self.draw, self.unit_secs, self.faults, self.is_quiet = random.Random(seed), unit_secs, JobFaults(), True
        self.trained: dict[tuple[int, str, int], int] = {}
        self.loop = RealLoop()
        self.storage = FolderStorage(run_dir / "parts")
        self.left: list[Role] = []
        self.actors: dict[Role, Actor] = {}
        for n in range(hosts):
            self._add(ServedHost(self, Role(RoleKind.HOST, f"h{n}")))
        for n in range(readers):
            self._add(ServedReader(self, Role(RoleKind.READER, f"r{n}")))

    def _add(self, actor: ServedHost | ServedReader) -> None:
        self.actors[actor.role] = actor
        self.loop.after(0.0, actor.start)

    def kill(self, role: Role, restart_secs: float = 5.0) -> None:
        actor = self.actors[role]
        self.loop.after(0.0, lambda: actor.kill(restart_secs))

    def close(self) -> None:
        for actor in self.actors.values():
            actor.is_up = False
            if actor.member is not None:
                actor.member.close()
        self.loop.close()

    def check(self, units: int, stops: tuple[int, ...] | None = None) -> list[int]:
        """Check the published commits, and give the attempts that were committed."""
        if self.loop.errors:
            raise self.loop.errors[0]
        referee = Storage()
        for path in self.storage._folder.iterdir():
            base, done = json.loads(path.read_text())
            referee.parts[path.name.replace("-", "/")] = Part(base, tuple(done))
        for order in FolderPublisher(self.files.root / "commits").commits():
            referee.publish(order)
        assert referee.last.next_unit == units
        if stops is not None:
            assert tuple(one.commit.next_unit for one in referee.commits) == stops
        return [one.attempt for one in referee.commits]


class _Served(Actor):
    """A role of the simulator that is a member of a real controller."""

    sim: SmallJob
    member: Membership | None = None

    def start(self) -> None:
        if self.is_up:
            return
        self.is_up = True
        self.member = None
        self.reset(0)
        life = self._life
        member = Membership(
            self.sim.make_client(self.sim.files), self.role, release="", beat_secs=0.1, patience_secs=PATIENCE_SECS,
            on_orders=lambda orders, peers: self.sim.loop.after(0.0, lambda: self.obey(life, orders, peers)),
            on_rejoin=lambda: self.sim.loop.after(0.0, lambda: self.reset(0)),
            report=lambda: RoleReport(address=f"127.0.0.1:{1000 + len(self.role.name)}"),
        )  # fmt: skip
        threading.Thread(target=self._join, args=(member,), daemon=True).start()

    def _join(self, member: Membership) -> None:
        self.member = member
        try:
            member.start()
        except BaseException as error:
            if self.is_up:
                self.sim.loop.errors.append(error)

    def obey(self, life: int, orders: tuple[Order, ...], peers: tuple[Peer, ...]) -> None:
        if not self.is_up:
            return
        for order in orders:
            if isinstance(order, Leave):
                self.is_up = False
                self.sim.left.append(self.role)
                assert self.member is not None
                threading.Thread(target=self.member.leave, daemon=True).start()
                return
            self.follow(order)

    def join(self) -> None:
        """The member has joined."""

    def kill(self, restart_secs: float) -> None:
        if not self.is_up:
            return
        self.is_up = False
        self._life += 1
        assert self.member is not None
        threading.Thread(target=self.member.close, daemon=True).start()
        self.sim.loop.after(restart_secs, self.start)


class ServedReader(_Served):
    """A reader, which only is there."""


class ServedHost(_Served, SimHost):
    """A host of the simulator."""

    def send(self, event_at) -> None:
        if self.is_up and self.member is not None:
            self.member.send(replace(event_at(0.0), incarnation=self.member.incarnation))

    def follow(self, order: Order) -> None:
        if isinstance(order, GiveUp) and order.attempt < self.attempt_number():
            return
        SimHost.follow(self, order)
