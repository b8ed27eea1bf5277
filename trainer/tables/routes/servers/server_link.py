"""The connection of an engine to one parameter server, as an interface: requests in order, answers in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from trainer.tables.routes.servers.frames import Header, Kind
from trainer.wire.frames import Bytes
from transforms.arrays import Array

#: The longest answer of unknown length.
MOST_ANSWER_BYTES = 256 << 20


class Request(NamedTuple):
    """A request of an engine; a tuple, which takes less time to make than to send.

    Attributes:
        kind: what it asks for.
        body: its body in parts, which must not change before the answer has come.
        space: where the body of the answer goes, which must be exactly as long; None: into new memory.
        number, floor, flags: see :class:`~trainer.tables.routes.servers.frames.Header`.
        answer_flags: those of an answer that goes to ``space``.
        decode: is called once the answer is in ``space``; None: that is all.
    """

    kind: Kind
    body: Sequence[Bytes] = ()
    space: Sequence[Array] | None = None
    number: int = 0
    floor: int = 0
    flags: int = 0
    answer_flags: int = 0
    decode: Callable[[], None] | None = None

    @property
    def header(self) -> Header:
        """Its header."""
        return Header(self.kind, self.body_bytes, self.number, self.floor, self.flags)

    @property
    def body_bytes(self) -> int:
        """The length of its body."""
        return sum(map(len, self.body))


class Answer(NamedTuple):
    """The answer to a request; ``body``: what was received into new memory, else nothing."""

    header: Header
    body: Bytes = b""


class ServerLink(Protocol):
    """Requests are answered in order. One thread uses a link at a time.

    A link whose connection fails connects again, sends what was not answered, and leaves out updates that the server has made.
    """

    def send(self, request: Request) -> None:
        """Send a request, whose answer is taken by :meth:`receive`.

        Raises :class:`~trainer.errors.ServerLost` if the server does not answer in time, or has lost its rows.
        """

    def receive(self) -> Answer:
        """The answer to the oldest request that has none, decoded as the request says.

        Raises :class:`~trainer.errors.ServerLost`, also for one that the server sends, and for its other errors
        :class:`~trainer.wire.flight.error_documents.RemoteError` with the names of their kinds.
        """

    @property
    def waiting(self) -> int:
        """The requests whose answers have not been received."""

    @property
    def sent_bytes(self) -> int:
        """The bytes that were sent, headers included."""

    @property
    def received_bytes(self) -> int:
        """The bytes that were received, headers included."""

    def go_home(self) -> None:
        """Go back to the process that was connected to first, if another one has taken its place and it answers again. Nothing waits for an answer."""

    def close(self) -> None:
        """End the connection."""


#: Connect to a server; ``saves``: for snapshots, beside the connection for rows.
Connect: TypeAlias = "Callable[[bool], ServerLink]"
#: Connect to an embedding worker. The requests that the first function returns restore what a worker without memory must have; the second one is
#: called while a request waits, and raises to end it.
ConnectWorker: TypeAlias = "Callable[[Callable[[], Sequence[Request]], Callable[[], None]], ServerLink]"
