"""How a server ends that lets its clients commit first: it drains. Decisions with the clock passed in; any thread may call them.

A server that drains answers its clients as before, and refuses others. It ends when the training that watches it says so, when
nothing uses it any more, or after a time.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from trainer.errors import ServerLeaves
from trainer.servers.client_updates import Greeting, run_of
from trainer.wire.frames import Bytes
from transforms.derived_documents import Omitted, document_of, number, read_value, whole
from transforms.documents import Part, parse_document

#: How long the clients of a server may take to commit after SIGTERM, unless its options say otherwise.
DRAIN_SECS = 25.0
#: A client may connect again after so long: for its next attempt, and after the process that answers was killed.
_IDLE_SECS, _RETURN_SECS = 0.5, 10.0
#: The number of a request to watch that asks for the processor time, which servers of earlier releases do not say.
MEASURES = 1
_MOST_SECS = 1e9


def _read_secs(part: Part) -> float:
    if (found := part.number()) > _MOST_SECS:
        raise part.refused(f"at most {_MOST_SECS:g} seconds")
    return found


@dataclass(frozen=True, slots=True)
class DrainState:
    """What a server says to the training that watches it.

    Attributes:
        process: a number of the server, another one after each start; that of a child which was replaced stays.
        is_draining: the server will end.
        left_secs: until it ends at the latest; 0 before it drains.
        reason: why it drains; empty before.
        processor_secs: the processor time of the process since it began; 0 unless it is asked for, and from an earlier release.
    """

    process: Annotated[int, whole(most=1 << 62)]
    is_draining: bool = False
    left_secs: Annotated[float, _read_secs] = 0.0
    reason: Annotated[str, lambda part: part.text()[:200]] = ""
    processor_secs: Omitted[Annotated[float, number(0.0)]] = 0.0

    def to_document(self) -> dict[str, Any]:
        """The JSON object."""
        document: dict[str, Any] = document_of(self)
        return document

    @classmethod
    def read(cls, body: Bytes) -> DrainState:
        """The state in a document. Raises :class:`DataError`."""
        return read_value(cls, parse_document(bytes(body), "state of a server"))


class Drain:
    """The drain of one server.

    Args:
        process: see :class:`DrainState`.
        waits: False for a server whose clients lose nothing when it ends: it waits for them only while a training watches it.
        clock: monotonic seconds.
        processor_clock: the processor time of this process.
    """

    def __init__(
        self,
        process: int,
        *,
        waits: bool = True,
        clock: Callable[[], float] = time.monotonic,
        processor_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._process, self._waits, self._clock, self._processor_clock = process, waits, clock, processor_clock
        self._lock = threading.Lock()
        self._clients: set[object] = set()
        self._watchers: set[object] = set()
        self._run: int | None = None
        self._reason, self._until_secs, self._is_released = "", math.inf, False
        self._idle_until_secs = -math.inf  # a client may connect again before this moment
        self._resumed_until_secs = -math.inf  # what watched the process before may watch this one

    def expect(self, run: int) -> None:
        """Note the run that owns the rows: its clients may connect again while the server drains, until clients of a later run have come."""
        with self._lock:
            self._run = run

    def begin(self, reason: str, secs: float, *, is_resumed: bool = False) -> None:
        """Drain for at most so long. A drain that has begun goes on as it is.

        ``is_resumed``: a process before this one has begun it, whose clients connect again.
        """
        with self._lock:
            if not self._reason:
                now_secs = self._clock()
                self._reason, self._until_secs = reason, now_secs + secs
                if is_resumed:
                    self._idle_until_secs = self._resumed_until_secs = now_secs + _RETURN_SECS

    @property
    def is_begun(self) -> bool:
        """Whether the server drains."""
        return bool(self._reason)

    def check(self, greeting: Greeting) -> None:
        """Raise :class:`ServerLeaves` for a client of another training while the server drains."""
        with self._lock:
            is_known = self._waits_now() and run_of(greeting.attempt) == self._run
            if self._reason and not is_known and not greeting.watches:
                raise ServerLeaves("the server must stay to take a new client", value=f"it leaves after {self._reason}, in at most {self._left_secs():.0f} s",
                                   next_step="wait until it is back, or give other servers")  # fmt: skip

    def add(self, session: object, greeting: Greeting) -> None:
        """A session has begun."""
        if not greeting.watches:
            with self._lock:
                self._clients.add(session)
                self._run = run_of(greeting.attempt)

    def watch(self, session: object, *, measures: bool = False) -> DrainState:
        """The state for a session that watches the server, which waits for this session before it ends.

        ``measures``: with the processor time.
        """
        with self._lock:
            self._watchers.add(session)
            left_secs = self._left_secs() if self._reason else 0.0
            processor_secs = self._processor_clock() if measures else 0.0
            return DrainState(self._process, bool(self._reason), left_secs, self._reason, processor_secs)

    def remove(self, session: object) -> None:
        """A session has ended."""
        with self._lock:
            self._watchers.discard(session)
            if session in self._clients:
                self._clients.remove(session)
                self._idle_until_secs = max(self._idle_until_secs, self._clock() + _IDLE_SECS)

    def release(self, process: int) -> None:
        """The training that watches the server needs it no longer: it ends now, if its number is this one."""
        with self._lock:
            if process == self._process:
                self._reason = self._reason or "a preemption notice"
                self._is_released = True

    @property
    def end(self) -> str:
        """Why the server ends now; empty: it does not."""
        with self._lock:
            now_secs = self._clock()
            if not self._reason:
                return ""
            if self._is_released or not self._waits_now():
                return "its clients do not need it"
            if now_secs >= self._until_secs:
                return "its clients have not committed in time"
            may_return = now_secs < self._idle_until_secs
            return "" if self._clients or self._watchers or may_return else "it has no clients"

    def _waits_now(self) -> bool:
        """Whether clients may lose something when the server ends, as far as it knows."""
        return self._waits or bool(self._watchers) or self._clock() < self._resumed_until_secs

    def _left_secs(self) -> float:
        return max(0.0, self._until_secs - self._clock())
