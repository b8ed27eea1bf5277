"""A connection to a parameter server or an embedding worker over TCP, which outlives the end of its process."""

from __future__ import annotations

import math
import secrets
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from trainer.errors import ConfigError, DamagedFrame, MemoryFull, ServerLeaves, ServerLost
from trainer.servers.client_updates import Greeting
from trainer.servers.session_roles import SessionRole
from trainer.tables.routes.servers.frames import (
    MOST_UNANSWERED,
    NUMBERED,
    OPENED_MEMBERS,
    Header,
    Kind,
    count_at,
    read_document,
    read_header,
    text_at,
    write_document,
)
from trainer.tables.routes.servers.server_link import MOST_ANSWER_BYTES, Answer, Connect, ConnectWorker, Request
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.error_documents import MOST_ERROR_BYTES, damaged_frame, from_bytes
from trainer.wire.frame_stream import STALL_SECS, FrameStream, StreamEnded
from trainer.wire.framed_service import connect_stream
from trainer.wire.frames import HEADER_BYTES, Bytes, FrameHeader, FrameOrder, WireProtocol
from transforms.errors import DataError, HeadraceError
from transforms.tracing.requests import AskedRequest, asked_request
from transforms.tracing.spans import current_tracer

_BACKOFF_SECS, _MOST_BACKOFF_SECS = 0.01, 0.5
#: After which a connection is made again.
_FAILURES = (OSError, DamagedFrame)
_SESSION_BITS = 63
#: The numbers of sessions in greetings.
_MOST_SESSIONS = 1 << 61
#: A greeting has this part of the patience, since one that the network has swallowed looks like a server that thinks.
_GREETINGS = 3
#: Damage may last for so many stalls, which may each pass before it is seen.
_STALLS = 4
#: How long it looks whether its first address answers again.
_HOME_SECS = 1.0
#: Between looks while it waits for an answer.
_LOOK_SECS = 0.25
_GO_ON = "run training again: it goes on from its last checkpoint"
_START = f"start it with headrace ps serve, or give another address; {_GO_ON}"


def draw_session() -> int:
    """The number of a new connection."""
    return secrets.randbits(_SESSION_BITS)


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """How a client connects.

    Attributes:
        greeting: what it says first.
        patience_secs: how long a server may be silent, or away. It has a third of it to answer a greeting.
        tls: what verifies the server; None: connections are not encrypted.
        check: is called while it waits; raises to end the wait.
        others: addresses that are tried in turn when a connection has failed, such as those of other embedding workers.
        restore: the requests by which a process without memory gets what it had; sent after each greeting, before what was not answered.
            None: the process keeps its memory.
        stall_secs: how long the rest of an answer may be silent.
        clock: monotonic seconds.
        sleep: waits for seconds.
        draw_session: draws the number of a connection, and that of a session whose greeting has none.
    """

    greeting: Greeting = field(default_factory=Greeting)
    patience_secs: float = 60.0
    tls: ssl.SSLContext | None = None
    check: Callable[[], None] = lambda: None
    others: tuple[Address, ...] = ()
    restore: Callable[[], Sequence[Request]] | None = None
    stall_secs: float = STALL_SECS
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    draw_session: Callable[[], int] = draw_session


def connect_to(address: Address, options: LinkOptions, check_saving: Callable[[], None] | None = None) -> Connect:
    """What connects to the server at an address; ``check_saving``: the check of connections for snapshots, if it is another one."""

    def connect(saves: bool) -> TcpLink:
        check = check_saving if saves and check_saving is not None else options.check
        role = SessionRole.SAVES if saves else options.greeting.role
        return TcpLink(address, replace(options, greeting=replace(options.greeting, role=role), check=check))

    return connect


@dataclass(slots=True, eq=False)
class _Asked:
    """A request whose answer was not given to the engine; ``is_sent``: over the connection that there is."""

    request: Request
    is_sent: bool = False
    answer: Answer | None = None
    span: AskedRequest | None = None

    @property
    def waits(self) -> bool:
        """Whether its answer is to come over the connection."""
        return self.is_sent and self.answer is None


_waits = attrgetter("waits")


def connect_through(address: Address, options: LinkOptions) -> ConnectWorker:
    """What connects to the embedding worker at an address."""

    def connect(restore: Callable[[], Sequence[Request]], check: Callable[[], None]) -> TcpLink:
        def check_both() -> None:
            check()
            options.check()

        return TcpLink(address, replace(options, restore=restore, check=check_both))

    return connect


