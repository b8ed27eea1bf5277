"""Applies the faults of a schedule to the processes of a supervisor."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from trainer.errors import ServerLost
from trainer.job.control.job_files import JobFiles
from trainer.job.control.messages import JobStatus
from trainer.job.launch.chaos.accounts import Accounts, Interruption
from trainer.job.launch.chaos.disturbed_servers import DisturbedServers
from trainer.job.launch.chaos.limited_memory import LimitedMemory
from trainer.job.launch.chaos.links import Link, Links
from trainer.job.launch.chaos.neighbour import visit
from trainer.job.launch.chaos.schedule import SERVER, WIRE_KINDS, WORKER, Fault, FaultKind, Side
from trainer.job.launch.chaos.slow_disk import SlowDisk
from trainer.job.launch.chaos.wire_damage import single_damage
from trainer.job.launch.child_processes import Command
from trainer.job.launch.local_servers import LocalServers
from trainer.job.launch.supervisor import Supervisor
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.error_documents import Unreachable

_LOOK_SECS = 0.05
_HOST = "127.0.0.1"


@dataclass
class _Wires:
    """The links of a role: to the controller, and from others to it.

    Attributes:
        role: of its process.
        controller: the link to the controller.
        peers: the link from others.
        port: where its process serves; a new one at each start.
    """

    role: str
    controller: Link
    peers: Link
    port: int = 0


@dataclass(order=True)
class _Held:
    """A fault that lasts, and how it ends."""

    until_secs: float
    name: str = field(compare=False)
    kind: FaultKind = field(compare=False)
    end: Callable[[], None] = field(compare=False)


class Injection:
    """Faults in a job; a context manager, in whose block the supervisor runs.

    Args:
        files: of the run.
        command: the command line of a process, without chaos.
        schedule: the faults; the first one comes after the first attempt has begun.

    Attributes:
        accounts: of attempts, commits and interruptions.
        applied: how often each kind of fault was done to each role, or begun between each pair of roles.
        visits: of neighbours without a token, by role and by whether they were refused.
        error: what ended the injection.
    """

    def __init__(
        self,
        files: JobFiles,
        command: Command,
        schedule: Sequence[Fault],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files, self._command, self._schedule, self._clock = files, command, schedule, clock
        self._links = Links()
        self._wires: dict[str, _Wires] = {}
        self._held: list[_Held] = []
        self._supervisor: Supervisor | None = None
        self._servers: dict[str, DisturbedServers] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos", daemon=True)
        self.accounts = Accounts()
        self.applied: Counter[tuple[FaultKind, str]] = Counter()
        self.visits: Counter[tuple[str, bool]] = Counter()
        self.error: BaseException | None = None

    def command(self, kind: str, name: str, options: Sequence[str]) -> list[str]:
        """The command line of a process whose connections go through links."""
        arguments = self._command(kind, name, options)
        if kind == "controller":
            return arguments
        wires = self._wires.get(name)
        if wires is None:
            wires = self._wires[name] = _Wires(
                kind, self._links.open(self._files.find_controller), self._links.open(partial(self._serving, name))
            )
        wires.port = _free_port()
        return [*arguments, "--address", f"{_HOST}:{wires.port}", "--advertise", str(wires.peers.address),
                "--controller", str(wires.controller.address), "--slow-disk", str(self._disk_file(name))]  # fmt: skip

    def _serving(self, name: str) -> Address:
        port = self._wires[name].port
        if not port:
            raise Unreachable("the process has no address yet", where=name)
        return Address(_HOST, port)

    def _disk_file(self, name: str) -> Path:
        return self._files.folder / "chaos" / f"{name}.delay"

    def on_status(self, status: JobStatus) -> None:
        """A new status of the job. Raises :class:`StorageError` for a server that has ended by an error that no fault explains."""
        self.accounts.see(status, self._clock())
        for servers in tuple(self._servers.values()):
            servers.check()

    def attach(self, supervisor: Supervisor) -> None:
        """The supervisor of the processes; before it runs."""
        self._supervisor = supervisor

    def open_servers(self, servers: LocalServers, memory: LimitedMemory | None = None) -> DisturbedServers:
        """Disturb parameter servers, too; in the context. Returns the addresses by which hosts and workers must reach them."""
        self._servers[SERVER] = found = DisturbedServers(servers, self._links, memory)
        return found

    def open_workers(self, workers: LocalServers) -> tuple[Address, ...]:
        """Disturb embedding workers, too; in the context. Returns the addresses by which hosts must reach them."""
        self._servers[WORKER] = found = DisturbedServers(workers, self._links)
        return found.addresses

    def damages(self) -> dict[tuple[FaultKind, str], tuple[int, int]]:
        """By kind and pair of roles, how often bytes were damaged, and how many connections ended by it."""
        found: dict[tuple[FaultKind, str], tuple[int, int]] = {}
        for pair in {pair for kind, pair in self.applied if kind in WIRE_KINDS}:
            for fault, kind in WIRE_KINDS.items():
                links = self._pair_links(pair).values()
                counts = sum(one.damages[kind] for one in links), sum(one.endings[kind] for one in links)
                if counts[0] or self.applied[fault, pair]:
                    found[fault, pair] = counts
        return found

    def _pair_links(self, pair: str) -> dict[str, Link]:
        """The links between a pair of roles, by the name of the process that they belong to."""
        role, _, peer = pair.partition("-")
        if peer == "controller":
            return {name: one.controller for name, one in list(self._wires.items()) if one.role == role}
        if peer in self._servers:
            found = self._servers[peer]
            return found.worker_links if role == WORKER else found.links
        return {name: one.peers for name, one in list(self._wires.items()) if one.role == peer}

    def __enter__(self) -> Self:
        self._links.__enter__()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._links.__exit__(None, None, None)

    def stop(self) -> None:
        """Begin no more faults, and end the lasting ones."""
        self._over.set()
        self._thread.join()

    def end_faults(self, kind: FaultKind) -> None:
        """End those of a kind that last. Any thread may call it."""
        for one in tuple(self._held):
            if one.kind is kind:
                one.until_secs = 0.0
        while self._thread.is_alive() and any(one.kind is kind for one in tuple(self._held)):
            time.sleep(_LOOK_SECS)

    def _run(self) -> None:
        try:
            self._inject()
        except BaseException as error:
            self.error = error
        finally:
            self._end_held(float("inf"))

    def _inject(self) -> None:
        waiting, due = list(self._schedule), None
        while not self._over.wait(_LOOK_SECS):
            now = self._clock()
            self._end_held(now)
            if not waiting or not self.accounts.has_trained:
                continue
            due = now + waiting[0].after_secs if due is None else due
            if now >= due and self._apply(waiting[0], now):
                waiting.pop(0)
                due = None

    def _end_held(self, now: float) -> None:
        for one in sorted(self._held):
            if one.until_secs <= now:
                self._held.remove(one)
                one.end()

    def _apply(self, fault: Fault, now: float) -> bool:
        """Whether the fault was applied: a process of its kind must run, and must not be under a fault."""
        held = {one.name for one in self._held}
        if fault.kind in WIRE_KINDS:
            return self._damage(fault, held)
        names = [name for name in self._running(fault.role) if name not in held]
        if not names:
            return False
        name = fault.target(names)
        is_lost = fault.kind is FaultKind.LOSE_MACHINE
        before = self.accounts.interruption(fault.role, now, ends_attempt=is_lost or fault.role == "host")
        if fault.kind is FaultKind.NEIGHBOUR:
            if not self._visit(fault.role, name):
                return False
        elif fault.role in self._servers:
            if not self._disturb_server(fault, name):
                return False
        else:
            self._disturb(fault, name)
        self._account(fault, before)
        self.applied[fault.kind, fault.role] += 1
        return True

    def _running(self, role: str) -> list[str]:
        """The names of a role's processes that run."""
        if role in self._servers:
            return list(self._servers[role].running())
        running = self._supervisor.running() if self._supervisor is not None else {}
        return [name for name, one in running.items() if one.kind == role]

    def _account(self, fault: Fault, before: Interruption) -> None:
        if fault.kind in (FaultKind.KILL, FaultKind.KILL_KEEPER, FaultKind.LOSE_MACHINE):
            self.accounts.crashes.append(before)
        elif fault.kind is FaultKind.PREEMPT:
            self.accounts.notices.append(before)

    def _disturb_server(self, fault: Fault, name: str) -> bool:
        """Whether the server was there to be disturbed."""
        try:
            end = self._servers[fault.role].apply(fault, name)
        except OSError:
            return False
        if end is not None:
            self._hold(fault, name, end)
        return True

    def _damage(self, fault: Fault, held: Collection[str]) -> bool:
        """Damage the next bytes of a connection between a pair of roles; whether there is one that is not to be damaged already."""
        links = {f"{fault.role} {name}": link for name, link in self._pair_links(fault.role).items()}
        free = [name for name in links if name not in held]
        if not free:
            return False
        assert fault.damage is not None
        name = fault.target(free)
        self._links.damage(links[name], single_damage(fault.damage, fault.direction), is_once=True)
        self._hold(fault, name, partial(self._links.damage, links[name], None))
        self.applied[fault.kind, fault.role] += 1
        return True

    def _visit(self, role: str, name: str) -> bool:
        """Let a neighbour without a token greet a process; whether it has answered."""
        try:
            if role in self._servers:
                address = self._servers[role].address_of(name)
            else:
                address = self._files.find_controller() if role == "controller" else self._serving(name)
            self.visits[role, visit(role, address)] += 1
        except (Unreachable, ServerLost):
            return False  # it has just ended
        return True

    def _disturb(self, fault: Fault, name: str) -> None:
        """Apply a fault to a process of the supervisor."""
        assert self._supervisor is not None
        found = self._supervisor.running().get(name)
        if found is None:
            return  # it has just ended, as by the fault
        process = found.process
        if fault.kind is FaultKind.KILL:
            process.kill()
        elif fault.kind is FaultKind.PREEMPT:
            process.terminate()
        elif fault.kind is FaultKind.PAUSE:
            process.send_signal(signal.SIGSTOP)
            self._hold(fault, name, partial(process.send_signal, signal.SIGCONT))
        elif fault.kind is FaultKind.PARTITION:
            links = self._cut_links(fault, name)
            for link in links:
                self._links.cut(link, is_reset=fault.is_reset)
            self._hold(fault, name, partial(self._heal, links))
        else:
            disk = SlowDisk(self._disk_file(name))
            disk.set(fault.hold_secs / 4)
            self._hold(fault, name, partial(disk.set, 0.0))

    def _hold(self, fault: Fault, name: str, end: Callable[[], None]) -> None:
        def ended() -> None:
            with suppress(OSError):  # the process, or the run directory, may be gone
                end()

        self._held.append(_Held(self._clock() + fault.hold_secs, name, fault.kind, ended))

    def _cut_links(self, fault: Fault, name: str) -> list[Link]:
        """The links of a partition; the controller's are those of all roles to it."""
        if fault.role == "controller":
            return [wires.controller for wires in list(self._wires.values())]
        wires = self._wires[name]
        return {Side.CONTROLLER: [wires.controller], Side.PEERS: [wires.peers],
                Side.ALL: [wires.controller, wires.peers]}[fault.side]  # fmt: skip

    def _heal(self, links: Sequence[Link]) -> None:
        for link in links:
            self._links.heal(link)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((_HOST, 0))
        return int(free.getsockname()[1])
