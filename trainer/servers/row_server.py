"""A parameter server without its sockets: the request of a session to its answer, by the rows that are held."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trainer.checkpoints.shards.shard_orders import (
    LoadOrder,
    LoadProgress,
    ReachOrder,
    WriteOrder,
    read_order,
    to_document,
)
from trainer.errors import AttemptOver, BadBatch, ConfigError, NonFiniteLoss, OtherUpdate, ServerLost
from trainer.servers.allowed_runs import NO_RUNS, AllowedRuns
from trainer.servers.client_updates import Greeting, Mode, is_due, is_new, missing_updates, takes_place
from trainer.servers.held_rows import HeldRows
from trainer.servers.loads.copy_orders import CopyOrder
from trainer.servers.loads.named_links import ConnectNamed, NamedLinks
from trainer.servers.loads.shard_loader import ShardLoader
from trainer.servers.loads.table_copier import TableCopier
from trainer.servers.made_updates import update_digest
from trainer.servers.server_status import ServerStatus
from trainer.servers.session_roles import OF_SERVERS, SessionRole, check_allowed
from trainer.servers.shard_writer import ShardWriter
from trainer.tables.engine import ChangedRows
from trainer.tables.hashed_history import KeptHistory
from trainer.tables.kernels.gradients import are_finite
from trainer.tables.kernels.outputs import OutputPool
from trainer.tables.routes.servers import row_messages as messages
from trainer.tables.routes.servers.frames import Header, Kind, read_object, write_document
from trainer.tables.routes.servers.named_servers import NamedServers
from trainer.tables.routes.servers.row_messages import RowGradients
from trainer.tables.routes.servers.table_documents import read_held_tables
from trainer.tables.stores.pruned.saved_parts import SavedPart
from trainer.tables.stores.row_store import KeptSnapshot
from trainer.tables.wire import encoded_values
from trainer.wire.frames import Bytes
from transforms.arrays import Array
from transforms.errors import DataError

_LOOK_SECS = 1.0
#: Of the sessions that load rows.
_LOADING = (SessionRole.TRAINS, SessionRole.LOADS)
#: How soon a client that reads a snapshot must connect again.
_RETURN_SECS = 10.0
_KEPT_ANSWERS = 4
_OTHER_CLIENT = (
    "end the other process that updates these servers, then run training again: it goes on from its last checkpoint"
)
_TAKEN_OVER = "a newer run or attempt has taken the server over: start other servers for a second run"


@dataclass(eq=False)
class Session:
    """One connection of a client.

    Attributes:
        greeting: what it said first.
        is_over: it is replaced by a newer one, or its connection has ended.
        snapshot: that it has begun, or has read after the connection before it failed.
    """

    greeting: Greeting
    is_over: bool = False
    snapshot: KeptSnapshot | None = None

    @property
    def saves(self) -> bool:
        """Whether it is for snapshots."""
        return self.greeting.role is SessionRole.SAVES


class Reply(NamedTuple):
    """An answer: its kind, its body in parts that must be sent before the next request of the session is handled, and how it is encoded."""

    kind: Kind
    body: Sequence[Bytes] = ()
    flags: int = 0


class RowServer:
    """Answers requests of many sessions, each of them in order; any thread may call it.

    Args:
        rows: what it holds.
        patience_secs: how long a request waits for the updates of other clients.
        return_secs: how soon a client that reads a snapshot must connect again.
        most_answer_bytes: of the rows that a request asks for.
        runs: where it writes its shards of checkpoints.
        connect: to other servers, from which it takes rows; None: without TLS.

    Attributes:
        staleness: how many fetches have missed so many updates of other clients.
        wait_secs: how long fetches have waited for the updates of other clients, and of other lanes.
    """

    def __init__(
        self,
        rows: HeldRows,
        *,
        patience_secs: float = 300.0,
        return_secs: float = _RETURN_SECS,
        most_answer_bytes: int = 1 << 30,
        runs: AllowedRuns = NO_RUNS,
        connect: ConnectNamed | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rows, self._patience_secs, self._clock = rows, patience_secs, clock
        self._return_secs, self._most_answer_bytes = return_secs, most_answer_bytes
        self._lock = threading.RLock()  # taken without the methods of the condition, which are Python
        self._changed = threading.Condition(self._lock)
        self._sessions: set[Session] = set()
        self._attempt = rows.attempt
        self._waiting: dict[int, dict[int, tuple[RowGradients, int]]] = {}
        self._saving = threading.Lock()
        self._reads = self._loaded = 0
        self._snapshot: KeptSnapshot | None = None
        if rows.is_open:
            self._snapshot = rows.engine.resume_snapshot(patience_secs=patience_secs)
        self._shards, self._loader = (
            ShardWriter(runs, self._snapshot if rows.has_left_rows else None),
            ShardLoader(runs),
        )
        self._load_progress = LoadProgress(0)
        self._connect = connect or NamedLinks()
        self._copier, self._copied_again = TableCopier(self._connect), 0
        self._owner: int | None = (
            None  # the attempt of the snapshot; not known of one that an earlier process has begun
        )
        self._read: tuple[int, int, int] | None = None  # the range of the snapshot that may be asked for again
        self.staleness: Counter[int] = Counter()
        self.wait_secs = 0.0
        self._counts: Counter[str] = Counter()
        self._memory = OutputPool(spare=0.25, kept=_KEPT_ANSWERS)
        self._process = secrets.randbits(61) + 1

    def begin(self, greeting: Greeting) -> Session:
        """Begin a session, in place of an earlier one of the same client.

        Raises :class:`AttemptOver` for an attempt before the newest one, and :class:`ConfigError` for other clients than those of the attempt.
        """
        if greeting.role is SessionRole.WATCHES:
            return Session(greeting)
        if greeting.role is SessionRole.COPIES:
            return self._begin_copying(greeting)
        saves = greeting.role is SessionRole.SAVES
        if greeting.attempt > self._attempt:
            for one in tuple(self._sessions):
                one.is_over = one.is_over or (one.greeting.attempt < greeting.attempt and not one.saves)
            if not self._has_reader():
                self._end_snapshot()  # before the lock: an update may hold it until this snapshot ends
            elif self._snapshot is not None:
                self._watch_reader(self._snapshot, self._reads)
        with self._lock:
            if greeting.attempt < self._attempt and not saves:
                raise AttemptOver("the attempt of a client must be the newest one", value=greeting.attempt, allowed=str(self._attempt),
                                  next_step=_TAKEN_OVER)  # fmt: skip
            if greeting.attempt > self._attempt:
                self._attempt = greeting.attempt
                self._waiting.clear()
            for one in list(self._sessions):
                own = one.greeting
                if own.role is SessionRole.COPIES:
                    if own.attempt < greeting.attempt:
                        self._end(one)
                    continue
                if one.saves != saves or (saves and own.attempt != greeting.attempt):
                    continue  # the snapshot of one attempt may be read while the next one trains
                if own.role is not greeting.role and own.attempt == greeting.attempt:
                    continue  # rows are loaded beside the connection of an embedding worker
                if takes_place(greeting, own):
                    self._end(one)
                elif (own.clients, own.mode) != (greeting.clients, greeting.mode):
                    raise ConfigError("the clients of an attempt must agree", value=(greeting.clients, greeting.mode.value),
                                      allowed=f"{own.clients}, {own.mode.value}")  # fmt: skip
            session = Session(greeting)
            self._sessions.add(session)
            self._changed.notify_all()
        return session

    def _begin_copying(self, greeting: Greeting) -> Session:
        """A session of another server. Raises :class:`AttemptOver` for another attempt than the newest one."""
        with self._lock:
            if greeting.attempt != self._attempt:
                raise AttemptOver("rows must be copied in the newest attempt of a training", value=greeting.attempt, allowed=str(self._attempt),
                                  next_step=_TAKEN_OVER)  # fmt: skip
            self._sessions.add(session := Session(greeting))
            return session

    def end(self, session: Session) -> None:
        """End a session; its snapshot ends unless the client connects again soon."""
        if session.saves and not session.is_over and self._snapshot is not None:
            left = threading.Timer(self._return_secs, self._end_left, [self._snapshot])
            left.daemon = True
            left.start()
        session.is_over = True  # before the lock: an update may hold it until the snapshot ends
        with self._lock:
            self._end(session)
            if not any(one.greeting.role in _LOADING for one in self._sessions):
                self._copier.disconnect()
            self._changed.notify_all()

    def _end_left(self, snapshot: KeptSnapshot) -> None:
        """End a snapshot that no connection reads. Without the lock: an update may hold it until then."""
        if self._snapshot is snapshot and not self._has_reader():
            self._end_snapshot()

    def _watch_reader(self, snapshot: KeptSnapshot, reads: int) -> None:
        """End a snapshot of an earlier attempt, for which an update may wait, when its reader asks for nothing more."""

        def look() -> None:
            if self._snapshot is not snapshot:
                return
            if self._reads == reads:
                self._end_snapshot()
            else:
                self._watch_reader(snapshot, self._reads)

        watching = threading.Timer(self._return_secs, look)
        watching.daemon = True
        watching.start()

    def _has_reader(self) -> bool:
        return any(one.saves and not one.is_over for one in tuple(self._sessions))

    def _end(self, session: Session) -> None:
        session.is_over, session.snapshot = True, None  # its memory is free
        self._sessions.discard(session)

    def opened(self, session: Session) -> Reply:
        """What the server holds, for a client that connects."""
        with self._lock:
            own = session.greeting
            document = {
                "generation": self._rows.generation,
                "applied": self._rows.applied(own.clients)[own.client],
                "digest": self._rows.digest,
            }
            return Reply(Kind.OPENED, [write_document(document)])

    def memory_bytes(self, header: Header) -> int:
        """The most bytes that a request takes in memory."""
        return messages.memory_bytes(header)

    def await_turn(self, session: Session, header: Header, is_ending: Callable[[], bool] = lambda: False) -> None:
        """Wait, before memory is taken for a request of a client with several lanes, for the updates of its other lanes before it.

        Else later updates could fill the memory for messages, and the one that they wait for would get none. It raises nothing: :meth:`handle`
        refuses what has not become due in time. ``is_ending``: whether no request is answered any more.
        """
        own = session.greeting
        if own.lanes == 1 or own.role is not SessionRole.TRAINS:
            return
        with self._lock:
            began = self._clock()
            until = began + self._patience_secs
            while not (session.is_over or is_ending() or self._is_due(own, header) or self._clock() >= until):
                self._changed.wait(_LOOK_SECS)
            if header.kind is Kind.FETCH:
                self.wait_secs += self._clock() - began

    def _is_due(self, own: Greeting, header: Header) -> bool:
        """Whether the updates before a request were made; without tables nothing is waited for."""
        return not self._rows.is_open or is_due(header, self._rows.applied(own.clients), own.client)

    def handle(self, session: Session, header: Header, body: Bytes) -> Reply:
        """Answer a request, in whose body nothing may change before. Raises :class:`~transforms.errors.HeadraceError`."""
        check_allowed(OF_SERVERS, session.greeting.role, header.kind)
        messages.check_flags(header)
        match header.kind:
            case Kind.FETCH:
                return self._fetch(session, header, body)
            case Kind.UPDATE:
                return self._update(session, header, body)
            case Kind.WRITE_VALUES:
                return self._write_values(session, header, body)
            case Kind.READ_SNAPSHOT:
                return self._read_snapshot(session, body)
            case Kind.READ_SPREAD_SNAPSHOT:
                return self._read_spread_snapshot(session, body)
            case Kind.READ_HISTORY:
                return self._read_history(session, body)
            case Kind.REACH_SERVERS:
                return self._reach(session, body)
            case Kind.REACH_RUN:
                reach = self._shards.reach(read_order(ReachOrder, read_object(body)))
                return Reply(Kind.DOCUMENT, [write_document(to_document(reach))])
            case Kind.WRITE_SHARD:
                return self._write_shard(session, body)
            case Kind.OPEN:
                return self._open(session, body)
            case Kind.END_SNAPSHOT:
                self._check_owner(session)
                self._end_snapshot()  # without the lock: an update may hold it until a snapshot ends
                return Reply(Kind.DONE)
            case Kind.STATUS:
                return Reply(Kind.DOCUMENT, [write_document(self.status().to_document())])
        with self._lock:
            self._check(session)
            return self._handle_others(session, header, body)

    def _handle_others(self, session: Session, header: Header, body: Bytes) -> Reply:
        rows = self._rows
        match header.kind:
            case Kind.READ_STATE:
                part, first, stop = self._read_range(body, rows.sizes)
                return Reply(Kind.PART, messages.write_part(rows.engine.changed_rows(part, first, stop)))
            case Kind.READ_HELD:
                snapshot = self._snapshot
                sizes = [] if snapshot is None or snapshot.is_done else snapshot.sizes.tolist()
                return Reply(Kind.DOCUMENT, [write_document({"held": rows.held.to_document(), "sizes": sizes})])
            case Kind.READ_SPREAD:
                part, spread = messages.read_spread(body, rows.sizes)
                self._check_answer(len(spread.rows) * int(rows.dims[part] + rows.slot_dims[part]))
                if spread.stride == 1:
                    return Reply(
                        Kind.PART, messages.write_part(rows.engine.changed_rows(part, spread.first, spread.stop))
                    )
                asked = np.arange(spread.rows.start, spread.stop, spread.stride)
                return Reply(Kind.PART, messages.write_part(rows.engine.changed_among(part, asked)))
            case Kind.READ_ROWS:
                part, asked = messages.read_rows(body, rows.sizes)
                self._check_answer(len(asked) * int(rows.dims[part] + rows.slot_dims[part]))
                return Reply(Kind.PART, messages.write_part(rows.engine.changed_among(part, asked)))
            case Kind.READ_VALUES:
                numbers = messages.read_numbers(body, len(rows.engine.tables), messages.LONG_ROWS)
                self._check_answer(sum((numbers.counts * (rows.dims + rows.slot_dims)).tolist()))
                found = rows.read_values(numbers)
                return Reply(Kind.ROWS, [one.data.cast("B") for one in (found.weights, found.slots) if len(one)])
            case Kind.BEGIN_SNAPSHOT:
                (most_bytes,) = messages.read_counts(body, 1)
                if session.greeting.attempt < self._attempt:
                    raise AttemptOver(
                        "the attempt of a snapshot must be the newest one",
                        value=session.greeting.attempt,
                        allowed=str(self._attempt),
                    )
                self._end_snapshot()
                self._owner = session.greeting.attempt
                self._snapshot = rows.engine.begin_kept_snapshot(
                    most_bytes=most_bytes, patience_secs=self._patience_secs
                )
                self._shards.interval = rows.changed.begin()
                rows.leave_rows(is_begun=False)
                session.snapshot = self._snapshot
                return Reply(Kind.COUNTS, messages.write_counts(self._snapshot.counts))
            case Kind.BEGIN_LOAD:
                self._end_snapshot()
                self._waiting.clear()
                self._copier.forget()
                rows.begin_load()
                self._loaded = header.number
                return Reply(Kind.DONE)
            case Kind.LOAD_ROWS:
                loaded = messages.read_load(body, *_widths(rows.saved_parts), rows.is_hashed)
                if self._is_new_load(header.number):
                    rows.load(*loaded)
                    self._loaded = header.number
                return Reply(Kind.DONE)
            case Kind.LOAD_HISTORY:
                history = messages.read_history(body, rows.has_history)
                if self._is_new_load(header.number):
                    rows.load_history(*history)
                    self._loaded = header.number
                return Reply(Kind.DONE)
            case Kind.LOAD_SHARDS:
                order = read_order(LoadOrder, read_object(body))
                if self._is_new_load(header.number):
                    self._load_progress = self._loader.follow(order, rows)
                    self._loaded = header.number
                return Reply(Kind.DOCUMENT, [write_document(to_document(self._load_progress))])
            case Kind.COPY_TABLES:
                document = read_object(body)
                copy = None if document is None else CopyOrder.read(document)  # null: go on with the last one
                if self._is_new_load(header.number):
                    if copy is not None:
                        self._copier.begin(copy, rows)
                    self._copier.go_on(lambda: self._check(session))
                    self._loaded = header.number
                return Reply(Kind.DOCUMENT, [write_document(self._copier.progress.to_document())])
            case Kind.COPY_ROWS:
                part, asked = messages.read_rows(body, rows.sizes)
                if self._is_new_load(header.number):
                    self._copied_again = self._copier.copy_rows(part, asked, lambda: self._check(session))
                    self._loaded = header.number
                return Reply(Kind.COUNTS, messages.write_counts([self._copied_again]))
            case Kind.END_LOAD:
                self._end_load(header)
                self._copier.forget()
                return self.opened(session)
        raise DataError("a request must be one that a server answers", value=header.kind.name)

    def _is_new_load(self, number: int) -> bool:
        """Whether a request of a load is to be made; False for the last one, whose answer was lost. Raises :class:`ServerLost` for others."""
        if number == self._loaded:
            return False
        if number != self._loaded + 1:
            raise ServerLost("a load must be begun first", value=f"request {number}", allowed=str(self._loaded + 1))
        return True

    def _end_load(self, header: Header) -> None:
        """End a load, once: the generation of a repeated request is here."""
        if header.floor < 1:
            raise DataError(
                "the end of a load must name the generation that it begins", value=header.floor, allowed="at least 1"
            )
        if header.floor == self._rows.generation:
            return
        if not self._is_new_load(header.number):
            raise ServerLost("a load must be begun first")
        self._rows.end_load(header.floor)
        self._loaded = header.number
        self._changed.notify_all()

    def _end_snapshot(self) -> None:
        snapshot, self._snapshot, self._read, self._owner = self._snapshot, None, None, None
        if snapshot is not None:
            snapshot.close()

    def _open(self, session: Session, body: Bytes) -> Reply:
        held = read_held_tables(read_object(body))
        with self._lock:
            self._check(session)
            rows = self._rows
            if rows.is_open and rows.digest != held.digest and session.greeting.attempt <= rows.attempt:
                raise ConfigError("the tables of a client must be those of its attempt", value=held.digest[:16], allowed=rows.digest[:16],
                                  next_step="give all clients the same features, seed and servers")  # fmt: skip
            if rows.digest != held.digest:
                self._end_snapshot()
            rows.open(held, session.greeting.attempt)
        return self.opened(session)

    def _fetch(self, session: Session, header: Header, body: Bytes) -> Reply:
        own = session.greeting
        with self._lock:
            self._check(session)
            parts = self._rows.opened
            numbers = messages.read_numbers(body, len(parts.dims), header.flags)
            if 4 * len(numbers.rows) * parts.most_dim > self._most_answer_bytes:
                self._check_answer(sum((numbers.counts * parts.dims).tolist()))
            if own.clients > 1 or own.lanes > 1:
                began = self._clock()
                self._wait(session, lambda: self._is_due(own, header), "updates of all clients")
                self.wait_secs += self._clock() - began
            if own.clients > 1:
                self.staleness[missing_updates(self._rows.applied(own.clients), own.client)] += 1
            found = self._rows.fetch(numbers)
            flag = encoded_values.value_flag(header.flags)
            if flag:
                floats = encoded_values.floats_of_pieces(numbers.counts, parts.dims)
                space = self._memory.take_bytes(encoded_values.encoded_bytes(floats, flag))
            self._counts["fetches"] += 1
            self._counts["fetched_rows"] += len(numbers.rows)
        if flag:
            _encode(encoded_values.split_pieces([found], floats), space, flag)
            found = space
        return Reply(Kind.ROWS, [found.data.cast("B")] if len(found) else [], flag)

    def _update(self, session: Session, header: Header, body: Bytes) -> Reply:
        own = session.greeting
        with self._lock:
            self._check(session)
            parts = self._rows.opened
        update = messages.read_gradients(body, parts.dims, header.flags, has_lookups=parts.needs_lookups)
        digest = update_digest(own.session, header, body)
        if not are_finite(update.values, 0, len(update.values)):
            raise NonFiniteLoss("training diverged: a gradient is NaN or infinite", where=f"client {own.client}")
        with self._lock:
            self._check(session)  # other tables are opened by a newer attempt
            if own.lanes > 1:
                self._wait(session, lambda: self._is_due(own, header), "the updates of a client's other lanes")
            if not self._is_new(own, header.number, digest):
                return Reply(Kind.DONE)
            if own.mode is Mode.SUMMED and own.clients > 1:
                self._apply_together(session, header.number, update, digest)
            else:
                self._rows.update([(own.client, update, digest)], header.number)
            self._counts["updates"] += 1
            self._counts["updated_rows"] += len(update.numbers.rows)
            if own.clients > 1 or own.lanes > 1:
                self._changed.notify_all()  # the other sessions of this client alone wait for nothing
        return Reply(Kind.DONE)

    def _is_new(self, own: Greeting, number: int, digest: int) -> bool:
        """Whether an update is to be made; False for one that was made, which is counted.

        Raises :class:`OtherUpdate` for the number of another one, and :class:`InputError` for one that is ahead.
        """
        if is_new(self._rows.applied(own.clients)[own.client], number, own.client):
            return True
        if not self._rows.has_made(own.client, number, digest):
            raise _other_update(own.client, number)
        self._counts["repeated_updates"] += 1
        return False

    def _write_values(self, session: Session, header: Header, body: Bytes) -> Reply:
        own, digest = session.greeting, update_digest(session.greeting.session, header, body)
        with self._lock:
            self._check(session)
            numbers, values = messages.read_values(body, self._rows.dims, self._rows.slot_dims)
            if own.clients > 1:
                raise ConfigError(
                    "only the single client of a server may write row values", value=own.clients, allowed="1"
                )
            if self._is_new(own, header.number, digest):
                self._rows.write_values(own.client, header.number, digest, numbers, values)
                self._counts["updates"] += 1
                self._counts["updated_rows"] += len(numbers.rows)
        return Reply(Kind.DONE)

    def _apply_together(self, session: Session, number: int, update: RowGradients, digest: int) -> None:
        """Wait for the updates of all clients with this number; the last one applies them."""
        own = session.greeting
        self._rows.check(update.numbers)
        held = self._waiting.setdefault(number, {})
        if own.client in held and held[own.client][1] != digest:
            raise _other_update(own.client, number)
        held[own.client] = update, digest
        if len(held) == own.clients:
            del self._waiting[number]
            self._rows.update([(client, *held[client]) for client in sorted(held)], number)
            return
        self._wait(session, lambda: self._rows.applied(own.clients)[own.client] >= number, "updates of all clients")

    def _wait(self, session: Session, is_met: Callable[[], bool], what: str) -> None:
        until = self._clock() + self._patience_secs
        while not is_met():
            if self._clock() >= until:
                raise AttemptOver(f"{what} must come in time", value=f"none for {self._patience_secs:g} s")
            self._changed.wait(_LOOK_SECS)
            self._check(session)

    def _read_snapshot(self, session: Session, body: Bytes) -> Reply:
        """Without the lock of rows: an update may wait until a snapshot has gone on.

        A range is kept until the next one is asked for: a client whose connection fails asks again.
        """
        with self._saving:
            snapshot = self._read_by(session)
            sizes = snapshot.sizes
            part, first, stop = self._read_range(body, sizes)
            if self._read is not None and self._read != (part, first, stop):
                snapshot.leave(self._read[0], self._read[2])
            if first == stop == 0:
                self._read = part, first, int(sizes[part])
            else:
                self._read = part, first, stop
            found = snapshot.read(part, first, stop)
            if snapshot.is_done:
                raise ServerLost("a snapshot must be read before it ends")
            return Reply(Kind.PART, messages.write_part(found, snapshot.ages(part, first, stop)))

    def _read_by(self, session: Session) -> KeptSnapshot:
        """The snapshot that a session reads. Raises :class:`ServerLost` if there is none."""
        self._check_owner(session)
        snapshot = self._snapshot
        if snapshot is None or snapshot.is_done or session.snapshot not in (None, snapshot):
            raise ServerLost("a snapshot must be begun first")
        session.snapshot = snapshot
        self._reads += 1
        return snapshot

    def _read_spread_snapshot(self, session: Session, body: Bytes) -> Reply:
        """Some rows of the snapshot, for another server; several of them read it, so it keeps all its rows. Without the lock of rows."""
        with self._saving:
            snapshot = self._read_by(session)
            part, spread = messages.read_spread(body, snapshot.sizes)
            saved = self._rows.saved_parts[part]
            self._check_answer((spread.stop - spread.first) * (saved.dim + saved.slot_dim))
            found, ages = snapshot.read(part, spread.first, spread.stop), snapshot.ages(part, spread.first, spread.stop)
            if snapshot.is_done:
                raise ServerLost("a snapshot must be read before it ends")
            if spread.stride > 1:
                mine = found.rows % spread.stride == spread.remainder
                found = ChangedRows(found.rows[mine], found.weights[mine], found.slots[mine])
                ages = None if ages is None else ages[mine]
            return Reply(Kind.PART, messages.write_part(found, ages))

    def _reach(self, session: Session, body: Bytes) -> Reply:
        """Connect to the servers that a client names, and end the connections. Raises what a server that does not answer raises."""
        named, greeting = NamedServers.read(read_object(body)), Greeting(role=SessionRole.WATCHES)
        for connect in self._connect(greeting, named, lambda: self._check(session)):
            connect(False).close()
        return Reply(Kind.DONE)

    def _read_history(self, session: Session, body: Bytes) -> Reply:
        """The history of a hashed or pruned part at the moment of the snapshot, with its candidates from one number to another."""
        with self._saving:
            snapshot = self._read_by(session)
            part, first, stop = messages.read_numbers_of_history(body, self._rows.has_history)
            history = snapshot.history(part)
            self._check_answer(2 * max(stop - first, 0))
            found = KeptHistory(history.step, history.candidates[first:stop])
            return Reply(Kind.HISTORY, messages.write_history(part, found, first))

    def _write_shard(self, session: Session, body: Bytes) -> Reply:
        """Write the shard of this server, or say how far it is; without the lock of rows."""
        order = read_order(WriteOrder, read_object(body))
        with self._saving:
            self._check_owner(session)
            self._reads += 1
            done = self._shards.follow(order, self._rows, lambda: self._read_by(session))
        return Reply(Kind.DOCUMENT, [write_document(to_document(done))])

    def _read_range(self, body: Bytes, sizes: Array) -> tuple[int, int, int]:
        rows = self._rows
        part, first, stop = messages.read_range(body, sizes)
        self._check_answer((stop - first) * (rows.saved_parts[part].dim + rows.saved_parts[part].slot_dim))
        return part, first, stop

    def _check_answer(self, floats: int) -> None:
        if 4 * floats > self._most_answer_bytes:
            raise DataError("the requested rows must fit in one answer", value=f"{4 * floats:,} bytes", allowed=f"at most {self._most_answer_bytes:,} bytes",
                            next_step="use a smaller batch_rows, or more servers")  # fmt: skip

    def _check_owner(self, session: Session) -> None:
        """Raise :class:`AttemptOver` unless the snapshot, if there is one, belongs to the session's attempt."""
        self._check(session)
        if self._owner not in (None, session.greeting.attempt):
            raise AttemptOver("a snapshot must be read by the attempt that has begun it", value=session.greeting.attempt,
                              allowed=str(self._owner))  # fmt: skip

    def _check(self, session: Session) -> None:
        if session.is_over:
            raise AttemptOver("the client has opened a newer session", where=f"client {session.greeting.client}",
                              next_step=_TAKEN_OVER)  # fmt: skip

    def status(self) -> ServerStatus:
        """What is held, what was done, and the staleness of fetches."""
        with self._lock:
            clients = max((one.greeting.clients for one in self._sessions), default=1)
            counts = self._rows.counts
            return ServerStatus(
                tables=len(self._rows.engine.tables) if self._rows.is_open else 0,
                rows=self._rows.most_rows,
                attempt=self._attempt,
                applied=tuple(self._rows.applied(clients)),
                staleness=dict(sorted(self.staleness.items())),
                wait_secs=self.wait_secs,
                hashed=counts,
                process=self._process,
                **self._counts,
            )


def _widths(parts: Sequence[SavedPart]) -> tuple[Array, Array]:
    """The weights and slot values of the rows of each part."""
    return np.array([one.dim for one in parts], np.int64), np.array([one.slot_dim for one in parts], np.int64)


def _other_update(client: int, number: int) -> OtherUpdate:
    return OtherUpdate("an update that is sent again must have the session and the bytes of the first time", where=f"client {client}",
                       value=f"another update {number}", next_step=_OTHER_CLIENT)  # fmt: skip


def _encode(pieces: Sequence[Array], space: Array, flag: int) -> None:
    """Encode fetched rows; without the lock of rows."""
    try:
        encoded_values.encode_pieces(pieces, space, flag)
    except BadBatch as error:
        raise NonFiniteLoss("training diverged: a weight is NaN or infinite", value=error.value) from None
