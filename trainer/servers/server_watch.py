"""Watches the parameter servers, or embedding workers, of a training: whether each answers, is about to end, or was started again.

A thread a server asks it twice a second over a connection of its own. A server that drains ends only when the training lets it go.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from trainer.errors import AttemptOver
from trainer.servers.client_updates import Greeting
from trainer.servers.drain import MEASURES, DrainState
from trainer.servers.run_servers import RunServers
from trainer.servers.session_roles import SessionRole
from trainer.servers.tcp_link import LinkOptions, TcpLink
from trainer.tables.routes.servers.frames import Kind
from trainer.tables.routes.servers.server_link import Request
from trainer.wire.flight.addresses import Address
from transforms.errors import HeadraceError

_LOG = logging.getLogger(__name__)
#: Between questions, and how long an answer may take.
_LOOK_SECS, _ANSWER_SECS = 0.5, 3.0
_JOIN_SECS = 1.0


@dataclass(frozen=True, slots=True)
class WatchedServer:
    """What is known of a server.

    Attributes:
        address: where it is.
        state: what it said last; None: it has not answered yet.
        answers: whether it answered the last question.
        at_secs: when it answered last, in monotonic seconds.
    """

    address: Address
    state: DrainState | None = None
    answers: bool = False
    at_secs: float = 0.0

    @property
    def is_leaving(self) -> bool:
        """Whether it drains."""
        return self.answers and self.state is not None and self.state.is_draining

    @property
    def is_gone(self) -> bool:
        """Whether it has ended after it drained."""
        return not self.answers and self.state is not None and self.state.is_draining

    @property
    def is_up(self) -> bool:
        """Whether it answers and stays."""
        return self.answers and self.state is not None and not self.state.is_draining


class ServerWatch:
    """Watches servers from its construction until :meth:`close`; any thread may ask what is known.

    Args:
        addresses: of the servers.
        token: of the servers; empty for none.
        tls: what verifies them; None: connections are not encrypted.
        measures: whether servers say their processor time.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        token: str = "",
        tls: ssl.SSLContext | None = None,
        measures: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._token, self._tls, self._clock = token, tls, clock
        self._number = MEASURES if measures else 0
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._servers = {one: WatchedServer(one) for one in addresses}
        self._let_go: dict[Address, int] = {}
        self._threads = [
            threading.Thread(target=self._watch, args=(one,), name=f"watch {one}", daemon=True) for one in addresses
        ]
        for thread in self._threads:
            thread.start()

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses of the servers."""
        return tuple(self._servers)

    @property
    def servers(self) -> tuple[WatchedServer, ...]:
        """What is known of each server, in the order of their addresses."""
        with self._lock:
            return tuple(self._servers.values())

    def let_go(self, address: Address, process: int) -> None:
        """Let a server end: it is not needed before it was started again.

        ``process``: its number. This does not concern the process that takes its place, also where that is there already.
        """
        with self._lock:
            self._let_go[address] = process

    @property
    def is_closed(self) -> bool:
        """Whether it has ended."""
        return self._ended.is_set()

    def close(self) -> None:
        """End the connections: servers that drain do not wait for this training any more."""
        self._ended.set()
        for thread in self._threads:
            thread.join(_JOIN_SECS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _watch(self, address: Address) -> None:
        link: TcpLink | None = None
        while not self._ended.is_set():
            try:
                link = link or self._connect(address)
                self._ask(address, link)
            except HeadraceError as error:
                _LOG.debug("the server at %s does not answer: %s", address, error.what)
                if link is not None:
                    link.close()
                    link = None
                self._note(address, None)
            self._ended.wait(_LOOK_SECS)
        if link is not None:
            link.close()

    def _connect(self, address: Address) -> TcpLink:
        """Connect once. Raises :class:`~trainer.errors.ServerLost` for a server that does not answer."""
        greeting = Greeting(token=self._token, role=SessionRole.WATCHES)
        options = LinkOptions(greeting, patience_secs=_ANSWER_SECS, tls=self._tls, check=self._check)
        return TcpLink(address, options)

    def _check(self) -> None:
        if self._ended.is_set():
            raise AttemptOver("the training no longer watches its servers")

    def _ask(self, address: Address, link: TcpLink) -> None:
        link.send(Request(Kind.WATCH, number=self._number))
        state = DrainState.read(link.receive().body)
        with self._lock:
            goes = self._let_go.get(address) == state.process
        self._note(address, state)
        if goes:  # by its number: the request may be sent again to the process that takes its place
            link.send(Request(Kind.LEAVE, number=state.process))
            link.receive()

    def _note(self, address: Address, state: DrainState | None) -> None:
        with self._lock:
            before = self._servers[address]
            found = before.state if state is None else state
            at_secs = before.at_secs if state is None else self._clock()
            self._servers[address] = WatchedServer(address, found, state is not None, at_secs)


def watch_servers(servers: RunServers) -> ServerWatch:
    """Watch the servers of a run, and measure their work."""
    return ServerWatch(servers.addresses, token=servers.token, tls=servers.tls, measures=True)


def watch_workers(servers: RunServers) -> ServerWatch:
    """Watch the embedding workers of a run."""
    return ServerWatch(servers.workers, token=servers.workers_token, tls=servers.workers_tls)
