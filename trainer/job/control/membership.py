"""A role's side of the protocol: it joins, sends heartbeats, repeats reports, and receives orders.

Two threads send: one sends heartbeats, which wait at the controller until the orders change, the other sends reports at once. A
controller that is away only delays: calls are repeated for ``patience_secs``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from trainer.job.control.controller_client import ControllerClient, is_away, is_other_service
from trainer.job.control.messages import PROTOCOL, Answer, Peer, RoleCall, RoleReport, check_role
from trainer.scheduling.events import (
    CommitFailed,
    Drained,
    Event,
    Failed,
    Joined,
    Left,
    PartWritten,
    Position,
    Role,
)
from trainer.scheduling.holds import describe_error
from trainer.scheduling.orders import AskPosition, Order, Refuse, Rejoin, StartEpoch, WritePart
from transforms.errors import HeadraceError, InputError

_LOG = logging.getLogger(__name__)
#: The waits between calls while the controller is away.
_FIRST_WAIT_SECS = 0.05
_MOST_WAIT_SECS = 1.0
#: Answers that change without an end are requested at most so often.
_LEAST_BEAT_SECS = 0.02
#: How long a role that leaves tries to report it.
_LEAVE_SECS = 5.0
#: How long the end waits for threads; a call that still waits at the controller changes nothing afterwards.
_JOIN_SECS = 2.0

OnOrders = Callable[[tuple[Order, ...], tuple[Peer, ...]], None]


class Refused(InputError):
    """The controller refused this process: it runs another release, or another process has its role."""


class Membership:
    """A process of a job, until it leaves. A context manager: it joins, and ends its threads.

    Args:
        client: of the controller.
        role: of this process.
        release: that this process runs.
        on_orders: receives the current orders and, for a host, the live readers and hosts; it is called with every answer, so it
            must ignore what it has followed and return soon. It is called by one thread at a time.
        on_rejoin: called before the process joins again with a higher incarnation: it must discard all that is in memory.
        report: returns what each heartbeat sends: the address, progress, a sample of the buffer since its last call.
        patience_secs: a controller may be away for so long.
        beat_secs: the time between heartbeats.
        incarnation: the first one; by default the milliseconds of the clock.
        on_error: called with the error that ends the membership after it has joined, in another thread.
    """

    def __init__(
        self,
        client: ControllerClient,
        role: Role,
        *,
        release: str,
        on_orders: OnOrders,
        on_rejoin: Callable[[], None] = lambda: None,
        report: Callable[[], RoleReport] = RoleReport,
        patience_secs: float = 300.0,
        beat_secs: float = 1.0,
        protocol: int = PROTOCOL,
        incarnation: int | None = None,
        on_error: Callable[[Exception], None] = lambda error: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_role(role)
        self.role, self.incarnation = role, _milliseconds() if incarnation is None else incarnation
        self.error: Exception | None = None
        self._client, self._release, self._protocol = client, release, protocol
        self._on_orders, self._on_rejoin, self._report, self._on_error = on_orders, on_rejoin, report, on_error
        self._patience_secs, self._beat_secs, self._clock = patience_secs, beat_secs, clock
        self._ended = threading.Event()
        self._lock = threading.RLock()
        self._changed = threading.Condition(threading.Lock())
        self._repeated: dict[tuple[type[Event], int], Event] = {}
        self._unsent: list[Event] = []
        self._seen = (0, 0)
        self._key = ""
        self._must_join = True
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Join, which gives the first orders, and begin to send heartbeats.

        Raises :class:`Refused`, and :class:`Unreachable` if the controller is away for longer than ``patience_secs``.
        """
        self._apply(self._send_patiently(lambda: self._call(self._events_of_beat(), wait_secs=0.0)))
        self.check()
        for name, run in (("heartbeats", self._beat), ("reports", self._send_reports)):
            thread = threading.Thread(target=self._guarded, args=(run,), name=f"{self.role} {name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def send(self, event: Event) -> None:
        """Report an event of this process; its time is set by the controller. Returns at once.

        Position, Drained, PartWritten and CommitFailed are repeated until the orders do not need them any more.
        """
        with self._changed:
            if isinstance(event, (Position, Drained, PartWritten, CommitFailed)):
                # A part that was written after all replaces the failure, and the reverse.
                kind = PartWritten if isinstance(event, CommitFailed) else type(event)
                self._repeated[kind, event.attempt] = event
            self._unsent.append(event)
            self._changed.notify_all()

    def position(self, attempt: int, next_unit: int) -> None:
        """Report the first unit that is not begun."""
        self.send(Position(0.0, self.role, self.incarnation, attempt, next_unit))

    def drained(self, attempt: int, stop_unit: int) -> None:
        """Report that the units below ``stop_unit`` are trained and no update is in flight."""
        self.send(Drained(0.0, self.role, self.incarnation, attempt, stop_unit))

    def part_written(self, attempt: int, part: str) -> None:
        """Report that the part of a commit is durable."""
        self.send(PartWritten(0.0, self.role, self.incarnation, attempt, part))

    def commit_failed(self, attempt: int, error: BaseException) -> None:
        """Report that the part of a commit was not written."""
        self.send(CommitFailed(0.0, attempt, describe_error(error), self.role, self.incarnation))

    def fail(self, attempt: int, error: BaseException) -> None:
        """Report an error of an attempt; 0: before the first one."""
        self.send(Failed(0.0, self.role, self.incarnation, attempt, describe_error(error)))

    def leave(self) -> None:
        """Report that this process ends, and end its threads. A controller that is away is not waited for long."""
        self._end()
        left = Left(0.0, self.role, self.incarnation)
        try:
            events = (*self._take_unsent(), left)
            self._send_patiently(lambda: self._call(events, wait_secs=0.0), patience_secs=_LEAVE_SECS)
        except HeadraceError as error:
            _LOG.warning("%s could not report that it leaves: %s", self.role, error.what)
        self._join_threads()

    def close(self) -> None:
        """End the threads without a report, as if the process were killed."""
        self._end()
        self._join_threads()

    def check(self) -> None:
        """Raise the error that ended the membership."""
        if self.error is not None:
            raise self.error

    def wait(self, timeout_secs: float | None = None) -> bool:
        """Wait until the membership has ended; whether it has. Its error is raised."""
        ended = self._ended.wait(timeout_secs)
        self.check()
        return ended

    def __enter__(self) -> Membership:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end(self) -> None:
        self._ended.set()
        with self._changed:
            self._changed.notify_all()

    def _join_threads(self) -> None:
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_JOIN_SECS)

    def _guarded(self, run: Callable[[], None]) -> None:
        try:
            run()
        except Exception as error:
            if not self._ended.is_set():
                self.error = error
                _LOG.error("%s ends its membership: %s", self.role, error)
                self._on_error(error)
        finally:
            self._end()

    def _beat(self) -> None:
        while not self._ended.is_set():
            begun = self._clock()
            before = self._key
            self._apply(self._send_patiently(lambda: self._call(self._events_of_beat(), wait_secs=self._beat_secs)))
            least = _LEAST_BEAT_SECS if self._key != before or self._must_join else self._beat_secs / 2
            self._ended.wait(max(0.0, begun + least - self._clock()))

    def _send_reports(self) -> None:
        while not self._ended.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._unsent or self._ended.is_set())
            if self._ended.is_set():
                return
            events = self._take_unsent()
            self._apply(self._send_patiently(lambda sent=events: self._call(sent, wait_secs=0.0)))  # type: ignore[misc]

    def _take_unsent(self) -> tuple[Event, ...]:
        with self._changed:
            events, self._unsent = tuple(self._unsent), []
        return events

    def _events_of_beat(self) -> tuple[Event, ...]:
        if self._must_join:
            return (Joined(0.0, self.role, self.incarnation, self._release, self._protocol),)
        with self._changed:
            return tuple(self._repeated.values())

    def _call(self, events: Sequence[Event], wait_secs: float) -> tuple[int, Answer]:
        incarnation = self.incarnation
        own = tuple(one for one in events if getattr(one, "incarnation", incarnation) == incarnation)
        known = self._key if wait_secs else ""
        report = self._report() if wait_secs or self._must_join else None
        call = RoleCall(self._client.job, self.role, incarnation, report, own, known, wait_secs)
        return incarnation, self._client.send(call)

    def _send_patiently(
        self, send: Callable[[], tuple[int, Answer]], patience_secs: float | None = None
    ) -> tuple[int, Answer]:
        """The answer of the controller, which may be away for a time."""
        limit_secs = self._patience_secs if patience_secs is None else patience_secs
        begun, wait_secs = self._clock(), _FIRST_WAIT_SECS
        while True:
            try:
                return send()
            except HeadraceError as error:
                is_over = self._clock() - begun >= limit_secs or (self._ended.is_set() and patience_secs is None)
                if not self._may_pass(error) or is_over:
                    raise
            if self._ended.is_set():
                time.sleep(wait_secs)
            else:
                self._ended.wait(wait_secs)
            wait_secs = min(2 * wait_secs, _MOST_WAIT_SECS)

    def _may_pass(self, error: HeadraceError) -> bool:
        """Whether a call may succeed later. After a restart, the port may be that of another service for a time."""
        if is_away(error):
            return True
        has_joined = self._seen != (0, 0)
        return has_joined and is_other_service(error)

    def _apply(self, answered: tuple[int, Answer]) -> None:
        """Follow an answer, unless it belongs to an earlier incarnation or is older than an answer before it."""
        incarnation, answer = answered
        with self._lock:
            if incarnation != self.incarnation or (answer.lease, answer.version) < self._seen or self._ended.is_set():
                return
            self._seen, self._key = (answer.lease, answer.version), answer.key
            self._must_join = False
            for order in answer.orders:
                if isinstance(order, Refuse):
                    raise Refused("the controller does not accept this process", where=str(self.role),
                                  value=order.reason, next_step="run the release of the controller, once per role")  # fmt: skip
                if isinstance(order, Rejoin):
                    self._rejoin(order)
                    return
            self._forget_needless(answer.orders)
            self._on_orders(answer.orders, answer.peers)

    def _rejoin(self, order: Rejoin) -> None:
        """Join again: with the same incarnation if the join was lost, else as a new process with nothing in memory."""
        self._must_join = True
        if order.least_incarnation > self.incarnation:
            self._on_rejoin()
            with self._changed:
                self.incarnation = max(order.least_incarnation, _milliseconds())
                self._repeated.clear()
                self._unsent.clear()

    def _forget_needless(self, orders: Sequence[Order]) -> None:
        """Stop repeating what the orders do not need."""
        needed: set[tuple[type[Event], int]] = set()
        for order in orders:
            if isinstance(order, StartEpoch):
                needed.add((Drained, order.attempt))
            elif isinstance(order, AskPosition):
                needed.add((Position, order.attempt))
            elif isinstance(order, WritePart):
                needed.add((PartWritten, order.attempt))
        with self._changed:
            self._repeated = {key: event for key, event in self._repeated.items() if key in needed}


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000
