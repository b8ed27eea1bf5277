"""One lane of a client of embedding workers: a connection to a worker, and what a worker that takes the place of another must have.

The worker has no memory that matters: the lane keeps the ids of its batches until they are updated, and its updates until the servers have
made them. A worker gets both again, and servers make an update once by its number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainer.errors import ServerLost
from trainer.tables.batches import IdBatch
from trainer.tables.routes.servers.frames import OPENED_MEMBERS, Kind, count_at, read_document
from trainer.tables.routes.servers.server_link import Answer, ConnectWorker, Request, ServerLink
from trainer.wire.frames import Bytes
from transforms.arrays import Array
from transforms.errors import DataError


@dataclass(slots=True, eq=False)
class SentBatch:
    """A batch for a worker.

    Attributes:
        batch: the ids.
        number: by which the worker finds them again.
        body: the ids as they are sent.
        counts: the distinct rows of each table, int64, once the worker has answered.
        is_counted: whether it has.
    """

    batch: IdBatch
    number: int
    body: tuple[Bytes, ...]
    counts: Array
    is_counted: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _Update:
    """An update that was sent, and that servers may not have made yet."""

    sent: SentBatch
    request: Request


class WorkerLane:
    """One thread at a time uses a lane; requests are answered in order.

    Args:
        connect: connects to its worker.
        document: what the worker opens: the tables of a client.
        held: the batches of the lane between a lookup and its update, whose ids a worker must have.
        id_flags: how ids are encoded.
        check: is called while a request waits, and raises to end it.

    Attributes:
        link: the connection.
        confirmed: the number of the newest update of the lane that the servers have made for certain; any thread may read it.
    """

    def __init__(
        self, connect: ConnectWorker, document: bytes, *, held: int, id_flags: int, check: Callable[[], None]
    ) -> None:
        self._document, self._id_flags = document, id_flags
        self._held: deque[SentBatch] = deque(maxlen=max(held, 1))
        self._unconfirmed: list[_Update] = []
        self._is_open, self.confirmed = False, 0
        self.link: ServerLink = connect(self._restore, check)

    def open(self, generation: int) -> int:
        """Open the tables, and forget all batches and updates; the number of the last update of the client that servers have made.

        Raises :class:`ServerLost` for a worker whose servers have rows of another :func:`~trainer.tables.routes.workers.engine.joined_generation`.
        """
        self._is_open = False
        self._held.clear()
        self._unconfirmed.clear()
        answer = self._call(Request(Kind.OPEN, [self._document]), Kind.OPENED)
        document = read_document(answer.body, OPENED_MEMBERS)
        if count_at(document, "generation") != generation:
            raise ServerLost("an embedding worker must have the servers of its client, in their order, with the same rows",
                             next_step="give both the same --servers")  # fmt: skip
        self.confirmed = count_at(document, "applied")
        self._is_open = True
        return self.confirmed

    def look_up(self, sent: SentBatch, request: Request) -> None:
        """Send a fetch of a batch, and wait until its answer is in the space of the request."""
        self._call(request, Kind.ROWS)
        self._confirm()  # servers answer in order: they have made all updates before
        self._hold(sent)

    def keep(self, sent: SentBatch) -> None:
        """Let the worker have the ids of a batch, and count its rows."""
        if sent not in self._held:
            self._call(self._keeping(sent), Kind.ROWS)
            self._hold(sent)

    def update(self, sent: SentBatch, request: Request) -> None:
        """Send the update of a batch. It does not wait for the worker: what is refused is raised by the next call."""
        self.keep(sent)
        self._unconfirmed.append(_Update(sent, request))
        self.link.send(request)

    def finish(self) -> None:
        """Wait until the servers have made all updates of the lane. Raises what they refused."""
        while self.link.waiting:
            self.link.receive()
        if self._unconfirmed:
            self._call(Request(Kind.FLUSH), Kind.DONE)
            self._confirm()

    def finish_at_home(self) -> None:
        """As :meth:`finish`, then go back to the first worker of the lane, if it answers again: else one that was away would stay idle."""
        self.finish()
        self.link.go_home()

    def close(self) -> None:
        """End the connection."""
        self.link.close()

    def _confirm(self) -> None:
        if self._unconfirmed:
            self.confirmed = self._unconfirmed[-1].request.number
            self._unconfirmed.clear()

    def _hold(self, sent: SentBatch) -> None:
        """The worker has the ids of a batch."""
        sent.is_counted = True
        if sent not in self._held:
            self._held.append(sent)

    def _restore(self) -> Sequence[Request]:
        """What a worker without memory must have: the tables, the updates that servers may not have made, and the ids of batches."""
        if not self._is_open:
            return ()
        found = [Request(Kind.OPEN, [self._document])]
        for update in self._unconfirmed:
            found += [self._keeping(update.sent), update.request]
        return [*found, *map(self._keeping, self._held)]

    def _keeping(self, sent: SentBatch) -> Request:
        return Request(Kind.KEEP, sent.body, [sent.counts], number=sent.number, flags=self._id_flags)

    def _call(self, request: Request, expected: Kind) -> Answer:
        """The answer to a request, after those to all before it. Raises the first error among them."""
        self.link.send(request)
        while self.link.waiting > 1:
            self.link.receive()
        answer = self.link.receive()
        if answer.header.kind != expected:
            raise DataError("an answer must have the requested kind", value=answer.header.kind.name,
                            allowed=expected.name)  # fmt: skip
        return answer
