"""The faults of parameter servers, or embedding workers, of this machine, whose connections go through links."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from trainer.job.launch.chaos.limited_memory import LimitedMemory
from trainer.job.launch.chaos.links import Link, Links
from trainer.job.launch.chaos.schedule import Fault, FaultKind
from trainer.job.launch.local_servers import LocalServers
from trainer.wire.flight.addresses import Address
from transforms.errors import StorageError

#: A server that is started as its folder is full ends; more often it has an error of its own.
_MOST_REVIVALS = 10
#: A message through a slow link waits for this part of the time that the link is slow.
_DELAY_SHARE = 0.1


class DisturbedServers:
    """Applies faults to servers, or to embedding workers.

    Args:
        servers: that run.
        links: in which each server gets a link for hosts, and one for embedding workers.
        memory: has their folders; None: it cannot be full.
    """

    def __init__(self, servers: LocalServers, links: Links, memory: LimitedMemory | None = None) -> None:
        self._servers, self._links, self._memory = servers, links, memory
        self._revivals = 0
        self.links = self._open_links()
        self.worker_links = self._open_links()

    def _open_links(self) -> dict[str, Link]:
        places = zip(self._servers.names, self._servers.addresses, strict=True)
        return {name: self._links.open(partial(_same, address)) for name, address in places}

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses of the links, by which hosts reach the servers."""
        return tuple(link.address for link in self.links.values())

    @property
    def worker_addresses(self) -> tuple[Address, ...]:
        """The addresses of the links by which embedding workers reach the servers."""
        return tuple(link.address for link in self.worker_links.values())

    def address_of(self, name: str) -> Address:
        """Where a server listens, past its links."""
        return self._servers.addresses[self._servers.names.index(name)]

    def running(self) -> tuple[str, ...]:
        """The servers that run now: their keepers and the processes that answer."""
        return tuple(name for name, keeper in self._servers.processes.items() if child_of(keeper))

    def apply(self, fault: Fault, name: str) -> Callable[[], None] | None:
        """Apply a fault to a server; returns what ends it, None for one that does not last. Raises OSError for one that has ended."""
        keeper = self._servers.processes.get(name, 0)
        child = child_of(keeper)
        links = tuple(one[name] for one in (self.links, self.worker_links) if name in one)
        match fault.kind:
            case FaultKind.LOSE_MACHINE:
                self._servers.lose(name)
                return None
            case FaultKind.SLOW_LINK:
                return self._on_links(links, lambda link: self._links.delay(link, fault.hold_secs * _DELAY_SHARE),
                                      lambda link: self._links.delay(link, 0.0))  # fmt: skip
            case FaultKind.PARTITION:
                return self._on_links(
                    links, lambda link: self._links.cut(link, is_reset=fault.is_reset), self._links.heal
                )
            case FaultKind.FULL_MEMORY:
                assert self._memory is not None, "the memory of servers is limited where this kind is drawn"
                self._memory.fill()
                return self._memory.empty
        if not keeper or not child:
            raise ProcessLookupError(name)
        match fault.kind:
            case FaultKind.PAUSE:
                os.kill(child, signal.SIGSTOP)
                return partial(os.kill, child, signal.SIGCONT)
            case FaultKind.KILL:
                os.kill(child, signal.SIGKILL)
            case FaultKind.KILL_KEEPER:
                os.kill(keeper, signal.SIGKILL)
            case FaultKind.PREEMPT:
                os.kill(keeper, signal.SIGTERM)
        return None

    def check(self) -> None:
        """Start servers again that a full folder has ended, once it has space. Raises :class:`StorageError` for others that ended by an error."""
        try:
            self._servers.check()
        except StorageError:
            if self._memory is None or self._revivals >= _MOST_REVIVALS * self._memory.fills:
                raise
            if not self._memory.is_full:
                self._revivals += 1
                self._servers.revive()

    @staticmethod
    def _on_links(
        links: tuple[Link, ...], begin: Callable[[Link], None], end: Callable[[Link], None]
    ) -> Callable[[], None]:
        for link in links:
            begin(link)

        def end_all() -> None:
            for link in links:
                end(link)

        return end_all


def child_of(keeper: int) -> int:
    """The process of a keeper that answers; 0 if there is none now."""
    try:
        found = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    except OSError:
        return 0
    return int(found[0]) if found else 0


def _same(address: Address) -> Address:
    return address
