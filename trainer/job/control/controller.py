"""The controller: one thread owns the job, applies events, follows instructions and answers.

Events that arrive together are logged by one append. The order is: append and sync, follow the instructions, answer. A role's heartbeat
waits for its answer until its orders or peers change, so orders reach roles at once.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, replace

from trainer.errors import EventNotLogged
from trainer.job.control.buffer_samples import WantedReaders
from trainer.job.control.controller_metrics import ControllerMetrics
from trainer.job.control.event_log import EventLog
from trainer.job.control.job_status import ControllerFacts, job_status
from trainer.job.control.lease import Lease
from trainer.job.control.logged_job import Applied, LoggedJob
from trainer.job.control.messages import Answer, JobStatus, Peer, RoleCall, answer_bytes, to_bytes
from trainer.job.control.publishing import CommitPublisher, Publishing
from trainer.job.control.role_reports import RoleReports
from trainer.job.control.wanted_servers import WantedServers
from trainer.scheduling.attempts import want_roles
from trainer.scheduling.buffer_control import BufferSettings
from trainer.scheduling.current_orders import orders_for
from trainer.scheduling.documents import value_document
from trainer.scheduling.due import secs_to_next_due
from trainer.scheduling.events import (
    CommitFailed,
    DataChanged,
    DataRange,
    Event,
    Heartbeat,
    Joined,
    PartitionChanged,
    Published,
    Recovered,
    Role,
    RoleKind,
    ServersChanged,
    Tick,
)
from trainer.scheduling.orders import EndEpoch, Hold, Instruction, Order, Publish, Refuse, Send, WantRoles
from trainer.scheduling.server_control import ServerLimits
from trainer.scheduling.transitions import FINAL
from trainer.wire.flight.error_documents import Unreachable
from transforms.errors import Busy, DataError

_LOG = logging.getLogger(__name__)
#: Requests that wait for the controller's thread; one more is refused, and repeated by its sender.
_MOST_REQUESTS = 10_000
#: Requests whose events are logged by one append.
_MOST_TOGETHER = 256
#: Names of roles that a job remembers.
_MOST_ROLES = 10_000
_BUFFER = BufferSettings()
_SERVERS = ServerLimits(1, 1)


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The settings of a controller.

    Attributes:
        job: the identity of the job.
        tick_secs: the longest time between ticks.
        linger_secs: after the job's end, the longest time that the controller waits for roles to leave.
        publish_secs: after the job's end, the longest time that it waits for a publication.
        buffer: how the number of readers is computed; its limits of readers are those of the job.
        servers: how that of parameter servers is computed; its limits of servers are those of the job.
    """

    job: str = ""
    tick_secs: float = 1.0
    linger_secs: float = 10.0
    publish_secs: float = 60.0
    buffer: BufferSettings = _BUFFER
    servers: ServerLimits = _SERVERS


@dataclass(slots=True)
class _Request:
    """A message that waits for the controller's thread: a role's call, an event, or a question for the status."""

    answer: Future[bytes]
    call: RoleCall | None = None
    event: Event | None = None
    arrived_secs: float = 0.0

    @property
    def kind(self) -> str:
        """What it is, for metrics."""
        return "role" if self.call is not None else "status" if self.event is None else "event"


@dataclass(slots=True)
class _Waiting:
    """A heartbeat whose answer has not changed."""

    request: _Request
    call: RoleCall
    until_secs: float


