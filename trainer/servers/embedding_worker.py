"""An embedding worker without its sockets: it keeps the ids of a client's batches, pools rows of servers, and sums gradients by row."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from trainer.errors import AttemptOver, BadBatch, ConfigError, NonFiniteLoss
from trainer.servers.client_updates import Greeting, takes_place
from trainer.servers.row_server import Reply, Session
from trainer.servers.server_status import ServerStatus
from trainer.servers.session_roles import OF_WORKERS, SessionRole, check_allowed
from trainer.tables.batches import IdBatch
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.frames import Header, Kind, read_document, read_object, write_document
from trainer.tables.routes.servers.named_servers import NamedServers
from trainer.tables.routes.servers.server_link import Connect
from trainer.tables.routes.workers import batch_messages as messages
from trainer.tables.routes.workers.engine import joined_generation
from trainer.tables.routes.workers.table_documents import MEMBERS, WorkerTables
from trainer.tables.wire.encoded_values import value_flag
from trainer.wire.frames import Bytes
from transforms.errors import DataError

#: Connect to each server as the client of a greeting does; the function is called while a request waits, and raises to end it. The servers are
#: those that the client names; None: those of the worker.
ConnectServers: TypeAlias = Callable[[Greeting, Callable[[], None], NamedServers | None], Sequence[Connect]]


@dataclass(eq=False)
class _Client:
    """What a session has: the tables that it has opened, the ids of its batches by number, and the bytes of these."""

    tables: WorkerTables
    engine: PsEngine
    kept: dict[int, IdBatch] = field(default_factory=dict)

    def keep(self, number: int, batch: IdBatch, most_bytes: int) -> None:
        """Keep the ids of a batch, in place of those of the oldest one. Raises :class:`DataError` above the limit of bytes."""
        self.kept.pop(number, None)
        while len(self.kept) >= max(self.tables.held, 1):
            del self.kept[next(iter(self.kept))]
        if sum(map(_bytes_of, [batch, *self.kept.values()])) > most_bytes:
            raise DataError("the ids of a client's batches must fit in the worker's message memory", allowed=f"{most_bytes:,} bytes",
                            next_step="give the worker more --message-mib, or use a smaller batch_rows")  # fmt: skip
        self.kept[number] = batch


class EmbeddingWorker:
    """Answers requests of many sessions, each of them in order; any thread may call it.

    A client that connects again opens its tables, and sends what the servers have not made: see
    :class:`~trainer.tables.routes.workers.engine.WorkerEngine`.

    Args:
        connect: to the servers.
        threads: threads of the loops of a client; 0 for one a processor.
        most_answer_bytes: of the activations of a batch.
        most_kept_bytes: of the ids that are kept for a client.
    """

    def __init__(
        self,
        connect: ConnectServers,
        *,
        threads: int = 1,
        most_answer_bytes: int = 1 << 30,
        most_kept_bytes: int = 1 << 30,
    ) -> None:
        self._connect, self._threads = connect, threads
        self._most_answer_bytes, self._most_kept_bytes = most_answer_bytes, most_kept_bytes
        self._lock = threading.Lock()
        self._sessions: dict[Session, _Client | None] = {}
        self._counts: Counter[str] = Counter()

    def begin(self, greeting: Greeting) -> Session:
        """Begin a session, in place of an earlier one of the same lane of its client.

        Raises :class:`AttemptOver` for an attempt before the newest one, and :class:`ConfigError` for a connection for snapshots or loads.
        """
        session = Session(greeting)
        if greeting.role is SessionRole.WATCHES:
            return session
        if greeting.role is not SessionRole.TRAINS:
            raise ConfigError(
                "an embedding worker takes no snapshots and loads: ask its servers", value=greeting.role.value
            )
        with self._lock:
            newest = max((one.greeting.attempt for one in self._sessions), default=0)
            if greeting.attempt < newest:
                raise AttemptOver(
                    "the attempt of a client must be the newest one", value=greeting.attempt, allowed=str(newest)
                )
            for one in self._sessions:
                if takes_place(greeting, one.greeting):
                    one.is_over = True
            self._sessions[session] = None
        return session

    def end(self, session: Session) -> None:
        """End a session; its connections to the servers end."""
        session.is_over = True
        with self._lock:
            client = self._sessions.pop(session, None)
        if client is not None:
            client.engine.close()

    def opened(self, session: Session) -> Reply:
        """The answer to a greeting: a worker has no rows. After OPEN, the joined generation of the servers and the newest update."""
        client = self._sessions.get(session)
        generation, applied = 0, 0
        if client is not None:
            generation = joined_generation(client.engine)
            applied = max(one.updates for one in client.engine.servers)
        document = {"generation": generation, "applied": applied, "digest": ""}
        return Reply(Kind.OPENED, [write_document(document)])

    def memory_bytes(self, header: Header) -> int:
        """The most bytes that a request takes in memory."""
        return messages.memory_bytes(header)

    def await_turn(self, session: Session, header: Header, is_ending: Callable[[], bool] = lambda: False) -> None:
        """Servers put the updates of a client in order: a worker waits for none."""

    def handle(self, session: Session, header: Header, body: Bytes) -> Reply:
        """Answer a request, in whose body nothing may change before. Raises :class:`~transforms.errors.HeadraceError`."""
        check_allowed(OF_WORKERS, session.greeting.role, header.kind)
        messages.check_flags(header)
        if header.kind == Kind.STATUS:
            return Reply(Kind.DOCUMENT, [write_document(self.status().to_document())])
        self._check(session)
        if header.kind == Kind.REACH_SERVERS:
            return self._reach(session, body)
        if header.kind == Kind.OPEN:
            return self._open(session, body)
        client = self._sessions.get(session)
        if client is None:
            raise DataError("the tables of a client must be opened first", value=header.kind.name)
        match header.kind:
            case Kind.FETCH:
                return self._fetch(client, header, body)
            case Kind.KEEP:
                batch = self._keep(client, header, body)
                return Reply(Kind.ROWS, [client.engine.distinct_rows(client.engine.keep(batch)).tobytes()])
            case Kind.UPDATE:
                return self._update(client, header, body)
            case Kind.FLUSH:
                client.engine.finish()
                return Reply(Kind.DONE)
        raise DataError("a request must be one that an embedding worker answers", value=header.kind.name)

    def _open(self, session: Session, body: Bytes) -> Reply:
        tables = WorkerTables.read(read_document(body, MEMBERS))
        with self._lock:
            before, self._sessions[session] = self._sessions.get(session), None
        if before is not None:
            before.engine.close()
        connects = self._connect(session.greeting, lambda: self._check(session), tables.servers)
        engine = PsEngine(
            tables.features,
            seed=tables.seed,
            servers=connects,
            plan=tables.plan,
            held=max(tables.held, 1),
            threads=self._threads,
            wire=tables.wire,
            hashed=tables.hashed,
            pruning=tables.pruning,
        )
        with self._lock:
            self._sessions[session] = _Client(tables, engine)
        return self.opened(session)

    def _reach(self, session: Session, body: Bytes) -> Reply:
        """Connect to the servers that a client names, and end the connections. Raises what a server that does not answer raises."""
        named = NamedServers.read(read_object(body))
        for connect in self._connect(session.greeting, lambda: self._check(session), named):
            connect(False).close()
        return Reply(Kind.DONE)

    def _keep(self, client: _Client, header: Header, body: Bytes) -> IdBatch:
        batch = messages.read_ids(body, len(client.tables.features), header.flags)
        client.keep(header.number, batch, self._most_kept_bytes)
        return batch

    def _fetch(self, client: _Client, header: Header, body: Bytes) -> Reply:
        batch, engine = self._keep(client, header, body), client.engine
        if 4 * batch.rows * engine.width > self._most_answer_bytes:
            raise DataError("the activations of a batch must fit in one answer", value=f"{4 * batch.rows * engine.width:,} bytes",
                            allowed=f"at most {self._most_answer_bytes:,} bytes", next_step="use a smaller batch_rows")  # fmt: skip
        kept, flag = engine.keep(batch), value_flag(header.flags)
        found = engine.begin(kept, header.floor)()
        counts = engine.distinct_rows(kept)
        self._count(fetches=1, fetched_rows=int(counts.sum()))
        try:
            values = messages.encode_values(found.reshape(-1), flag)
        except BadBatch as error:
            raise NonFiniteLoss("training diverged: an activation is NaN or infinite", value=error.value) from None
        return Reply(Kind.ROWS, [values.data, counts.tobytes()], flag)

    def _update(self, client: _Client, header: Header, body: Bytes) -> Reply:
        engine = client.engine
        is_repeated = header.number <= min(one.updates for one in engine.servers)
        batch = client.kept.get(messages.batch_of(body))
        if batch is None:
            raise DataError("the ids of a batch must be sent before its gradients", value=messages.batch_of(body))
        shape = batch.rows, engine.width
        rates, gradients = messages.read_gradients(body, len(engine.tables), shape, header.flags)
        flat = engine.checked(batch, gradients)
        engine.send(kept := engine.keep(batch), flat, rates, header.number)
        if is_repeated:  # servers find whether it is the update that they have made
            self._count(repeated_updates=1)
        else:
            self._count(updates=1, updated_rows=int(engine.distinct_rows(kept).sum()))
        return Reply(Kind.DONE)

    def _count(self, **numbers: int) -> None:
        with self._lock:
            self._counts.update(numbers)

    def _check(self, session: Session) -> None:
        if session.is_over:
            raise AttemptOver("the client has opened a newer session", where=f"client {session.greeting.client}")

    def status(self) -> ServerStatus:
        """What its clients have opened, and what was done."""
        with self._lock:
            greetings = [one.greeting for one in self._sessions]
            tables = max((len(one.engine.tables) for one in self._sessions.values() if one is not None), default=0)
            attempt = max((one.attempt for one in greetings), default=0)
            counts = self._counts
            return ServerStatus(
                tables=tables,
                attempt=attempt,
                fetches=counts["fetches"],
                fetched_rows=counts["fetched_rows"],
                updates=counts["updates"],
                updated_rows=counts["updated_rows"],
                repeated_updates=counts["repeated_updates"],
            )


def _bytes_of(batch: IdBatch) -> int:
    weights = 0 if batch.weights is None else int(np.asarray(batch.weights).nbytes)
    return int(batch.ids.nbytes + batch.offsets.nbytes) + weights
