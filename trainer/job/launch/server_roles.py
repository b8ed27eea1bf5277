"""The parameter servers, or embedding workers, of a job as its roles: the supervisor watches them, and sends their messages to the controller.

A server joins when it answers, has a notice when it drains, and has left when it is gone afterwards. The controller's order to leave lets it
go. A server that is silent without a notice is lost, as other roles: hosts find out by themselves.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from trainer.errors import TornCheckpoint
from trainer.job.control.controller_client import ControllerClient
from trainer.job.control.messages import PROTOCOL, RoleCall, RoleReport, ServerLoad
from trainer.scheduling.events import Event, Joined, Left, Role, RoleKind
from trainer.scheduling.orders import Leave, Order, Refuse, Rejoin
from trainer.servers.moves.job_moves import documents_of_run
from trainer.servers.run_servers import RunServers
from trainer.servers.server_watch import ServerWatch, WatchedServer, watch_servers, watch_workers
from trainer.wire.flight.addresses import Address
from transforms.errors import HeadraceError, NotFound, StorageError
from warehouse.storage.locations import is_gcs

_LOG = logging.getLogger(__name__)
#: Between heartbeats, and between looks whether the tables are on other servers; in a bucket each look is a request or two.
_BEAT_SECS, _FIND_SECS, _FIND_IN_BUCKET_SECS = 1.0, 1.0, 5.0

#: Begins to watch servers at these addresses.
MakeWatch: TypeAlias = Callable[[Sequence[Address]], ServerWatch]


@dataclass(eq=False)
class _Server:
    """One server, as the controller knows it.

    Attributes:
        role: its role.
        address: where it is.
        process: the number of the process that has joined; None before.
        incarnation: of that process in its role.
        has_notice: its notice was sent.
        has_left: that it has left was sent.
        beat_secs: when its next heartbeat is due, in monotonic seconds.
        away_secs: since when it has been away after a notice; None: it is not.
    """

    role: Role
    address: Address
    process: int | None = None
    incarnation: int = 0
    has_notice: bool = False
    has_left: bool = False
    beat_secs: float = 0.0
    away_secs: float | None = None

    @property
    def name(self) -> str:
        """For people."""
        return f"{_NAMES[self.role.kind]} {self.role.name} ({self.address})"


#: By kind, the name for people, and what a notice leads to.
_NAMES = {RoleKind.SERVER: "server", RoleKind.WORKER: "embedding worker"}
_ENDS = "the epoch ends early, and is committed first"
_OUTCOMES = {RoleKind.SERVER: _ENDS, RoleKind.WORKER: f"hosts go on with another one; without one {_ENDS}"}


class BackgroundLook:
    """The addresses that a bucket names, which may be slow to answer: a call returns those of the last look, and begins the next one in a thread.

    Args:
        read: looks for them.
        first: those before the first look has ended.
    """

    def __init__(self, read: Callable[[], tuple[Address, ...]], first: tuple[Address, ...]) -> None:
        self._read, self._found = read, first
        self._thread: threading.Thread | None = None

    def __call__(self) -> tuple[Address, ...]:
        """The addresses of the last look."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._look, name="servers in a bucket", daemon=True)
            self._thread.start()
        return self._found

    def _look(self) -> None:
        try:
            self._found = self._read()
        except StorageError as error:  # the next look may succeed
            _LOG.info("where the tables are was not read: %s", error)


