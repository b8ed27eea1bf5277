"""A host's buffer of work units: fetched ahead from any number of readers, delivered in order, bounded in bytes.

What is requested, from which reader, and what is a straggler is decided by :mod:`trainer.scheduling.assignment` and
:mod:`trainer.scheduling.buffer_control`; this module runs the threads. One thread assigns; every reader has as many threads as units
that it serves at once, which also decode, so the training thread only stacks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from statistics import median

from trainer.errors import DamagedFrame
from trainer.run.reading.columns import DecodedFragment
from trainer.run.reading.packed_units import Delivered
from trainer.run.reading.unit_fetching import Connect, Fetcher
from trainer.run.reading.unit_requests import UnitRequest
from trainer.scheduling.assignment import (
    Assignments,
    AssignmentSettings,
    AssignUnit,
    Change,
    assign_units,
    fail_service,
    receive_unit,
    request_units,
    withdraw_reader,
    withdraw_service,
)
from trainer.scheduling.buffer_control import BufferSample, BufferSettings, accepts_unit, units_to_request
from trainer.scheduling.holds import ErrorClass, classify, describe_error
from trainer.wire.flight.error_documents import BadAnswer, RemoteError, Unreachable

#: Decodes what a reader delivered, in the thread that fetched it: the events of a unit that are trained.
DecodeUnit = Callable[[UnitRequest, Delivered], DecodedFragment]

_LOG = logging.getLogger(__name__)
_HOST = "host"
#: The longest wait for threads when a buffer is closed.
_CLOSE_SECS = 2.0
#: What a sample says of a stream whose end is not known.
_MANY_UNITS = 1 << 30


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Retry settings of a unit buffer.

    Attributes:
        most_failures: failed services of one unit, by readers that are up, after which its error is raised.
        retry_secs: the time after which a reader that was lost is tried again; doubled with each failure.
        most_retry_secs: the limit of that.
        first_bytes: the assumed size of a unit before one has arrived.
        most_wait_secs: how long a unit waits at its reader for space, less than the limit of a call; then it is requested again.
        tick_secs: the time between two looks for stragglers.
    """

    most_failures: int = 3
    retry_secs: float = 0.5
    most_retry_secs: float = 8.0
    first_bytes: int = 1 << 20
    most_wait_secs: float = 20.0
    tick_secs: float = 0.1


class _Host(Enum):
    """What the host's thread is doing: nothing, as at the end of an epoch; waiting for a unit; or training."""

    IDLE = "idle"
    STARVED = "starved"
    BUSY = "busy"


@dataclass(slots=True, eq=False)
class _Job:
    """A unit that a reader is to serve. ``revoked``: it is not needed any more."""

    request: UnitRequest
    since_secs: float
    delivered_secs: float | None = None
    admitted_bytes: int = 0
    waits: bool = False
    revoked: bool = False


@dataclass(slots=True, eq=False)
class _Reader:
    """A reader that may be asked: its jobs by unit, and those of them that no thread has begun."""

    name: str
    fetcher: Fetcher
    jobs: dict[int, _Job] = field(default_factory=dict)
    queue: deque[_Job] = field(default_factory=deque)
    threads: int = 0
    idle_threads: int = 0
    closed: bool = False


@dataclass(frozen=True, slots=True)
class _Retry:
    """When a lost reader is tried again."""

    at_secs: float
    after_secs: float


@dataclass(frozen=True, slots=True, eq=False)
class _Ready:
    """A decoded unit, or the error in its place."""

    outcome: DecodedFragment | BaseException
    size_bytes: int


@dataclass(slots=True)
class _Measured:
    """What a sample counts since the one before."""

    consumed_rows: int = 0
    served_units: int = 0
    served_rows: int = 0
    served_secs: float = 0.0
    secs: dict[_Host, float] = field(default_factory=lambda: dict.fromkeys(_Host, 0.0))