class TcpLink:
    """See :class:`~trainer.tables.routes.servers.server_link.ServerLink`.

    A connection whose bytes are damaged is closed, as one that has ended: what was not answered is sent again over a new one.
    Raises :class:`ServerLost` if the server does not answer in time, or if damage does not end.
    """

    def __init__(self, address: Address, options: LinkOptions) -> None:
        greeting = replace(
            options.greeting, session=options.greeting.session or 1 + options.draw_session() % _MOST_SESSIONS
        )
        self._home = self._address = address
        self._options = replace(options, greeting=greeting)
        self._addresses = deque([address, *options.others])
        self._asked: deque[_Asked] = deque()
        self._are_sent = True  # all requests without an answer, over the connection that there is
        self._frames: FrameStream | None = None
        self._generation = 0
        self._damage: DamagedFrame | None = None
        self._damaged, self._damaged_since_secs = 0, 0.0
        self.sent_bytes = self.received_bytes = self.reconnections = 0
        self._reconnect(None)

    @property
    def waiting(self) -> int:
        """See :class:`~trainer.tables.routes.servers.server_link.ServerLink`."""
        return len(self._asked)

    def send(self, request: Request) -> None:
        """See :class:`~trainer.tables.routes.servers.server_link.ServerLink`."""
        asked = self._asked
        if request.kind in NUMBERED and len(asked) >= MOST_UNANSWERED:
            self._wait_for_place()
        are_sent, self._are_sent = self._are_sent, False
        asked.append(_Asked(request))
        try:
            if are_sent:
                self._send_one(asked[-1], waits=len(asked) > 1 and asked[-2].waits)
            else:
                self._send_asked()
        except _FAILURES as error:
            self._reconnect(error)
        self._are_sent = True

    def _wait_for_place(self) -> None:
        """Take answers until a further update may be sent: servers recognize that many of the newest updates if they come twice."""
        while sum(one.waits for one in self._asked if one.request.kind in NUMBERED) >= MOST_UNANSWERED:
            try:
                self._take_answer()
            except _FAILURES as error:
                self._reconnect(error)

    def receive(self) -> Answer:
        """See :class:`~trainer.tables.routes.servers.server_link.ServerLink`."""
        first = self._asked[0]
        while (answer := first.answer) is None:
            try:
                self._take_answer()
            except _FAILURES as error:
                self._reconnect(error)
        request = self._asked.popleft().request
        if answer.header.kind == Kind.ERROR:
            raise self._error(answer.body)
        if answer.header.number != request.number:
            raise DataError("an answer must belong to the oldest request", where=str(self._address),
                            value=answer.header.number, allowed=str(request.number))  # fmt: skip
        if request.decode is not None:
            request.decode()
        return answer

    def go_home(self) -> None:
        """See :class:`~trainer.tables.routes.servers.server_link.ServerLink`. Where the first address does not answer within a second, it stays."""
        if self._address == self._home:
            return
        assert not self._asked, "nothing waits for an answer"
        try:
            connect_stream(self._home, min(_HOME_SECS, self._options.patience_secs)).close()
        except OSError:
            return
        while self._addresses[0] != self._home:
            self._addresses.rotate(-1)
        self._address = self._home
        self._reconnect(StreamEnded("it goes back to its first address"))

    def _take_answer(self) -> None:
        """Take the next answer, to the oldest request that waits for one."""
        one = self._asked[0]
        if one.answer is not None:
            one = next(filter(_waits, self._asked))
        one.answer = self._receive(one.request)
        if one.span is not None:
            one.span.end()
        self._damaged = 0

    def _send_asked(self) -> None:
        """Send the requests that were not sent over this connection, in their order."""
        for one in tuple(self._asked):
            if not one.is_sent and one.answer is None:
                self._send_one(one, waits=any(other.waits for other in self._asked))

    def _send_one(self, one: _Asked, *, waits: bool) -> None:
        """Send a request; ``waits``: whether one that was sent before waits for its answer."""
        if current_tracer() is not None:
            one.span = asked_request(*self._open_frames().next_place, one.request.kind.name.lower())
        self._transmit(one.request, self._take_answer if waits else None)
        one.is_sent = True

    def _transmit(self, request: Request, receive: Callable[[], None] | None = None) -> None:
        frames = self._frames or self._open_frames()
        self.sent_bytes += frames.send_frame(
            request.kind, request.body, self._options.patience_secs, number=request.number, floor=request.floor,
            flags=request.flags, receive=receive,
        )  # fmt: skip

    def _open_frames(self) -> FrameStream:
        if self._frames is None:
            raise StreamEnded(
                "the connection has ended"
            )  # and was not made again, as a check has ended the wait for it
        return self._frames

    def _receive(self, request: Request) -> Answer:
        """The next answer, in the space of its request."""
        frames = self._frames or self._open_frames()
        space = request.space
        expected = 0 if space is None else sum([one.nbytes for one in space])
        frame, header = self._receive_header(MOST_ANSWER_BYTES if space is None else expected)
        if space is None or header.kind == Kind.ERROR:
            body = frames.receive_new_body(frame)
            self._check_undamaged(header, body)
            if header.kind == Kind.OPENED:
                self._generation = _opened(body)
            return Answer(header, body)
        if header.kind != Kind.ROWS or header.body_bytes != expected or header.flags != request.answer_flags:
            raise DataError("an answer must hold the rows that were asked for", where=str(self._address),
                            value=f"{header.kind.name}, {header.body_bytes:,} bytes, flags {header.flags}",
                            allowed=f"{expected:,} bytes, flags {request.answer_flags}")  # fmt: skip
        frames.receive_body(frame, [one.data.cast("B") for one in space if len(one)])
        return Answer(header)

    def _receive_header(self, most_bytes: int, patience_secs: float | None = None) -> tuple[FrameHeader, Header]:
        frames = self._frames or self._open_frames()
        self._wait_for_answer(frames, self._options.patience_secs if patience_secs is None else patience_secs)
        frame = frames.receive_header()
        if frame is None:
            raise StreamEnded("the server ended the stream")
        header = read_header(frame, max(most_bytes, MOST_ERROR_BYTES))
        self.received_bytes += HEADER_BYTES + header.body_bytes
        return frame, header

    def _wait_for_answer(self, frames: FrameStream, patience_secs: float) -> None:
        """Wait until there is something to read. Raises TimeoutError after the patience, and what ``check`` raises."""
        look_secs = min(_LOOK_SECS, patience_secs)
        if frames.has_bytes(look_secs):
            return
        until = self._options.clock() + patience_secs - look_secs
        while True:
            self._options.check()
            if self._options.clock() >= until:
                raise TimeoutError("no answer")
            if frames.has_bytes(look_secs):
                return

    def _check_undamaged(self, header: Header, body: Bytes) -> None:
        """Raise the :class:`DamagedFrame` that the server has sent: it has used nothing of what has come."""
        if header.kind == Kind.ERROR:
            error = from_bytes(bytes(body), str(self._address))
            if DamagedFrame.__name__ in error.kinds:
                raise damaged_frame(error)

    def _reconnect(self, failure: OSError | DamagedFrame | None) -> None:
        """Connect, and send what was not answered. Raises :class:`ServerLost` after the patience, or if rows were lost.

        The patience for connections that fail begins now; that for damage began with the first damage since the last answer, since
        connections may be made and then be damaged one after the other.
        """
        options = self._options
        until, backoff = options.clock() + options.patience_secs, _BACKOFF_SECS
        if isinstance(failure, DamagedFrame):
            self._note_damage(failure)
            self._pause_after_damage()
        while True:
            self.close()
            self._are_sent = False
            for one in self._asked:
                one.is_sent = False
            if failure is not None:
                options.check()
            try:
                self._connect()
                self._resend(0 if options.restore is None else self._restore(options.restore()))
            except _FAILURES as error:
                if isinstance(error, DamagedFrame):
                    self._note_damage(error)
                self._addresses.rotate(-1)
                self._address = self._addresses[0]
                if options.clock() + backoff >= max(until, self._damage_until_secs):
                    raise self._lost(error) from None
                if failure is None:
                    options.check()
                options.sleep(backoff)
                backoff = min(2 * backoff, _MOST_BACKOFF_SECS)
                continue
            self.reconnections += failure is not None
            self._are_sent = True
            return

    @property
    def _damage_until_secs(self) -> float:
        """When damage must have ended, by the clock of the options."""
        options = self._options
        if not self._damaged:
            return -math.inf
        return self._damaged_since_secs + max(options.patience_secs, _STALLS * options.stall_secs)

    def _note_damage(self, failure: DamagedFrame) -> None:
        if not self._damaged:
            self._damaged_since_secs = self._options.clock()
        self._damaged += 1
        self._damage = failure

    def _pause_after_damage(self) -> None:
        """Wait before the connection after a damaged one, longer each time. Raises :class:`ServerLost` after the patience."""
        options = self._options
        if options.clock() >= self._damage_until_secs:
            raise self._lost(None)
        options.sleep(min(_BACKOFF_SECS * 2.0 ** min(self._damaged - 1, 10), _MOST_BACKOFF_SECS))

    def _lost(self, failure: OSError | DamagedFrame | None) -> ServerLost:
        """The error after the patience: of the damage, if there was some since the last answer."""
        patience, damage = f"{self._options.patience_secs:g} s", self._damage
        if self._damaged and damage is not None:
            lasts_secs = self._options.clock() - self._damaged_since_secs
            return ServerLost("a connection to a server must deliver bytes as they were sent", where=self._ends(),
                              value=f"{damage.value} ({self._damaged} damaged connections in {lasts_secs:.3g} s)",
                              next_step=f"{damage.next_step}; {_GO_ON}")  # fmt: skip
        return ServerLost("a server must answer", where=str(self._address), value=f"{failure} for {patience}",
                          next_step=_START)  # fmt: skip

    def _ends(self) -> str:
        """The two ends of the connection, for an error."""
        return f"client {self._options.greeting.client} on {socket.gethostname()}, server {self._address}"

    def _connect(self) -> None:
        """Greet the server."""
        options = self._options
        patience_secs = options.patience_secs / max(len(self._addresses), _GREETINGS)
        frames = self._frames = self._open_stream(patience_secs)
        self._transmit(Request(Kind.HELLO, [write_document(options.greeting.to_document())]))
        frame, header = self._receive_header(MOST_ERROR_BYTES, patience_secs)
        body = frames.receive_new_body(frame)
        self._check_undamaged(header, body)
        if header.kind == Kind.ERROR:
            if len(self._addresses) > 1 and ServerLeaves.__name__ in from_bytes(bytes(body), str(self._address)).kinds:
                raise StreamEnded("it is about to end")  # another address is tried
            raise self._error(body)
        generation = _opened(body)
        if options.restore is None:
            self._check_generation(generation)

    def _open_stream(self, patience_secs: float) -> FrameStream:
        options = self._options
        stream = connect_stream(self._address, patience_secs)
        if options.tls is not None:
            try:
                stream = self._encrypted(stream, options.tls)
            except BaseException:
                stream.close()
                raise
        return FrameStream(stream, FrameOrder(WireProtocol.ROWS, options.draw_session()), stall_secs=options.stall_secs)

    def _check_generation(self, generation: int) -> None:
        """Raise :class:`ServerLost` for rows of another generation, unless a load of this client that was not answered has begun it."""
        begun = {one.request.floor for one in self._asked if one.request.kind is Kind.END_LOAD and one.answer is None}
        if self._generation and generation not in (self._generation, *begun):
            raise ServerLost("the server has lost its rows", where=str(self._address),
                             value="it was started without them", next_step=_GO_ON)  # fmt: skip

    def _restore(self, requests: Sequence[Request]) -> int:
        """Send a process what it had; returns the number of the last update among it."""
        before = self._generation
        for request in requests:
            self._transmit(request)
            answer = self._receive(request)
            if answer.header.kind == Kind.ERROR:
                raise self._error(answer.body)
            if answer.header.kind == Kind.OPENED:
                self._generation = before
                self._check_generation(_opened(answer.body))
        return max((one.number for one in requests if one.kind in NUMBERED), default=0)

    def _encrypted(self, stream: socket.socket, tls: ssl.SSLContext) -> ssl.SSLSocket:
        """Raises :class:`ConfigError` for a server that the authority has not signed."""
        try:
            return tls.wrap_socket(stream, server_hostname=self._address.host)
        except ssl.SSLCertVerificationError as error:
            raise ConfigError("the certificate of a server must be signed for its host by the authority", where=str(self._address),
                              value=error.verify_message, next_step="give the authority's certificate, or another address") from None  # fmt: skip

    def _resend(self, restored: int) -> None:
        """Send what has no answer, except updates up to ``restored``. A server takes one that it has made for a repetition."""
        for one in self._asked:
            request = one.request
            if one.answer is None and request.kind in NUMBERED and request.number <= restored:
                one.answer = Answer(Header(Kind.DONE, number=request.number))
        self._send_asked()

    def _error(self, body: Bytes) -> HeadraceError:
        """The error that the server has sent."""
        error = from_bytes(bytes(body), str(self._address))
        if ServerLost.__name__ in error.kinds:
            return ServerLost(error.what, where=error.where, value=error.value, next_step=error.next_step or _GO_ON)
        if MemoryFull.__name__ in error.kinds:
            return MemoryFull(
                error.what, where=error.where, value=error.value, allowed=error.allowed, next_step=error.next_step
            )
        return error

    def close(self) -> None:
        """End the connection."""
        if self._frames is not None:
            self._frames.socket.close()
            self._frames = None


def _opened(body: Bytes) -> int:
    """The generation in the document of an opened server. Raises :class:`DataError`."""
    document = read_document(body, OPENED_MEMBERS)
    text_at(document, "digest")
    count_at(document, "applied")
    return count_at(document, "generation")
