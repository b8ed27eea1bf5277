"""The naive exchange with parameter servers: one message for each core and table. Kept as the other side of ``benchmarks.ps_messages``.

A table is whole on one server, and is a store of its own there, whose messages name no other table. Each of the cores asks for a part of the
rows that the batch needs, with the frames of :mod:`trainer.tables.routes.servers.frames`; their messages are sent one after the other without waiting for
answers. Rows are deduplicated over all cores, which a naive exchange would not do, so that both sides move the same rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.job_token import TOKEN
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.servers.client_updates import Greeting
from trainer.servers.held_rows import HeldRows
from trainer.servers.row_server import Reply, RowServer, Session
from trainer.servers.tcp_link import LinkOptions, TcpLink
from trainer.tables.batches import IdBatch
from trainer.tables.kernels.layout import feature_layout, learning_rates, table_layout
from trainer.tables.kernels.threads import Team
from trainer.tables.routes.partitioned.requests import RequestMaker
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.servers import row_messages as messages
from trainer.tables.routes.servers.frames import Header, Kind, write_document
from trainer.tables.routes.servers.row_buffers import BatchRows, RowBuffers
from trainer.tables.routes.servers.row_messages import RowNumbers
from trainer.tables.routes.servers.server_link import Request
from trainer.tables.routes.servers.table_documents import held_tables
from trainer.tables.spec import FeatureSpec, tables_of
from trainer.wire.flight.addresses import Address
from trainer.wire.frames import Bytes

Array = np.ndarray[Any, np.dtype[Any]]

#: The table of a message is in its flags, above those of its rows.
_TABLE_SHIFT = 1
_ROW_FLAGS = (1 << _TABLE_SHIFT) - 1


class ServerPerTable:
    """A parameter server for each table of a process."""

    def __init__(self) -> None:
        self._first = _one_server()
        self._tables: dict[tuple[Session, int], tuple[RowServer, Session]] = {}

    def begin(self, greeting: Greeting) -> Session:
        """Begin a session."""
        return self._first.begin(greeting)

    def opened(self, session: Session) -> Reply:
        """That nothing is held."""
        return self._first.opened(session)

    def memory_bytes(self, header: Header) -> int:
        """The most bytes that a request takes in memory."""
        return self._first.memory_bytes(header)

    def await_turn(self, session: Session, header: Header, is_ending: Callable[[], bool]) -> None:
        """Clients have one lane."""

    def handle(self, session: Session, header: Header, body: Bytes) -> Reply:
        """Answer a request to the table in its flags."""
        key = session, header.flags >> _TABLE_SHIFT
        if key not in self._tables:
            server = _one_server()
            self._tables[key] = server, server.begin(session.greeting)
        server, own = self._tables[key]
        return server.handle(own, replace(header, flags=header.flags & _ROW_FLAGS), body)

    def end(self, session: Session) -> None:
        """End a session."""
        self._first.end(session)


def _one_server() -> RowServer:
    return RowServer(HeldRows(None, threads=1))


def server_per_table(folder: Path | None) -> ServerPerTable:
    """See :data:`~benchmarks.support.server_processes.MakeServer`."""
    return ServerPerTable()


class _Link(TcpLink):
    def take_answers(self) -> None:
        """Receive the answers that have come: else neither end could send, with enough messages on the way."""
        while self.waiting and self._frames is not None and self._frames.has_bytes(0.0):
            self.receive()


@dataclass(frozen=True, slots=True)
class _Message:
    """The rows of a table that one core asks for, among all rows of its server, and their values among those of the server."""

    table: int
    rows: slice
    values: slice


class EnginePerTable:
    """Lookups and updates with one message for each of ``cores`` cores and table; all tables have the same columns."""

    def __init__(self, features: Sequence[FeatureSpec], *, seed: int, servers: Sequence[Address], cores: int) -> None:
        self.features, self.tables, self._cores = tuple(features), tables_of(features), cores
        (self._dim,) = {table.dim for table in self.tables}
        of_features = feature_layout(self.features, self.tables)
        layout = table_layout(of_features, self.tables, seed)
        plan = PartitionPlan(len(servers), tuple(
            TablePlan(table.name, table.vocabulary_size, table.dim, (Slice(0, table.dim, (t % len(servers),)),))
            for t, table in enumerate(self.tables)
        ))  # fmt: skip
        self._parts = TableParts(self.tables, len(servers), plan)
        width, team = sum(feature.width for feature in self.features), Team(1)
        self._requests = RequestMaker(self.features, of_features, layout, parts=self._parts, core=0, team=team)
        self._buffers = RowBuffers(self._parts, of_features, layout, width, team)
        self._links = [_Link(address, LinkOptions(Greeting(TOKEN))) for address in servers]
        self._senders = ThreadPoolExecutor(len(servers), "servers")
        self._updates = [0] * len(self.tables)
        self._looked_up: deque[BatchRows] = deque(maxlen=2)
        for t, part in enumerate(self._parts.parts):
            held = held_tables([part.shard(t % len(servers))], seed)
            link = self._links[t % len(servers)]
            link.send(Request(Kind.OPEN, [write_document(held.to_document())], flags=t << _TABLE_SHIFT))
            link.receive()

    @property
    def sent_messages(self) -> int:
        """The messages of one update of all tables."""
        return self._cores * len(self.tables)

    def lookup(self, batch: IdBatch) -> Array:
        """See :meth:`PsEngine.lookup <trainer.tables.routes.servers.engine.PsEngine.lookup>`."""
        rows = self._buffers.of_batch(self._requests.make(batch))

        def fetch(server: int) -> None:
            link, own, space = self._links[server], self._rows(rows, server), _all(rows.space(server))
            for one in self._messages(rows, server):
                numbers = _numbers(own[one.rows])
                flags = one.table << _TABLE_SHIFT | messages.flags_of(numbers.rows)
                link.take_answers()
                link.send(Request(Kind.FETCH, messages.write_numbers(numbers), [space[one.values]], floor=-1, flags=flags))  # fmt: skip
            _finish(link)

        self._of_each(fetch)
        self._looked_up.append(rows)
        return rows.activations()

    def apply_gradients(self, batch: IdBatch, gradients: Array) -> None:
        """See :meth:`PsEngine.apply_gradients <trainer.tables.routes.servers.engine.PsEngine.apply_gradients>`."""
        rows = next(one for one in self._looked_up if one.requests.batch is batch)
        pieces, rates = rows.gradients(gradients.reshape(-1)), learning_rates(self.tables)

        def update(server: int) -> None:
            link, own, values = self._links[server], self._rows(rows, server), _all(pieces[server])
            for one in self._messages(rows, server):
                self._updates[one.table] += 1
                numbers = _numbers(own[one.rows])
                body = messages.write_gradients(numbers, rates[one.table : one.table + 1], [values[one.values]])
                flags = one.table << _TABLE_SHIFT | messages.flags_of(numbers.rows)
                link.take_answers()
                link.send(Request(Kind.UPDATE, body, number=self._updates[one.table], flags=flags))

        self._of_each(update)

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights of a table, float32 [len(rows), dim]."""
        t = [one.name for one in self.tables].index(table)
        link, out = self._links[t % len(self._links)], np.empty(len(rows) * self._dim, np.float32)
        _finish(link)
        numbers = _numbers(rows.astype(np.int32))
        link.send(Request(Kind.FETCH, messages.write_numbers(numbers), [out], floor=-1, flags=t << _TABLE_SHIFT))
        link.receive()
        return out.reshape(len(rows), -1)

    def finish(self) -> None:
        """Wait for all answers."""
        self._of_each(lambda server: _finish(self._links[server]))

    def close(self) -> None:
        """End the connections."""
        for link in self._links:
            link.close()
        self._senders.shutdown()

    def _rows(self, rows: BatchRows, server: int) -> Array:
        reads = rows.requests.reads
        return reads.rows[reads.of_owner(server)].astype(np.int32)

    def _messages(self, rows: BatchRows, server: int) -> Iterator[_Message]:
        at = 0
        for table, count in enumerate(rows.requests.reads.counts[server].tolist()):
            ends = [at + count * core // self._cores for core in range(self._cores + 1)]
            for first, stop in pairwise(ends):
                if stop > first:
                    yield _Message(table, slice(first, stop), slice(first * self._dim, stop * self._dim))
            at += count

    def _of_each(self, work: Callable[[int], None]) -> None:
        list(self._senders.map(work, range(len(self._links))))


def _all(pieces: Sequence[Array]) -> Array:
    """The values of a server, which are in one piece where all tables have the same columns."""
    return pieces[0] if pieces else np.zeros(0, np.float32)


def _numbers(rows: Array) -> RowNumbers:
    return RowNumbers(rows, np.array([len(rows)], np.int64))


def _finish(link: TcpLink) -> None:
    while link.waiting:
        link.receive()