class ServerRoles:
    """The servers, or embedding workers, of a job, for its supervisor. Call :meth:`follow` again and again.

    Args:
        find: the addresses of the servers that have the tables now.
        watch: begins to watch servers.
        release: of the job.
        kind: of their roles, whose names begin with its first letter.
        on_message: called with a sentence when a server leaves or is back.
        clock: monotonic seconds.
        find_secs: between two calls of ``find``.
    """

    def __init__(
        self,
        find: Callable[[], tuple[Address, ...]],
        watch: MakeWatch,
        *,
        release: str,
        kind: RoleKind = RoleKind.SERVER,
        on_message: Callable[[str], None] = lambda message: None,
        clock: Callable[[], float] = time.monotonic,
        find_secs: float = _FIND_SECS,
    ) -> None:
        self._kind, self._find_secs = kind, find_secs
        self._find, self._make_watch, self._release = find, watch, release
        self._on_message, self._clock = on_message, clock
        self._servers: list[_Server] = []
        self._removed: list[_Server] = []
        self._watch: ServerWatch | None = None
        self._running: Collection[str] = ()
        self._next_find_secs = 0.0

    @classmethod
    def of_run(
        cls, servers: RunServers, run_dir: str, *, release: str, on_message: Callable[[str], None] = lambda message: None,
        watch: Callable[[RunServers], ServerWatch] = watch_servers,
    ) -> ServerRoles:  # fmt: skip
        """Those of a job, whose hosts write in its run directory where the tables are now. ``watch``: begins to watch servers."""
        documents, is_bucket = documents_of_run(run_dir), is_gcs(run_dir)

        def read() -> tuple[Address, ...]:
            try:
                state = documents.read_state()
            except (NotFound, TornCheckpoint):
                return servers.addresses
            return servers.addresses if state.run < servers.run else state.servers

        def watch_at(addresses: Sequence[Address]) -> ServerWatch:
            return watch(replace(servers, addresses=tuple(addresses), plan=None))

        find, find_secs = (
            (BackgroundLook(read, servers.addresses), _FIND_IN_BUCKET_SECS) if is_bucket else (read, _FIND_SECS)
        )
        return cls(find, watch_at, release=release, on_message=on_message, find_secs=find_secs)

    @classmethod
    def of_workers(
        cls, servers: RunServers, *, release: str, on_message: Callable[[str], None] = lambda message: None
    ) -> ServerRoles:
        """The embedding workers of a job, which stay at their addresses."""

        def watch_at(addresses: Sequence[Address]) -> ServerWatch:
            return watch_workers(servers)

        return cls(lambda: servers.workers, watch_at, release=release, kind=RoleKind.WORKER, on_message=on_message)

    def follow(self, client: ControllerClient, running: Collection[str] = ()) -> None:
        """Tell the controller what has changed; what it does not take now is sent at a later call.

        ``running``: the names of the servers that the job needs now; none: all of them.
        """
        self._running = running
        if self._clock() >= self._next_find_secs:
            self._next_find_secs = self._clock() + self._find_secs
            self._take(self._find())
        if self._watch is None:
            return
        try:
            while self._removed:
                self._remove(client, self._removed[-1])
                self._removed.pop()
            for server, found in zip(self._servers, self._watch.servers, strict=True):
                self._tell(client, server, found)
        except HeadraceError as error:
            _LOG.info("the controller did not take what has changed about a server: %s", error)

    def close(self) -> None:
        """End the watch: servers that drain do not wait for the job any more."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _take(self, addresses: tuple[Address, ...]) -> None:
        """Watch these servers, if they are others than before: the tables were moved."""
        if addresses == tuple(one.address for one in self._servers):
            return
        self.close()
        before, self._removed = self._servers, self._servers[len(addresses) :]
        self._servers = [_Server(Role(self._kind, f"{self._kind[0]}{k}"), one) for k, one in enumerate(addresses)]
        for old, new in zip(before, self._servers, strict=False):
            new.incarnation = old.incarnation
        self._watch = self._make_watch(addresses)

    def _remove(self, client: ControllerClient, server: _Server) -> None:
        """Let a server whose tables were moved leave the job, which does not wait for it."""
        self._join(client, server)
        self._send(client, server, Left(0.0, server.role, server.incarnation))

    def _tell(self, client: ControllerClient, server: _Server, found: WatchedServer) -> None:
        """Send what has changed about a server."""
        if found.state is None or not (found.answers or found.is_gone):
            return
        if server.has_left and server.process == found.state.process:
            self._watch_of().let_go(
                server.address, server.process
            )  # it was cut off, and the job waits for the next process
            return
        if server.process != found.state.process:
            self._join(client, server)
            server.process, server.has_notice, server.has_left = found.state.process, False, False
            self._say_back(server)
        elif found.answers and self._clock() >= server.beat_secs:
            load = ServerLoad(found.state.process, found.state.processor_secs, found.at_secs)
            self._follow(client, server, self._send(client, server, load=load))
        if found.state.is_draining and not server.has_notice:
            client.notice(found.state.left_secs, server.role)
            server.has_notice = True
            self._say_leaving(server, f"leaves after {found.state.reason}")
        if found.is_gone:
            self._send(client, server, Left(0.0, server.role, server.incarnation))
            server.has_left = True

    def _follow(self, client: ControllerClient, server: _Server, orders: Sequence[Order]) -> None:
        for order in orders:
            if isinstance(order, (Rejoin, Refuse)):
                least = order.least_incarnation if isinstance(order, Rejoin) else 0
                server.incarnation = max(server.incarnation, least - 1)
                self._join(client, server)
                server.has_notice = False
            elif isinstance(order, Leave):
                self._say_leaving(server, "leaves after a preemption notice")
                assert server.process is not None, "a process has joined before it is ordered to leave"
                self._watch_of().let_go(server.address, server.process)

    def _watch_of(self) -> ServerWatch:
        assert self._watch is not None, "servers are watched before they leave"
        return self._watch

    def _join(self, client: ControllerClient, server: _Server) -> None:
        server.incarnation = max(server.incarnation + 1, time.time_ns() // 1_000_000)
        self._send(client, server, Joined(0.0, server.role, server.incarnation, self._release, PROTOCOL))

    def _send(
        self, client: ControllerClient, server: _Server, *events: Event, load: ServerLoad | None = None
    ) -> tuple[Order, ...]:
        report = RoleReport(str(server.address), load=load)
        call = RoleCall(client.job, server.role, server.incarnation, report, events)
        server.beat_secs = self._clock() + _BEAT_SECS
        return client.send(call).orders

    def _say_leaving(self, server: _Server, what: str) -> None:
        if self._running and server.role.name not in self._running:
            return  # it has no tables any more, which the state of the job says
        if server.away_secs is None:
            server.away_secs = self._clock()
            self._on_message(f"{server.name} {what}: {_OUTCOMES[self._kind]}")

    def _say_back(self, server: _Server) -> None:
        if server.away_secs is not None:
            away_secs, server.away_secs = self._clock() - server.away_secs, None
            self._on_message(f"{server.name} is back after {away_secs:.0f} s")