class UnitBuffer(Iterator[tuple[UnitRequest, DecodedFragment]]):
    """Iterates over the units of ``requests``, decoded, strictly in their order; their numbers must ascend.

    An error of a unit is raised in its place, again on each further call. Iteration ends at the end of the requests, before the unit of
    :meth:`stop_before`, or when the buffer is closed; it goes on after :meth:`extend`, :meth:`restart` or another limit.
    Without a reader it waits. ``requests`` is read in another thread and must not block.
    """

    def __init__(
        self,
        requests: Iterable[UnitRequest],
        connect: Connect,
        decode: DecodeUnit,
        *,
        settings: BufferSettings | None = None,
        assigning: AssignmentSettings | None = None,
        fetching: FetchSettings | None = None,
        left_units: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``left_units``: the number of units that are not requested yet, for samples; without it, there are many."""
        self._connect, self._decode = connect, decode
        self._settings = settings or BufferSettings()
        self._assigning = assigning or AssignmentSettings(units_per_reader=self._settings.units_per_reader)
        self._fetching = fetching or FetchSettings()
        self._left_units, self._clock = left_units, clock
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)  # for the thread that assigns
        self._arrived = threading.Condition(self._lock)  # for the host
        self._freed = threading.Condition(self._lock)  # for units that wait for space, and pauses after failures
        self._queued = threading.Condition(self._lock)  # for the threads of readers
        self._readers: dict[str, _Reader] = {}
        self._threads: set[threading.Thread] = set()
        self._wanted: tuple[str, ...] = ()
        self._retries: dict[str, _Retry] = {}
        self._limit: int | None = None
        self._largest_bytes = 0  # of a unit; 0 before one has arrived
        self._held = Assignments()
        self._measured = _Measured()
        self._doing, self._since_secs = _Host.IDLE, clock()
        self._closed = False
        self._begin(requests)
        self._start(self._assign_loop)

    def _begin(self, requests: Iterable[UnitRequest]) -> None:
        self._sources = deque([iter(requests)])
        self._ahead: UnitRequest | None = None
        self._requests_error: BaseException | None = None
        self._order: deque[UnitRequest] = deque()  # requested and not taken
        self._ready: dict[int, _Ready] = {}
        self._admitted: dict[int, _Job] = {}  # units that are being received or decoded
        self._failures: dict[int, int] = {}
        self._buffered_bytes = 0
        self._held = Assignments(secs_per_row=self._held.secs_per_row)

    def _start(self, work: Callable[[], None]) -> None:
        # A daemon: a call that does not answer must not keep the process.
        thread = threading.Thread(target=work, name="unit-buffer", daemon=True)
        self._threads = {one for one in self._threads if one.is_alive()} | {thread}
        thread.start()

    # -- the host's side

    def set_readers(self, readers: Sequence[str]) -> None:
        """The readers that may be asked from now on, by name. The units of others go to these."""
        with self._lock:
            self._wanted = tuple(dict.fromkeys(readers))
            self._retries = {name: retry for name, retry in self._retries.items() if name in self._wanted}
            for name in [name for name in self._readers if name not in self._wanted]:
                self._drop(name)
            self._changed.notify()

    def extend(self, requests: Iterable[UnitRequest]) -> None:
        """Add requests after all others."""
        with self._lock:
            self._sources.append(iter(requests))
            self._arrived.notify_all()
            self._changed.notify()

    def restart(self, requests: Iterable[UnitRequest]) -> None:
        """Discard all units and begin with other ``requests``; what was requested before is discarded when it arrives."""
        with self._lock:
            for reader in self._readers.values():
                for job in reader.jobs.values():
                    job.revoked = True
                reader.jobs.clear()
                reader.queue.clear()
            self._begin(requests)
            self._arrived.notify_all()
            self._freed.notify_all()
            self._changed.notify()

    def rest(self) -> None:
        """Note that the host trains nothing until it takes a unit again, such as after an attempt that ended before its units did."""
        with self._lock:
            self._host(_Host.IDLE)

    def stop_before(self, number: int | None) -> None:
        """End iteration before the unit ``number``; None: at the end of the requests. It may be changed at any time."""
        with self._lock:
            self._limit = number
            self._arrived.notify_all()

    def take(self, timeout_secs: float | None = None) -> tuple[UnitRequest, DecodedFragment] | None:
        """The next unit, or None if it has not arrived in time. Raises :class:`StopIteration` at the end."""
        until = None if timeout_secs is None else self._clock() + timeout_secs
        with self._lock:
            while True:
                request = self._next()
                if request is None:
                    self._host(_Host.IDLE)
                    raise StopIteration
                if request.number in self._ready:
                    self._host(_Host.BUSY)
                    return request, self._taken(request)
                self._host(_Host.STARVED)
                left = None if until is None else until - self._clock()
                if left is not None and left <= 0:
                    return None
                self._arrived.wait(left)

    def __next__(self) -> tuple[UnitRequest, DecodedFragment]:
        found = self.take()
        assert found is not None  # there is no timeout
        return found

    def _next(self) -> UnitRequest | None:
        """The request that the host needs next; None at the end. Raises what the requests raised."""
        request = self._order[0] if self._order else self._peek()
        if request is None and self._requests_error is not None and not self._closed:
            raise self._requests_error
        ends = self._closed or request is None or (self._limit is not None and request.number >= self._limit)
        return None if ends else request

    def _taken(self, request: UnitRequest) -> DecodedFragment:
        ready = self._ready[request.number]
        if isinstance(ready.outcome, BaseException):
            raise ready.outcome
        del self._ready[request.number]
        self._order.popleft()
        self._failures.pop(request.number, None)
        self._buffered_bytes -= ready.size_bytes
        self._measured.consumed_rows += request.most_events
        self._freed.notify_all()
        if len(self._held.units) < len(self._readers) * self._settings.units_per_reader:
            self._changed.notify()  # else the thread of the next unit that arrives requests others
        return ready.outcome

    def _host(self, doing: _Host) -> None:
        """Add the time since the last change to what the host did."""
        now = self._clock()
        self._measured.secs[self._doing] += max(0.0, now - self._since_secs)
        self._doing, self._since_secs = doing, now

    @property
    def fullness(self) -> float:
        """The buffered bytes as a share of the limit."""
        return self._buffered_bytes / self._settings.limit_bytes

    def sample(self) -> BufferSample:
        """What was measured since the last call."""
        with self._lock:
            self._host(self._doing)
            now = self._since_secs
            measured, self._measured = self._measured, _Measured()
            ages = [
                (now - unit.services[0].since_secs) / max(unit.rows, 1)
                for number, unit in self._held.units.items()
                if unit.services and number not in self._admitted
            ]
            more = 0 if self._peek() is None else _MANY_UNITS if self._left_units is None else self._left_units()
            return BufferSample(
                at_secs=now,
                fullness=self.fullness,
                consumed_rows=measured.consumed_rows,
                busy_secs=measured.secs[_Host.BUSY],
                served_units=measured.served_units,
                served_rows=measured.served_rows,
                served_secs=measured.served_secs,
                flying_secs_per_row=median(ages) if ages else 0.0,
                left_units=len(self._held.units) + more,
            )

    def close(self) -> None:
        """End all threads. A call that does not answer ends later, in a thread that holds nothing of the buffer."""
        with self._lock:
            self._closed = True
            for name in list(self._readers):
                self._drop(name)
            self._begin(())
            self._arrived.notify_all()
            self._freed.notify_all()
            self._changed.notify_all()
            threads = self._threads
        until = time.monotonic() + _CLOSE_SECS
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    # -- assignments

    def _assign_loop(self) -> None:
        with self._lock:
            while not self._closed:
                self._assign()
                self._changed.wait(self._fetching.tick_secs)

    def _assign(self) -> None:
        """Request what fits, and give it to readers."""
        try:
            self._assign_units()
        except Exception as error:  # a defect must not let the host wait for ever
            _LOG.exception("the buffer of units failed")
            self._order.clear()
            self._sources.clear()
            self._ahead, self._requests_error = None, error
            self._arrived.notify_all()

    def _assign_units(self) -> None:
        """Work of :meth:`_assign`, which handles its errors."""
        now = self._clock()
        present = self._present(now)
        count = units_to_request(
            self._settings,
            buffered_bytes=self._buffered_bytes,
            flying_units=len(self._held.units) - len(self._admitted),
            unit_bytes=self._largest_bytes or self._fetching.first_bytes,
            readers=len(present),
        )
        new: list[tuple[int, int]] = []
        homes: dict[int, int] = {}
        while len(new) < count and (request := self._peek()) is not None:
            self._ahead = None
            self._order.append(request)
            new.append((request.number, request.most_events))
            if request.row_bits:
                homes[request.number] = request.home
        self._held = request_units(self._held, _HOST, new, homes)
        self._follow_all(present, now)
        self._give_up_one(present, now)

    def _follow_all(self, present: Sequence[str], now: float) -> None:
        self._held, changes = assign_units(self._held, present, now, self._assigning)
        if not changes:
            return
        requests = {request.number: request for request in self._order}
        for one in changes:
            self._follow(one, requests, now)

    def _follow(self, one: Change, requests: dict[int, UnitRequest], now: float) -> None:
        reader = self._readers[one.reader]
        if not isinstance(one, AssignUnit):
            self._revoke(reader, one.unit)
            return
        if one.unit in self._admitted or any(
            one.unit in other.jobs and other.jobs[one.unit].waits for other in self._readers.values()
        ):
            self._held = withdraw_service(self._held, one.unit, one.reader)  # it is there, and waits for space only
            return
        job = reader.jobs[one.unit] = _Job(requests[one.unit], now)
        reader.queue.append(job)
        if reader.idle_threads < len(reader.queue) and reader.threads < self._assigning.units_per_reader:
            reader.threads += 1
            self._start(partial(self._serve_loop, reader))
        self._queued.notify_all()

    def _give_up_one(self, present: Sequence[str], now: float) -> None:
        """Cancel the latest waiting unit if units that wait for space occupy all readers and the host's next unit has none."""
        first = self._held.units.get(self._order[0].number) if self._order else None
        if first is None or first.services or first.number in self._admitted or not present:
            return
        waiting = [
            (number, reader) for reader in self._readers.values() for number, job in reader.jobs.items() if job.waits
        ]
        if waiting:
            number, reader = max(waiting, key=lambda one: one[0])
            self._held = withdraw_service(self._held, number, reader.name)
            self._revoke(reader, number)
            self._follow_all(present, now)

    def _revoke(self, reader: _Reader, number: int) -> None:
        job = reader.jobs.pop(number, None)
        if job is not None:
            job.revoked = True
            if job in reader.queue:
                reader.queue.remove(job)
            self._freed.notify_all()

    def _peek(self) -> UnitRequest | None:
        """The next request that was not made; None if there is none now."""
        while self._ahead is None and self._sources and self._requests_error is None:
            try:
                self._ahead = next(self._sources[0], None)
            except Exception as error:
                self._requests_error = error
                self._arrived.notify_all()
                return None
            if self._ahead is None:
                self._sources.popleft()
        return self._ahead

    def _present(self, now: float) -> list[str]:
        """The readers that may be asked; connects to new ones and to lost ones that are to be tried again."""
        for name in self._wanted:
            retry = self._retries.get(name)
            if name in self._readers or (retry is not None and now < retry.at_secs):
                continue
            try:
                self._readers[name] = _Reader(name, self._connect(name))
            except Exception as error:
                self._lose(name, error)
        return sorted(self._readers)

    def _lose(self, name: str, error: BaseException) -> None:
        """A reader is gone: it is asked again after a while."""
        before = self._retries.get(name)
        after = self._fetching.retry_secs if before is None else before.after_secs * 2
        after = min(after, self._fetching.most_retry_secs)
        self._retries[name] = _Retry(self._clock() + after, after)
        _LOG.warning("the reader %s is asked again in %.1f s: %s", name, after, _first_line(error))
        self._drop(name)

    def _drop(self, name: str) -> None:
        reader = self._readers.pop(name, None)
        if reader is None:
            return
        reader.closed = True
        self._held = withdraw_reader(self._held, name)
        for job in reader.jobs.values():
            job.revoked = True
        reader.jobs.clear()
        reader.queue.clear()
        self._freed.notify_all()
        self._queued.notify_all()
        if not reader.threads:
            reader.fetcher.close()

    # -- the threads of readers

    def _serve_loop(self, reader: _Reader) -> None:
        while (job := self._job(reader)) is not None:
            self._serve(reader, job)
        reader.fetcher.close()

    def _job(self, reader: _Reader) -> _Job | None:
        """The next job of a reader; waits for one. None when the reader is dropped."""
        with self._lock:
            reader.idle_threads += 1
            while not reader.queue and not reader.closed:
                self._queued.wait()
            reader.idle_threads -= 1
            if reader.queue:
                return reader.queue.popleft()
            reader.threads -= 1
            return None

    def _serve(self, reader: _Reader, job: _Job) -> None:
        decoded: DecodedFragment | None = None
        try:
            delivered = reader.fetcher.fetch(job.request, lambda size: self._admit(reader, job, size))
            if delivered is not None:
                decoded = self._decode(job.request, delivered)
        except BaseException as error:
            self._failed(reader, job, error, is_lost=_is_lost(reader.fetcher, error))
            return
        with self._lock:
            self._received(reader, job, decoded)

    def _admit(self, reader: _Reader, job: _Job, size_bytes: int) -> bool:
        """Reserve space for a unit that arrives; waits for it. False if the unit is not needed any more."""
        number = job.request.number
        with self._lock:
            job.delivered_secs = self._clock()
            while not job.revoked:
                fits = accepts_unit(
                    self._settings,
                    buffered_bytes=self._buffered_bytes,
                    unit_bytes=size_bytes,
                    is_next=bool(self._order) and self._order[0].number == number,
                )
                if fits and number not in self._admitted:
                    self._admitted[number] = job
                    job.admitted_bytes = size_bytes
                    self._buffered_bytes += size_bytes
                    return True
                left = job.delivered_secs + self._fetching.most_wait_secs - self._clock()
                if left <= 0:
                    self._held = withdraw_service(
                        self._held, number, reader.name
                    )  # requested again when there is space
                    return False
                job.waits = True
                self._changed.notify()
                self._freed.wait(left)
                job.waits = False
            return False

    def _received(self, reader: _Reader, job: _Job, decoded: DecodedFragment | None) -> None:
        request = job.request
        if decoded is None or self._admitted.get(request.number) is not job:
            self._release(reader, job)
            return
        self._retries.pop(reader.name, None)
        self._largest_bytes = max(self._largest_bytes, job.admitted_bytes)
        delivered = self._clock() if job.delivered_secs is None else job.delivered_secs
        self._measured.served_units += 1
        self._measured.served_rows += request.most_events
        self._measured.served_secs += max(0.0, delivered - job.since_secs)
        self._settle(reader.name, request.number, _Ready(decoded, job.admitted_bytes), delivered)
        if not self._closed:
            self._assign()  # here, so that this thread has its next unit without waiting for another thread

    def _settle(self, reader: str, number: int, ready: _Ready, at_secs: float) -> None:
        """A unit is decoded or failed for good: nothing of it is in flight any more."""
        self._ready[number] = ready
        self._admitted.pop(number, None)
        self._held, changes = receive_unit(self._held, number, reader, at_secs)
        for one in changes:
            if one.reader in self._readers:
                self._revoke(self._readers[one.reader], number)
        if reader in self._readers:
            self._readers[reader].jobs.pop(number, None)
        self._freed.notify_all()
        self._arrived.notify_all()

    def _release(self, reader: _Reader, job: _Job) -> None:
        """Undo the reservation of a unit that is not delivered."""
        number = job.request.number
        if reader.jobs.get(number) is job:
            del reader.jobs[number]
        if self._admitted.get(number) is job:
            del self._admitted[number]
            self._buffered_bytes -= job.admitted_bytes
        self._freed.notify_all()
        self._changed.notify()

    def _failed(self, reader: _Reader, job: _Job, error: BaseException, *, is_lost: bool) -> None:
        number = job.request.number
        with self._lock:
            # While another reader can serve the unit, one that answers badly is as good as lost.
            is_lost = is_lost or (isinstance(error, BadAnswer | DamagedFrame) and len(self._readers) > 1)
            if not is_lost and not job.revoked and classify(describe_error(error)) is ErrorClass.TRANSIENT:
                is_final = self._count_failure(number, error)
            else:
                is_final = not is_lost
            revoked = job.revoked
            self._release(reader, job)
            if is_lost and self._readers.get(reader.name) is reader:
                self._lose(reader.name, error)
            if is_final and not revoked:
                self._settle("", number, _Ready(error, 0), self._clock())
                self._changed.notify()
            elif not revoked:
                self._held = fail_service(self._held, number, reader.name)

    def _count_failure(self, number: int, error: BaseException) -> bool:
        """Whether a unit failed too often; a unit that no other reader can serve pauses first."""
        self._failures[number] = failures = self._failures.get(number, 0) + 1
        if failures >= self._fetching.most_failures:
            return True
        _LOG.warning("unit %d is requested again after %d failures: %s", number, failures, _first_line(error))
        until = self._clock() + self._fetching.retry_secs * 2 ** (failures - 1)
        while len(self._readers) == 1 and (left := until - self._clock()) > 0:
            self._freed.wait(left)
        return False


def _is_lost(fetcher: Fetcher, error: BaseException) -> bool:
    """Whether the reader is gone, and not only unable to serve one unit."""
    if isinstance(error, RemoteError):
        return Unreachable.__name__ in error.kinds  # it is leaving
    if not isinstance(error, Unreachable):
        return False
    try:
        fetcher.probe()
    except Exception:
        return True
    return False


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