class Controller:
    """The controller of a job. ``run`` is called once; other methods may be called by any thread.

    Args:
        job: with its log.
        log: of the job.
        publisher: of its commits.
        lease: of the run.
        settings: of the controller.
        data: the units to train, if they are known.
        partition: the name of the plan by which hosts hold the tables; empty: rows are spread over them.
        clock: monotonic seconds.
        wall_clock: epoch seconds, for display.
        metrics: of this process.
        on_point: called between the steps of an event, by tests that end the process there.
    """

    def __init__(
        self,
        job: LoggedJob,
        log: EventLog,
        publisher: CommitPublisher,
        lease: Lease,
        settings: ControllerSettings,
        *,
        data: DataRange | None = None,
        partition: str = "",
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        metrics: ControllerMetrics | None = None,
        on_point: Callable[[str], None] = lambda point: None,
    ) -> None:
        self.settings = settings
        self._metrics = ControllerMetrics() if metrics is None else metrics
        self._job, self._log, self._lease, self._data, self._partition = job, log, lease, data, partition
        self._clock, self._wall_clock, self._on_point = clock, wall_clock, on_point
        self._requests: queue.Queue[_Request | None] = queue.Queue(_MOST_REQUESTS)
        self._current: list[_Request] = []
        self._own: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._unlogged: list[Event] = []
        self._publishing = Publishing(
            publisher,
            check_lease=lease.check,
            report=self._report,
            end=self._fail,
            times=self._metrics.publishes,
            on_point=on_point,
        )
        self._error: Exception | None = None
        self._is_ending = self._has_ended = False
        self._reports = RoleReports()
        self._waiting: dict[Role, _Waiting] = {}
        self._wanted = want_roles(job.job)
        self._readers = WantedReaders(settings.buffer)
        self._servers = WantedServers(settings.servers)
        self._peers: tuple[Peer, ...] = ()
        self._peers_key = ""
        self._versions = self._answered = (job.version, 0)
        self._tick_secs = self._next_tick_secs = -math.inf
        self._final_secs: float | None = None
        self._published_secs: float | None = None
        self._trained_secs: float | None = None
        self._problem = ""

    def call(self, call: RoleCall) -> Future[bytes]:
        """The answer to a role, as a document."""
        return self._enqueue(_Request(Future(), call=call))

    def request(self, event: Event) -> Future[bytes]:
        """Apply an event of a person or a planner; its time is set here. The result is empty."""
        return self._enqueue(_Request(Future(), event=event))

    def status(self) -> Future[bytes]:
        """The document of the job's status."""
        return self._enqueue(_Request(Future()))

    @property
    def unwritten_attempt(self) -> int:
        """The first attempt that may become a commit: parts of earlier ones that no commit names are left over. Before :meth:`run`."""
        job = self._job.job
        return job.attempt + 1 if job.pending is None else job.pending.commit.attempt

    @property
    def server_limits(self) -> tuple[int, int]:
        """The least and the most parameter servers of a job that scales them; 0 and 0 for others."""
        settings = self._job.job.settings
        return (settings.scales_from, settings.servers) if settings.scales_from else (0, 0)

    def end(self) -> None:
        """End the controller, not the job: the next controller continues it."""
        self._is_ending = True
        self._wake()

    def run(self) -> JobStatus:
        """Run until the job is done or stopped, or :meth:`end`. Returns the last status.

        Raises :class:`LeaseLost` when another controller may run.
        """
        try:
            self._step([], first=True)
            while not self._is_over():
                self._current = self._collect()
                with self._metrics.steps.timed():
                    self._step(self._current)
            if self._error is not None:
                raise self._error
            return self._status()
        finally:
            self.close()

    def close(self) -> None:
        """Release what the controller has. Waiting and later calls are refused; the next controller answers them."""
        self._has_ended = True
        self._publishing.close()
        self._refuse_all()
        self._log.close()

    def _enqueue(self, request: _Request) -> Future[bytes]:
        if self._has_ended:
            raise _ended()
        request.arrived_secs = self._clock()
        try:
            self._requests.put_nowait(request)
        except queue.Full:
            raise Busy("a controller must not have too many messages at once", value=_MOST_REQUESTS,
                       next_step="the message is repeated by itself") from None  # fmt: skip
        if self._has_ended:
            self._refuse_all()
        return request.answer

    def _report(self, event: Event) -> None:
        self._own.put(event)
        self._wake()

    def _fail(self, error: Exception) -> None:
        """End the controller with an error."""
        self._error, self._is_ending = error, True
        self._wake()

    def _wake(self) -> None:
        try:
            self._requests.put_nowait(None)
        except queue.Full:
            return

    def _is_over(self) -> bool:
        if self._is_ending:
            return True
        job, now = self._job.job, self._clock()
        if job.state not in FINAL:
            return False
        if self._final_secs is None:
            self._final_secs = now
        if self._publishing.is_busy or self._unlogged:
            return now - self._final_secs >= self.settings.publish_secs
        is_any_left = any(not role.kind.is_watched for role in job.members)
        has_members = is_any_left and now - self._final_secs < self.settings.linger_secs
        return not has_members

    def _collect(self) -> list[_Request]:
        """The next requests; none when time has passed."""
        moments = [self._next_tick_secs, *(one.until_secs for one in self._waiting.values())]
        try:
            first = self._requests.get(timeout=min(max(0.0, min(moments) - self._clock()), self.settings.tick_secs))
        except queue.Empty:
            return []
        found = [] if first is None else [first]
        while len(found) < _MOST_TOGETHER:
            try:
                more = self._requests.get_nowait()
            except queue.Empty:
                break
            if more is not None:
                found.append(more)
        return found

    def _step(self, requests: Sequence[_Request], *, first: bool = False) -> None:
        """Apply the events of requests and the controller's own ones, follow the instructions, answer."""
        at_secs = self._clock()
        groups = [(one, self._events_of(one, at_secs)) for one in requests]
        own = self._own_events(at_secs, first)
        commit = self._job.job.commit
        results, answers = self._apply(own, groups)
        for result in results:
            for one in result.told:
                self._follow(one)
        if self._job.job.commit != commit:
            self._published_secs = self._wall_clock()
            self._trained_secs = self._reports.trained_secs(self._job.job)
        self._on_point("after act")
        self._take_reports(groups)
        self._plan_tick(at_secs)
        for (request, _), found in zip(groups, answers, strict=True):
            self._answer(request, found, at_secs)
        answered_secs = self._clock()
        for request in requests:
            self._metrics.messages.observe(request.kind, answered_secs - request.arrived_secs)
        self._answer_waiting(answered_secs)
        self._on_point("after answer")

    def _apply(
        self, own: Sequence[Event], groups: Sequence[tuple[_Request, list[Event]]]
    ) -> tuple[list[Applied], list[list[Applied]]]:
        """The results of all events, and those of each request."""
        version = self._job.version
        try:
            results = self._job.apply([*own, *(event for _, events in groups for event in events)])
        except EventNotLogged as error:
            self._problem = f"{error.what}: {error.value}"
            _LOG.error("%s", error)
            return self._apply_apart(own, groups)
        if self._job.version != version:
            self._problem = ""
        self._unlogged = []
        rest = iter(results[len(own) :])
        return results, [[next(rest) for _ in events] for _, events in groups]

    def _apply_apart(
        self, own: Sequence[Event], groups: Sequence[tuple[_Request, list[Event]]]
    ) -> tuple[list[Applied], list[list[Applied]]]:
        """Apply each message by itself, so that only those fail that need the log."""
        results: list[Applied] = []
        kept: list[Event] = []
        for event in own:
            try:
                results += self._job.apply([event])
            except EventNotLogged:
                if isinstance(event, (Published, CommitFailed, DataChanged, PartitionChanged, ServersChanged)):
                    kept.append(event)
        self._unlogged = kept
        answers: list[list[Applied]] = []
        for _, events in groups:
            try:
                answers.append(self._job.apply(events))
            except EventNotLogged as error:
                answers.append([Applied(error=error)])
        return [*results, *(one for found in answers for one in found)], answers

    def _plan_tick(self, at_secs: float) -> None:
        """Decide when time is applied again: every ``tick_secs``, and when an event is due."""
        now_secs, secs = self._clock(), self.settings.tick_secs
        if at_secs >= self._next_tick_secs:
            self._tick_secs = now_secs + secs
            self._readers.update(self._job.job.now_secs, self._wanted)
            if (servers := self._servers.update(self._job.job)) is not None:
                self._own.put(ServersChanged(at_secs, servers))
        elif self._versions == self._answered:
            return
        due_secs = secs if self._problem else max(0.01, secs_to_next_due(self._job.job))
        self._next_tick_secs = min(self._tick_secs, now_secs + due_secs)

    def _events_of(self, request: _Request, at_secs: float) -> list[Event]:
        if request.event is not None:
            return [replace(request.event, at_secs=at_secs)]
        call = request.call
        if call is None:
            return []
        job = self._job.job
        if call.role not in job.incarnations and len(job.incarnations) >= _MOST_ROLES:
            request.answer.set_exception(
                DataError("a job must have few roles", value=str(call.role), allowed=f"at most {_MOST_ROLES:,}",
                          next_step="start a process again under its old name"))  # fmt: skip
            return []
        events = [replace(one, at_secs=at_secs) for one in call.events]
        if any(isinstance(one, Joined) for one in events):
            return events
        return [Heartbeat(at_secs, call.role, call.incarnation), *events]

    def _own_events(self, at_secs: float, first: bool) -> list[Event]:
        while True:
            try:
                self._unlogged.append(self._own.get_nowait())
            except queue.Empty:
                break
        own = [replace(one, at_secs=at_secs) for one in self._unlogged]
        if first:
            own.append(Recovered(at_secs))
            job = self._job.job
            if self._partition != (job.partition if job.next_partition is None else job.next_partition):
                own.append(PartitionChanged(at_secs, self._partition))  # before data, which may begin an attempt
            known = job.next_data or job.data
            if self._data is not None and self._data != known:
                own.append(DataChanged(at_secs, self._data))
        elif at_secs >= self._next_tick_secs:
            self._lease.check()
            own.append(Tick(at_secs))
        return own

    def _follow(self, one: Instruction) -> None:
        if isinstance(one, Publish):
            self._publishing.begin(one)
        elif isinstance(one, WantRoles):
            self._wanted = one
        elif isinstance(one, Hold):
            _LOG.warning("the job is held: %s (%s)", one.reason, one.error_class)

    def _answer(self, request: _Request, results: Sequence[Applied], at_secs: float) -> None:
        if request.answer.done():
            return
        error = next((one.error for one in results if one.error is not None), None)
        if error is not None:
            request.answer.set_exception(error)
        elif request.call is not None:
            self._answer_role(request, request.call, results, at_secs)
        elif request.event is not None:
            request.answer.set_result(b"")
        else:
            request.answer.set_result(to_bytes(self._status().to_document()))

    def _answer_role(self, request: _Request, call: RoleCall, results: Sequence[Applied], at_secs: float) -> None:
        refused = tuple(
            one.order
            for result in results
            for one in result.told
            if isinstance(one, Send) and one.role == call.role and isinstance(one.order, Refuse)
        )
        answer = self._answer_to(call, refused)
        if answer.key != call.known or not call.wait_secs:
            request.answer.set_result(answer_bytes(answer))
            return
        earlier = self._waiting.pop(call.role, None)
        if earlier is not None:
            earlier.request.answer.set_result(answer_bytes(self._answer_to(earlier.call)))
        self._waiting[call.role] = _Waiting(request, call, at_secs + call.wait_secs)

    def _answer_to(self, call: RoleCall, refused: tuple[Order, ...] = ()) -> Answer:
        orders = refused or orders_for(self._job.job, call.role, call.incarnation)
        is_host = call.role.kind is RoleKind.HOST
        key = _orders_key(orders) + (self._peers_key if is_host else "")
        return Answer(self._lease.number, sum(self._versions), key, orders, self._peers if is_host else ())

    def _answer_waiting(self, now_secs: float) -> None:
        """Answer the heartbeats whose answer has changed, or whose time is over."""
        has_changed, self._answered = self._versions != self._answered, self._versions
        for role, one in list(self._waiting.items()):
            if not has_changed and now_secs < one.until_secs:
                continue
            answer = self._answer_to(one.call)
            if answer.key != one.call.known or now_secs >= one.until_secs:
                del self._waiting[role]
                one.request.answer.set_result(answer_bytes(answer))

    def _take_reports(self, groups: Sequence[tuple[_Request, list[Event]]]) -> None:
        job, has_new = self._job.job, False
        for request, _ in groups:
            call = request.call
            if call is None or call.report is None:
                continue
            self._reports.add(job, call)
            has_new = True
            if call.report.buffer is not None and job.is_ranked(call.role):
                self._readers.add(call.role.name, call.report.buffer)
            if call.role.kind is RoleKind.SERVER or job.is_ranked(call.role):
                self._servers.add(call.role, call.report)
        if not has_new and self._versions[0] == self._job.version:
            return
        peers = self._reports.peers(job)
        self._versions = (self._job.version, self._versions[1] + (peers != self._peers))
        if peers != self._peers:
            self._peers, self._peers_key = peers, _digest([value_document(one) for one in peers])

    def _status(self) -> JobStatus:
        job = self._job.job
        facts = ControllerFacts(
            job=self.settings.job,
            release=job.settings.release,
            process_id=os.getpid(),
            lease=self._lease.number,
            wanted=self._wanted,
            wanted_readers=self._readers.wanted(self._wanted),
            published_secs=self._published_secs,
            trained_secs=self._trained_secs,
            at_secs=self._wall_clock(),
            log_bytes=self._log.size_bytes,
            problem=self._problem or self._publishing.problem,
        )
        return job_status(job, facts, self._reports.of_members(job))

    def _refuse_all(self) -> None:
        """Answer every waiting request with an error, after the controller has ended."""
        waiting = [*self._current, *(one.request for one in self._waiting.values())]
        self._waiting = {}
        while True:
            try:
                waiting.append(self._requests.get_nowait() or _Request(Future()))
            except queue.Empty:
                break
        for request in waiting:
            with suppress(InvalidStateError):
                request.answer.set_exception(_ended())


def _digest(document: object) -> str:
    return hashlib.blake2b(to_bytes(document), digest_size=8).hexdigest()


def _orders_key(orders: Sequence[Order]) -> str:
    """Names the orders, without the rest of a grace period, which changes all the time."""
    lasting = (replace(one, within_secs=None) if isinstance(one, EndEpoch) else one for one in orders)
    return _digest([value_document(one) for one in lasting])


def _ended() -> Unreachable:
    return Unreachable(
        "the controller of the job is not running",
        value="it has ended",
        next_step="wait until the next controller runs",
    )
