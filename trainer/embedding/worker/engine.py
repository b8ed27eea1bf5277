"""The embedding engine of a client of an embedding worker, which deduplicates ids, fetches and pools rows, and sums gradients.

The client keeps the ids of its batches until they are updated, and its updates until the servers have made them. So a worker has no memory
that matters: one that takes the place of another gets them again, and servers make an update once by its number. Bits are those of the
engine on the servers themselves.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from trainer.combinations import Setup
from trainer.embedding.batch_checks import check_batch
from trainer.embedding.batches import IdBatch
from trainer.embedding.cpu.finite_gradients import check_finite
from trainer.embedding.cpu.layout import feature_layout, learning_rates
from trainer.embedding.cpu.threads import Team, available_threads
from trainer.embedding.engine import NO_HASHED_COUNTS, TableState
from trainer.embedding.feature_counts import BatchCounter, FeatureCounts
from trainer.embedding.gradient_checks import check_gradients
from trainer.embedding.ps.encoded_values import FLAG_OF
from trainer.embedding.ps.engine import PsEngine, ServersSnapshot
from trainer.embedding.ps.frames import OPENED_MEMBERS, Kind, count_at, read_document, write_document
from trainer.embedding.ps.server_link import Answer, Connect, ConnectWorker, Request, ServerLink
from trainer.embedding.spec import FeatureSpec
from trainer.embedding.wire.settings import WireSettings
from trainer.embedding.worker import batch_messages as messages
from trainer.embedding.worker.table_documents import WorkerTables
from trainer.errors import ServerLost
from trainer.planning.plan import PartitionPlan
from trainer.wire.frames import Bytes
from transforms.errors import DataError

Array = np.ndarray[Any, np.dtype[Any]]


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


class WorkerEngine:
    """Lookups and updates over the tables of ``features`` by an embedding worker; checkpoints are read and loaded at the servers.

    Args:
        features: the features, in the order of batches.
        seed: what initial weights are drawn from.
        servers: connect to them, for loads and snapshots.
        worker: connects to a worker with the same servers in the same order.
        plan: where tables stand, a core for each server.
        staleness: updates that a fetch may miss of other engines on the same servers; None: any number.
        held: batches between a lookup and its update.
        threads: threads of the checks; 0 for one a processor.
        wire: how ids, activations and gradients are encoded, and rows between the worker and the servers; None: as they are.

    Raises what :class:`~trainer.embedding.ps.engine.PsEngine` raises.
    """

    setup = Setup(servers=True, workers=True)
    may_predict = False
    hashed_counts = NO_HASHED_COUNTS

    def __init__(
        self, features: Sequence[FeatureSpec], *, seed: int, servers: Sequence[Connect], worker: ConnectWorker,
        plan: PartitionPlan | None = None, staleness: int | None = 0, held: int = 2, threads: int = 0, wire: WireSettings | None = None,
    ) -> None:  # fmt: skip
        self._direct = PsEngine(features, seed=seed, servers=servers, plan=plan, held=0, threads=1, wire=wire)
        self.features, self.tables = self._direct.features, self._direct.tables
        self._wire = wire or WireSettings()
        self._flag, self._team = FLAG_OF[self._wire.values], Team(threads or available_threads())
        described = WorkerTables(self.features, seed, plan, staleness, held, self._wire)
        self._document = write_document(described.to_document())
        self._table_of = feature_layout(self.features, self.tables).table
        self._counter = BatchCounter(self.features, self._table_of)
        self._held: deque[_Sent] = deque(maxlen=max(held, 1))
        self._unconfirmed: list[_Update] = []
        self._numbers = self._updates = 0
        self._is_open = False
        self._link = worker(self._restore)
        self._open()

    def connect(self, servers: Sequence[Connect], worker: ConnectWorker, *, keeps_rows: bool) -> None:
        """Go on over other connections to the same servers and to a worker; see :meth:`PsEngine.connect`."""
        self._link.close()
        self._direct.connect(servers, keeps_rows=keeps_rows)
        self._is_open = False
        self._link = worker(self._restore)
        self._open()

    def open(self) -> None:
        """Take over what another engine has loaded into the servers."""
        self._direct.open()
        self._open()

    def _open(self) -> None:
        self._is_open = False
        self._held.clear()
        self._unconfirmed.clear()
        answer = self._call(Request(Kind.OPEN, [self._document]), Kind.OPENED)
        document = read_document(answer.body, OPENED_MEMBERS)
        if count_at(document, "generation") != joined_generation(self._direct):
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
    def width(self) -> int:
        """Columns of the activations."""
        return self._direct.width

    @property
    def link(self) -> ServerLink:
        """The connection to the worker."""
        return self._link

    @property
    def updates(self) -> int:
        """The number of the last update that was sent."""
        return self._updates

    def lookup(self, batch: IdBatch) -> Array:
        """Activations, float32 [batch.rows, width]; an empty bag gives zeros. Raises :class:`BadBatch` before anything is sent."""
        check_batch(batch, self.features)
        sent, out = self._sent(batch), np.empty(batch.rows * self.width, np.float32)
        space, decode = out.view(np.uint8), None
        if self._flag:
            space = np.empty(messages.value_bytes(len(out), self._flag), np.uint8)
            decode = partial(messages.decode_values, space, out, self._flag)
        flags = self._id_flags | self._flag
        request = Request(Kind.FETCH, sent.body, [space, sent.counts], number=sent.number, flags=flags,
                          answer_flags=self._flag, decode=decode)  # fmt: skip
        self._call(request, Kind.ROWS)
        self._unconfirmed.clear()  # servers answer in order: they have made all updates before
        self._held.append(sent)
        return out.reshape(batch.rows, self.width)

    def begin_lookup(self, batch: IdBatch) -> Callable[[], Array]:
        """As :meth:`lookup`, which ends at once; the function that is returned gives the activations."""
        found = self.lookup(batch)
        return lambda: found

    def freeze(self) -> None:
        """See :meth:`EmbeddingEngine.freeze <trainer.embedding.engine.EmbeddingEngine.freeze>`: lookups change nothing anyway."""

    def apply_gradients(self, batch: IdBatch, gradients: Array) -> None:
        """One optimizer update for each distinct row of ``batch``, by float32 ``gradients`` [batch.rows, width].

        It does not wait for the worker: what is refused is raised by the next call. Raises :class:`BadBatch`, and
        :class:`~trainer.errors.NonFiniteLoss` for NaN and infinity, before anything is sent.
        """
        check_batch(batch, self.features)
        check_gradients(batch, gradients, self.width)
        flat = np.array(gradients, np.float32).reshape(-1)  # a copy, which may be sent again
        check_finite(flat, self.features, self._team)
        rates = learning_rates(self.tables)
        sent = next((one for one in self._held if one.batch is batch), None) or self._keep(batch)
        body = messages.write_gradients(sent.number, rates, messages.encode_values(flat, self._flag))
        request = Request(Kind.UPDATE, body, number=self._updates + 1, flags=self._flag)
        self._updates += 1
        self._unconfirmed.append(_Update(sent, request))
        self._link.send(request)
        self._counter.add(batch.offsets, sent.counts)

    def _sent(self, batch: IdBatch) -> _Sent:
        self._numbers += 1
        body = messages.write_ids(batch, encoded=bool(self._id_flags))
        return _Sent(batch, self._numbers, (body,), np.zeros(len(self.tables), np.int64))

    def _keep(self, batch: IdBatch) -> _Sent:
        """Send the ids of a batch that is not looked up."""
        sent = self._sent(batch)
        self._call(self._keeping(sent), Kind.ROWS)
        self._held.append(sent)
        return sent

    def statistics(self) -> dict[str, FeatureCounts]:
        """The counts of each feature over the batches of this engine, by name."""
        return self._counter.by_feature()

    def weights_of(self, table: str, rows: Array) -> Array:
        """See :meth:`PsEngine.weights_of <trainer.embedding.ps.engine.PsEngine.weights_of>`."""
        self.finish()
        return self._direct.weights_of(table, rows)

    def state(self) -> dict[str, TableState]:
        """A copy of all changed rows, by table name: that of any other engine."""
        self.finish()
        return self._direct.state()

    def section_names(self, t: int) -> tuple[str, ...]:
        """See :meth:`SavedTables.section_names <trainer.embedding.engine.SavedTables.section_names>`."""
        return self._direct.section_names(t)

    def load_state(self, state: Mapping[str, TableState]) -> None:
        """Restore a :meth:`state` of any engine. Raises :class:`~trainer.errors.TornCheckpoint` if it does not fit."""
        self.finish()
        self._direct.load_state(state)
        self._open()
        self._counter = BatchCounter(self.features, self._table_of)

    def begin_snapshot(self, *, most_bytes: int) -> ServersSnapshot:
        """See :meth:`PsEngine.begin_snapshot <trainer.embedding.ps.engine.PsEngine.begin_snapshot>`."""
        self.finish()
        return self._direct.begin_snapshot(most_bytes=most_bytes)

    def end_snapshot(self) -> None:
        """Close the snapshot, if there is one; any thread may call it."""
        self._direct.end_snapshot()

    def finish(self) -> None:
        """Wait until the servers have made all updates. Raises what they refused."""
        self._drain()
        if self._unconfirmed:
            self._call(Request(Kind.FLUSH), Kind.DONE)
            self._unconfirmed.clear()

    def close(self) -> None:
        """End the connections."""
        self._link.close()
        self._direct.close()

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
            raise DataError("an answer must be of the kind that was asked for", value=answer.header.kind.name,
                            allowed=expected.name)  # fmt: skip
        return answer


def joined_generation(engine: PsEngine) -> int:
    """What the rows of all servers of an engine are of, in their order, as one number below 2^62."""
    return _digest_of(one.generation for one in engine.servers)


def _digest_of(numbers: Iterable[int]) -> int:
    content = b"".join(number.to_bytes(8, "little") for number in numbers)
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "little") >> 2
