"""The embedding engine of a client of embedding workers, which deduplicate ids, fetch and pool rows, and sum gradients.

The client has a lane for each worker that it uses, and spreads its batches over them by their numbers. Updates are numbered over all lanes, and
servers make them in this order, so that bits are those of the engine on the servers themselves. With ``overlaps`` lookups are on their
way at once, and see further updates.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from trainer.options.combinations import Setup
from trainer.tables.batches import IdBatch
from trainer.tables.engine import TableState
from trainer.tables.kernels.layout import learning_rates
from trainer.tables.kernels.threads import Team, available_threads
from trainer.tables.routes.bag_tables import BagTables
from trainer.tables.routes.servers.engine import PsEngine, ServersSnapshot
from trainer.tables.routes.servers.frames import MOST_UNANSWERED, Kind, write_document
from trainer.tables.routes.servers.server_link import Connect, ConnectWorker, Request, ServerLink
from trainer.tables.routes.workers import batch_messages as messages
from trainer.tables.routes.workers.lane import SentBatch, WorkerLane
from trainer.tables.routes.workers.lane_order import lane_of
from trainer.tables.routes.workers.lane_threads import LaneThreads
from trainer.tables.routes.workers.table_documents import WorkerTables
from trainer.tables.wire.encoded_values import FLAG_OF
from transforms.arrays import Array


class WorkerEngine(BagTables[SentBatch]):
    """Lookups and updates over the tables of ``features`` by embedding workers; checkpoints are read and loaded at the servers.

    Args:
        tables: what workers look up and update; ``held`` are the batches between a lookup and its update.
        direct: the engine of the same tables on the servers themselves: :func:`direct_engine`. It ends with this one.
        workers: connect to the workers of the lanes, which have the same servers in the same order.
        staleness: updates that a fetch may miss of this client and of others; None: any number.
        overlaps: whether lookups of several lanes may be on their way at once. Else a lookup has ended before the next update is sent.
        threads: threads of the checks; 0 for one a processor.

    Attributes:
        direct: reads and loads rows at the servers.

    Raises what :class:`~trainer.tables.routes.servers.engine.PsEngine` raises.
    """

    def __init__(
        self, tables: WorkerTables, direct: PsEngine, workers: Sequence[ConnectWorker], *, staleness: int | None = 0,
        overlaps: bool = False, threads: int = 0,
    ) -> None:  # fmt: skip
        self.direct = direct
        super().__init__(tables.features, direct.tables, Team(threads or available_threads()), held=tables.held)
        self._tables, self._staleness, self._overlaps = tables, staleness, overlaps
        self._flag = FLAG_OF[tables.wire.values]
        self._id_flags = messages.ENCODED_IDS if tables.wire.ids == "unique" else 0
        self._numbers = self._updates = 0
        #: Updates that servers may not have made, by their numbers and lanes.
        self._unconfirmed: deque[tuple[int, int]] = deque()
        self._lanes: list[WorkerLane] = []
        self._threads = LaneThreads(len(workers))
        self._begin_lanes(workers)

    @property
    def setup(self) -> Setup:
        """Where its tables are placed, and which of their rows have memory."""
        return replace(self.direct.setup, workers=True)

    def connect(self, servers: Sequence[Connect], workers: Sequence[ConnectWorker] = (), *, keeps_rows: bool) -> None:
        """See :class:`~trainer.tables.routes.servers.served_engine.ServedEngine`."""
        assert workers
        self._end_lanes()
        self.direct.connect(servers, keeps_rows=keeps_rows)
        self._begin_lanes(workers)

    def _begin_lanes(self, workers: Sequence[ConnectWorker]) -> None:
        self._threads = LaneThreads(len(workers))
        held = (
            -(-self._tables.held // len(workers)) + 1
        )  # consecutive batches are in different lanes, but for a shift of one
        document = write_document(replace(self._tables, held=held).to_document())
        try:
            for worker in workers:
                self._lanes.append(
                    WorkerLane(worker, document, held=held, id_flags=self._id_flags, check=self._threads.check)
                )
            self._open()
        except BaseException:
            self._end_lanes()
            raise

    def _end_lanes(self) -> None:
        self._threads.close()
        for lane in self._lanes:
            lane.close()
        self._lanes.clear()

    def open(self) -> None:
        """Take over what another engine has loaded into the servers."""
        self.direct.open()
        self._open()

    def take_loaded(self) -> None:
        """See :class:`~trainer.tables.routes.servers.served_engine.ServedEngine`."""
        self._open()
        self.restart()

    def _open(self) -> None:
        self.forget_batches()
        self._unconfirmed.clear()
        generation = joined_generation(self.direct)
        works = [self._threads.submit(k, lane, partial(lane.open, generation)) for k, lane in enumerate(self._lanes)]
        self._updates = max(self._threads.results(works))

    @property
    def links(self) -> tuple[ServerLink, ...]:
        """The connections to the workers, by lane."""
        return tuple(one.link for one in self._lanes)

    @property
    def updates(self) -> int:
        """The number of the last update that was sent."""
        return self._updates

    def prepare(self, batch: IdBatch) -> SentBatch:
        """See :class:`BagTables`."""
        self._numbers += 1
        body = messages.write_ids(batch, encoded=bool(self._id_flags))
        return SentBatch(batch, self._numbers, (body,), np.zeros(len(self.tables), np.int64))

    def _lane_of(self, sent: SentBatch) -> tuple[int, WorkerLane]:
        """The lane of a batch."""
        k = lane_of(sent.number, len(self._lanes), max(self._tables.held, 1))
        return k, self._lanes[k]

    def begin(self, kept: SentBatch) -> Callable[[], Array]:
        """See :class:`BagTables`. It ends at once, unless lookups overlap; after :meth:`finish` a lookup needs no worker."""
        rows, (k, lane) = kept.batch.rows, self._lane_of(kept)
        out = np.empty(rows * self.width, np.float32)
        space, decode = out.view(np.uint8), None
        if self._flag:
            space = np.empty(messages.value_bytes(len(out), self._flag), np.uint8)
            decode = partial(messages.decode_values, space, out, self._flag)
        floor = -1 if self._staleness is None else self._updates - self._staleness
        request = Request(Kind.FETCH, kept.body, [space, kept.counts], number=kept.number, floor=floor,
                          flags=self._id_flags | self._flag, answer_flags=self._flag, decode=decode)  # fmt: skip
        threads = self._threads
        looking_up = threads.submit(k, lane, partial(lane.look_up, kept, request))

        def end() -> Array:
            threads.result(looking_up)
            return out.reshape(rows, self.width)

        if not self._overlaps:
            end()
        return end

    def update(self, kept: SentBatch, gradients: Array) -> Iterable[tuple[Array, Array]]:
        """See :class:`BagTables`. It does not wait for the worker: what is refused is raised by the next call."""
        flat = gradients.copy()  # it may be sent again
        rates, (k, lane) = learning_rates(self.tables), self._lane_of(kept)
        if not kept.is_counted:
            self._threads.result(self._threads.submit(k, lane, partial(lane.keep, kept)))
        self._wait_for_place()
        body = messages.write_gradients(kept.number, rates, messages.encode_values(flat, self._flag))
        request = Request(Kind.UPDATE, body, number=self._updates + 1, flags=self._flag)
        self._updates += 1
        self.direct.note(kept.batch)
        self._unconfirmed.append((request.number, k))
        self._threads.submit(k, lane, partial(lane.update, kept, request))
        return [(kept.batch.offsets, kept.counts)]

    def _wait_for_place(self) -> None:
        """Wait until a further update may be sent: servers recognize that many of the newest updates if they come twice."""
        while self._unconfirmed:
            number, k = self._unconfirmed[0]
            if self._lanes[k].confirmed < number:
                if len(self._unconfirmed) < MOST_UNANSWERED:
                    return
                self._threads.result(self._threads.submit(k, self._lanes[k], self._lanes[k].finish))
            self._unconfirmed.popleft()

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
        works = [self._threads.submit(k, lane, lane.finish_at_home) for k, lane in enumerate(self._lanes)]
        self._threads.results(works)

    def close(self) -> None:
        """End the connections."""
        self._end_lanes()
        self.direct.close()


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
