"""The embedding engine of a client of an embedding worker, which deduplicates ids, fetches and pools rows, and sums gradients.

The client keeps the ids of its batches until they are updated, and its updates until the servers have made them. So a worker has no memory
that matters: one that takes the place of another gets them again, and servers make an update once by its number. Bits are those of the
engine on the servers themselves.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from trainer.errors import ServerLost
from trainer.options.combinations import Setup
from trainer.tables.batches import IdBatch
from trainer.tables.engine import TableState
from trainer.tables.kernels.layout import learning_rates
from trainer.tables.kernels.threads import Team, available_threads
from trainer.tables.routes.bag_tables import BagTables
from trainer.tables.routes.servers.engine import PsEngine, ServersSnapshot
from trainer.tables.routes.servers.frames import OPENED_MEMBERS, Kind, count_at, read_document, write_document
from trainer.tables.routes.servers.server_link import Answer, Connect, ConnectWorker, Request, ServerLink
from trainer.tables.routes.workers import batch_messages as messages
from trainer.tables.routes.workers.table_documents import WorkerTables
from trainer.tables.wire.encoded_values import FLAG_OF
from trainer.wire.frames import Bytes
from transforms.arrays import Array
from transforms.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class _Sent:
    """A batch whose ids the worker has: its number, the ids as they are sent, and the distinct rows of each table."""

    batch: IdBatch
    number: int
    body: tuple[Bytes, ...]
    counts: Array


@dataclass(frozen=True, slots=True, eq=False)
class _Update:
    """An update that was sent, and that servers may not have made yet."""

    sent: _Sent
    request: Request


class WorkerEngine(BagTables[_Sent]):
    """Lookups and updates over the tables of ``features`` by an embedding worker; checkpoints are read and loaded at the servers.

    Args:
        tables: what the worker looks up and updates; ``held`` are the batches between a lookup and its update.
        direct: the engine of the same tables on the servers themselves: :func:`direct_engine`. It ends with this one.
        worker: connects to a worker with the same servers in the same order.
        threads: threads of the checks; 0 for one a processor.

    Attributes:
        direct: reads and loads rows at the servers.

    Raises what :class:`~trainer.tables.routes.servers.engine.PsEngine` raises.
    """

    def __init__(self, tables: WorkerTables, direct: PsEngine, worker: ConnectWorker, *, threads: int = 0) -> None:
        self.direct = direct
        super().__init__(tables.features, direct.tables, Team(threads or available_threads()), held=tables.held)
        self._wire = tables.wire
        self._flag = FLAG_OF[self._wire.values]
        self._document = write_document(tables.to_document())
        #: The batches whose ids a worker must have.
        self._held: deque[_Sent] = deque(maxlen=max(tables.held, 1))
        self._unconfirmed: list[_Update] = []
        self._numbers = self._updates = 0
        self._is_open = False
        self._link = worker(self._restore)
        try:
            self._open()
        except BaseException:
            self._link.close()
            raise

    @property
    def setup(self) -> Setup:
        """Where its tables are placed, and which of their rows have memory."""
        return replace(self.direct.setup, workers=True)

    def connect(self, servers: Sequence[Connect], worker: ConnectWorker | None = None, *, keeps_rows: bool) -> None:
        """See :class:`~trainer.tables.routes.servers.served_engine.ServedEngine`."""
        assert worker is not None
        self._link.close()
        self.direct.connect(servers, keeps_rows=keeps_rows)
        self._is_open = False
        self._link = worker(self._restore)
        self._open()

    def open(self) -> None:
        """Take over what another engine has loaded into the servers."""
        self.direct.open()
        self._open()

    def take_loaded(self) -> None:
        """See :class:`~trainer.tables.routes.servers.served_engine.ServedEngine`."""
        self._open()
        self.restart()

    def _open(self) -> None:
        self._is_open = False
        self.forget_batches()
        self._held.clear()
        self._unconfirmed.clear()
        answer = self._call(Request(Kind.OPEN, [self._document]), Kind.OPENED)
        document = read_document(answer.body, OPENED_MEMBERS)
        if count_at(document, "generation") != joined_generation(self.direct):
            raise ServerLost("an embedding worker must have the servers of its client, in their order, with the same rows",
                             next_step="give both the same --servers")  # fmt: skip
        self._updates = count_at(document, "applied")
        self._is_open = True

    def _restore(self) -> Sequence[Request]:
        """What a worker without memory must have: the tables, the updates that servers may not have made, and the ids of batches."""
        if not self._is_open:
            return ()
        found = [Request(Kind.OPEN, [self._document])]
        for update in self._unconfirmed:
            found += [self._keeping(update.sent), update.request]
        return [*found, *map(self._keeping, self._held)]

    def _keeping(self, sent: _Sent) -> Request:
        return Request(Kind.KEEP, sent.body, [sent.counts], number=sent.number, flags=self._id_flags)

    @property
    def _id_flags(self) -> int:
        return messages.ENCODED_IDS if self._wire.ids == "unique" else 0

    @property
    def link(self) -> ServerLink:
        """The connection to the worker."""
        return self._link

    @property
    def updates(self) -> int:
        """The number of the last update that was sent."""
        return self._updates

    def prepare(self, batch: IdBatch) -> _Sent:
        """See :class:`BagTables`."""
        self._numbers += 1
        body = messages.write_ids(batch, encoded=bool(self._id_flags))
        return _Sent(batch, self._numbers, (body,), np.zeros(len(self.tables), np.int64))

    def begin(self, kept: _Sent) -> Callable[[], Array]:
        """See :class:`BagTables`; it ends at once."""
        rows = kept.batch.rows
        out = np.empty(rows * self.width, np.float32)
        space, decode = out.view(np.uint8), None
        if self._flag:
            space = np.empty(messages.value_bytes(len(out), self._flag), np.uint8)
            decode = partial(messages.decode_values, space, out, self._flag)
        flags = self._id_flags | self._flag
        request = Request(Kind.FETCH, kept.body, [space, kept.counts], number=kept.number, flags=flags,
                          answer_flags=self._flag, decode=decode)  # fmt: skip
        self._call(request, Kind.ROWS)
        self._unconfirmed.clear()  # servers answer in order: they have made all updates before
        self._hold(kept)
        return lambda: out.reshape(rows, self.width)

    def update(self, kept: _Sent, gradients: Array) -> Iterable[tuple[Array, Array]]:
        """See :class:`BagTables`. It does not wait for the worker: what is refused is raised by the next call."""
        flat = gradients.copy()  # it may be sent again
        rates = learning_rates(self.tables)
        if kept not in self._held:
            self._call(self._keeping(kept), Kind.ROWS)
            self._hold(kept)
        body = messages.write_gradients(kept.number, rates, messages.encode_values(flat, self._flag))
        request = Request(Kind.UPDATE, body, number=self._updates + 1, flags=self._flag)
        self._updates += 1
        self.direct.note(kept.batch)
        self._unconfirmed.append(_Update(kept, request))
        self._link.send(request)
        return [(kept.batch.offsets, kept.counts)]

    def _hold(self, sent: _Sent) -> None:
        """The worker has the ids of a batch."""
        if sent not in self._held:
            self._held.append(sent)

    def weights_of(self, table: str, rows: Array) -> Array:
        """See :meth:`PsEngine.weights_of <trainer.tables.routes.servers.engine.PsEngine.weights_of>`."""
        self.finish()
        return self.direct.weights_of(table, rows)

    def state(self) -> dict[str, TableState]:
        """A copy of all changed rows, by table name: that of any other engine."""
        self.finish()
        return self.direct.state()

    def section_names(self, t: int) -> tuple[str, ...]:
        """See :meth:`SavedTables.section_names <trainer.tables.engine.SavedTables.section_names>`."""
        return self.direct.section_names(t)

    def load(self, state: Mapping[str, TableState]) -> None:
        """See :class:`BagTables`."""
        self.finish()
        self.direct.load_state(state)
        self._open()

    def begin_snapshot(self, *, most_bytes: int) -> ServersSnapshot:
        """See :meth:`PsEngine.begin_snapshot <trainer.tables.routes.servers.engine.PsEngine.begin_snapshot>`."""
        self.finish()
        return self.direct.begin_snapshot(most_bytes=most_bytes)

    def end_snapshot(self) -> None:
        """Close the snapshot, if there is one; any thread may call it."""
        self.direct.end_snapshot()

    def finish(self) -> None:
        """Wait until the servers have made all updates. Raises what they refused."""
        self._drain()
        if self._unconfirmed:
            self._call(Request(Kind.FLUSH), Kind.DONE)
            self._unconfirmed.clear()

    def close(self) -> None:
        """End the connections."""
        self._link.close()
        self.direct.close()

    def _drain(self) -> None:
        while self._link.waiting:
            self._link.receive()

    def _call(self, request: Request, expected: Kind) -> Answer:
        """The answer to a request, after those to all before it. Raises the first error among them."""
        self._link.send(request)
        while self._link.waiting > 1:
            self._link.receive()
        answer = self._link.receive()
        if answer.header.kind != expected:
            raise DataError("an answer must have the requested kind", value=answer.header.kind.name,
                            allowed=expected.name)  # fmt: skip
        return answer


def direct_engine(tables: WorkerTables, servers: Sequence[Connect]) -> PsEngine:
    """The engine on the servers themselves for loads and snapshots beside an embedding worker."""
    return PsEngine(
        tables.features,
        seed=tables.seed,
        servers=servers,
        plan=tables.plan,
        held=0,
        threads=1,
        wire=tables.wire,
        hashed=tables.hashed,
        pruning=tables.pruning,
    )


def joined_generation(engine: PsEngine) -> int:
    """One id for the generations of all servers of an engine, in their order; below 2^62."""
    return _digest_of(one.generation for one in engine.servers)


def _digest_of(numbers: Iterable[int]) -> int:
    content = b"".join(number.to_bytes(8, "little") for number in numbers)
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "little") >> 2
