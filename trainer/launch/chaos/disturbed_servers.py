"""The faults of parameter servers of this machine, whose connections go through links."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from trainer.flight.addresses import Address
from trainer.launch.chaos.links import Link, Links
from trainer.launch.chaos.schedule import Fault, FaultKind
from trainer.launch.local_servers import LocalServers

#: A message through a slow link waits for this part of the time that the link is slow.
_DELAY_SHARE = 0.1


class DisturbedServers:
    """Applies faults to servers.

    Args:
        servers: that run.
        links: in which each server gets a link.
    """

    def __init__(self, servers: LocalServers, links: Links) -> None:
        self._servers, self._links = servers, links
        self._link: dict[str, Link] = {
            name: links.open(partial(_same, address))
            for name, address in zip(servers.names, servers.addresses, strict=True)
        }

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses of the links, by which the clients reach the servers."""
        return tuple(link.address for link in self._link.values())

    def running(self) -> tuple[str, ...]:
        """The servers that run now: their keepers and the processes that answer."""
        return tuple(name for name, keeper in self._servers.processes.items() if child_of(keeper))

    def apply(self, fault: Fault, name: str) -> Callable[[], None] | None:
        """Apply a fault to a server; returns what ends it, None for one that does not last. Raises OSError for one that has ended."""
        keeper = self._servers.processes.get(name, 0)
        child = child_of(keeper)
        match fault.kind:
            case FaultKind.LOSE_MACHINE:
                self._servers.lose(name)
                return None
            case FaultKind.SLOW_LINK:
                self._links.delay(self._link[name], fault.hold_secs * _DELAY_SHARE)
                return partial(self._links.delay, self._link[name], 0.0)
            case FaultKind.PARTITION:
                self._links.cut(self._link[name], is_reset=fault.is_reset)
                return partial(self._links.heal, self._link[name])
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


def child_of(keeper: int) -> int:
    """The process of a keeper that answers; 0 if there is none now."""
    try:
        found = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    except OSError:
        return 0
    return int(found[0]) if found else 0


def _same(address: Address) -> Address:
    return address
