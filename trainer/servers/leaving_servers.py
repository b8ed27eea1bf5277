"""The parameter servers of training in one process that leave after a preemption notice.

Training asks after each batch whether its epoch must end early. After the checkpoint the servers are let go, and training waits until they
are back, or goes on without them. A server has a notice when it drains, or by a request in the files of the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from types import TracebackType
from typing import Self, TypeAlias

from trainer.servers.run_servers import RunServers
from trainer.servers.server_watch import ServerWatch, WatchedServer, watch_servers
from trainer.wire.flight.addresses import Address

#: Between looks for a request, and between looks whether a server is back.
_LOOK_SECS, _WAIT_SECS = 0.5, 0.1

#: Shows that training waits while it is open, by the sentence that its function is given.
Waiting: TypeAlias = Callable[[], AbstractContextManager[Callable[[str], None]]]
#: Begins to watch the servers of a run.
MakeWatch: TypeAlias = Callable[[RunServers], ServerWatch]


def _ignore(sentence: str) -> None:
    """Show nothing."""


class LeavingServers:
    """Training in one process, while servers leave after a notice.

    Args:
        find: the servers that have the tables now, also those that are away.
        asked: the names of servers that a person has given a notice; called at most twice a second.
        least: training goes on with this number of servers or more while others are away; 0: it waits for all of them.
        tell: is called with a sentence when a server leaves or is back.
        waiting: is open while training waits, and gives what is called again and again with a sentence.
        watch: begins to watch servers.
        clock: monotonic seconds.
        sleep: waits for seconds.
    """

    def __init__(
        self,
        find: Callable[[], RunServers],
        asked: Callable[[], Sequence[str]] = tuple,
        *,
        least: int = 0,
        tell: Callable[[str], None] = lambda sentence: None,
        waiting: Waiting = lambda: nullcontext(_ignore),
        watch: MakeWatch = watch_servers,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._find, self._asked, self._least = find, asked, least
        self._tell, self._waiting, self._make_watch = tell, waiting, watch
        self._clock, self._sleep = clock, sleep
        self._watch: ServerWatch | None = None
        self._addresses: tuple[Address, ...] = ()
        # By the address of a server that has a notice, the process that had it, and when it was noticed.
        self._leaving: dict[Address, tuple[int, float]] = {}
        self._next_look = clock()
        self.unused: tuple[str, ...] = ()

    def must_end_early(self) -> bool:
        """Whether a server that training uses has a notice."""
        self._follow()
        return any(name not in self.unused for name, one in self._named() if one.address in self._leaving)

    def is_any_back(self) -> bool:
        """Whether a server is back that training does not use: it takes it again after a checkpoint."""
        self._follow()
        return any(name in self.unused for name, one in self._named() if one.address not in self._leaving)

    def settle(self) -> None:
        """Let servers with a notice go; return once training may go on with all servers but :attr:`unused`."""
        with ExitStack() as shown:
            show: Callable[[str], None] | None = None
            while not self._may_go_on():
                show = show or shown.enter_context(self._waiting())
                show(f"waiting for {self._sentence()}")
                self._sleep(_WAIT_SECS)
        self.unused = tuple(name for name, one in self._named() if one.address in self._leaving)

    def _may_go_on(self) -> bool:
        """Whether training has the servers that it needs. Those with a notice are let go."""
        self._follow()
        assert self._watch is not None
        for address, (process, _) in self._leaving.items():
            self._watch.let_go(address, process)
        present = sum(one.is_up for _, one in self._named() if one.address not in self._leaving)
        return not self._leaving or bool(self._least and present >= self._least)

    def close(self) -> None:
        """End the watch."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _named(self) -> list[tuple[str, WatchedServer]]:
        found: Sequence[WatchedServer] = () if self._watch is None else self._watch.servers
        return [(f"s{k}", one) for k, one in enumerate(found)]

    def _follow(self) -> None:
        """Take what is known of the servers now."""
        servers = self._find()
        if servers.addresses != self._addresses:  # tables were moved
            self.close()
            self._addresses, self._watch = servers.addresses, self._make_watch(servers)
            self._leaving, self.unused = {}, ()
        asked = self._notices()
        for name, one in self._named():
            if one.state is None:
                continue
            if one.address not in self._leaving and (one.state.is_draining or name in asked):
                self._leaving[one.address] = one.state.process, self._clock()
                why = one.state.reason or "a preemption notice"
                self._tell(
                    f"server {name} ({one.address}) leaves after {why}: the epoch ends early, and is committed first"
                )
            elif one.is_up and self._leaving.get(one.address, (one.state.process,))[0] != one.state.process:
                _, since_secs = self._leaving.pop(one.address)
                self._tell(f"server {name} ({one.address}) is back after {self._clock() - since_secs:.0f} s")

    def _notices(self) -> Sequence[str]:
        """The names of servers in new notices of people."""
        if self._clock() < self._next_look:
            return ()
        self._next_look = self._clock() + _LOOK_SECS
        return self._asked()

    def _sentence(self) -> str:
        """Which servers are away, and for how long the first of them."""
        names = [f"server {name} ({one.address})" for name, one in self._named() if one.address in self._leaving]
        since_secs = min(secs for _, secs in self._leaving.values())
        return f"{', '.join(names)} for {self._clock() - since_secs:.0f} s"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
