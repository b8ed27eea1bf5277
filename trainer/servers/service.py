"""The sockets of a parameter server or an embedding worker: one thread a connection, each request answered before the next one is read.

A connection greets with the token within some seconds. Memory is taken for a greeting of a few bytes first, then for requests of a client
with the token, each within the limit of one message and of all messages.
"""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from trainer.errors import ConfigError
from trainer.servers.byte_budget import ByteBudget
from trainer.servers.client_updates import Greeting
from trainer.servers.drain import MEASURES, Drain
from trainer.servers.row_server import Reply, Session
from trainer.servers.running_requests import RunningRequests
from trainer.servers.session_roles import OF_SERVERS, check_allowed
from trainer.tables.routes.servers.frames import (
    MOST_DOCUMENT_BYTES,
    MOST_GREETING_BYTES,
    Header,
    Kind,
    read_header,
    read_object,
    write_document,
)
from trainer.wire.flight.addresses import Address, check_token, is_token
from trainer.wire.flight.error_documents import in_one_line, to_bytes
from trainer.wire.frame_stream import STALL_SECS, FrameStream
from trainer.wire.framed_service import FramedService, FramedStreams
from trainer.wire.frames import Bytes, FrameHeader, WireProtocol
from transforms.errors import DataError, HeadraceError, InputError
from transforms.metrics.instruments import LabelledHistograms
from transforms.tracing.requests import answered_request
from transforms.tracing.spans import current_tracer

_LOG = logging.getLogger(__name__)
#: The kinds of requests in metrics.
_NAMES = {kind: kind.name.lower() for kind in Kind}
_MOST_CONNECTIONS = 2048
#: How long a request may run after its connection has ended.
_END_SECS = 10.0


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """The limits of a server.

    Attributes:
        most_bytes: of one message.
        message_bytes: of all messages that are in memory at once.
        patience_secs: how long a client may take to send the rest of a message, or to take an answer, and a message waits for memory.
        stall_secs: how long the rest of a message may be silent.
    """

    most_bytes: int = 1 << 30
    message_bytes: int = 2 << 30
    patience_secs: float = 300.0
    stall_secs: float = STALL_SECS

    def __post_init__(self) -> None:
        for name in ("most_bytes", "message_bytes", "patience_secs", "stall_secs"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be > 0", value=getattr(self, name), allowed="> 0")


class RequestHandler(Protocol):
    """What answers the requests of sessions; :class:`~trainer.servers.row_server.RowServer` is one. Any thread may call it."""

    def begin(self, greeting: Greeting) -> Session:
        """Begin a session, in place of an earlier one of the same client."""

    def opened(self, session: Session) -> Reply:
        """What is answered to a greeting."""

    def memory_bytes(self, header: Header) -> int:
        """The most bytes that a request takes in memory."""

    def await_turn(self, session: Session, header: Header, is_ending: Callable[[], bool]) -> None:
        """Wait for what must come before a request whose body is not here yet, but not once ``is_ending``."""

    def handle(self, session: Session, header: Header, body: Bytes) -> Reply:
        """Answer a request, in whose body nothing may change before. Raises :class:`~transforms.errors.HeadraceError`."""

    def end(self, session: Session) -> None:
        """End a session."""


class ServerService:
    """Answers the connections of a listening socket from its construction until :meth:`close`.

    Args:
        listening: the socket, which :meth:`close` leaves open.
        server: answers the requests.
        token: that a client must have; empty for none.
        limits: of its messages.
        tls: the certificate of the server; None: connections are not encrypted.
        drain: of the server, which counts its clients; None: it ends without one.
        times: seconds of requests by their kind.
    """

    def __init__(
        self,
        listening: socket.socket,
        server: RequestHandler,
        *,
        token: str = "",
        limits: ServiceLimits | None = None,
        tls: ssl.SSLContext | None = None,
        drain: Drain | None = None,
        times: LabelledHistograms | None = None,
    ) -> None:
        self._times = LabelledHistograms() if times is None else times
        self._drain = Drain(0) if drain is None else drain
        self._requests, self._is_finishing = RunningRequests(), False
        host, port = listening.getsockname()[:2]
        self.address = Address(host, port)
        check_token(self.address, token)
        self._server, self._token = server, token
        self._limits = limits or ServiceLimits()
        self._budget = ByteBudget(self._limits.message_bytes)
        streams = FramedStreams(
            WireProtocol.ROWS, Kind.ERROR, "client", most=_MOST_CONNECTIONS, stall_secs=self._limits.stall_secs, tls=tls
        )
        self._service = FramedService(listening, streams, self._serve)

    def _serve(self, frames: FrameStream, until_secs: float) -> None:
        session = self._greeted(frames, until_secs)
        try:
            self._reply(frames, self._server.opened(session), 0)
            while self._answer(frames, session):
                pass
        finally:
            self._server.end(session)
            self._drain.remove(session)

    def _greeted(self, frames: FrameStream, until_secs: float) -> Session:
        frame = frames.receive_header(until_secs)
        header = None if frame is None else read_header(frame, MOST_GREETING_BYTES)
        if frame is None or header is None or header.kind != Kind.HELLO:
            raise DataError(
                "the first message of a client must be its greeting", value=None if header is None else header.kind.name
            )
        body = frames.receive_new_body(frame, until_secs)
        greeting = Greeting.read(read_object(body))
        if not is_token(greeting.token, self._token):
            raise InputError(
                "the token must be that of the servers",
                where=f"client {greeting.client}",
                next_step="give the file of the servers' token: --server-token-file of headrace train",
            )
        self._drain.check(greeting)
        session = self._server.begin(greeting)
        self._drain.add(session, greeting)
        return session

    def _answer(self, frames: FrameStream, session: Session) -> bool:
        """Read and answer the next request; False at the end of the stream."""
        frame = frames.receive_header()
        if frame is None or self._is_finishing:
            return False
        began = time.perf_counter()
        header = read_header(frame, self._limits.most_bytes)
        if header.kind == Kind.OPEN and header.body_bytes > MOST_DOCUMENT_BYTES:
            raise DataError(
                "the document of tables must be short",
                value=header.body_bytes,
                allowed=f"at most {MOST_DOCUMENT_BYTES:,} bytes",
            )
        name = _NAMES[header.kind]
        if current_tracer() is None:
            is_answered = self._answer_in_turn(frames, session, frame, header)
        else:
            with answered_request(frame.session, frame.sequence, name):
                is_answered = self._answer_in_turn(frames, session, frame, header)
        if not is_answered:
            return False
        self._times.observe(name, time.perf_counter() - began)
        return True

    def _answer_in_turn(self, frames: FrameStream, session: Session, frame: FrameHeader, header: Header) -> bool:
        """Read the body of a request and answer it; False once the service ends."""
        patience_secs, size_bytes = self._limits.patience_secs, self._server.memory_bytes(header)
        self._server.await_turn(session, header, self._has_finished)
        self._budget.hold(size_bytes, patience_secs)
        try:
            body = frames.receive_new_body(frame, time.monotonic() + patience_secs)
            with self._requests:
                if self._is_finishing:  # the bytes of a request can be here although its connection has ended
                    return False
                try:
                    reply = self._handle(session, header, body)
                except HeadraceError as error:
                    _LOG.warning("a request was refused: %s", in_one_line(error))
                    reply = Reply(Kind.ERROR, [to_bytes(error)])
                self._reply(frames, reply, header.number)
        finally:
            self._budget.free(size_bytes)
        return True

    def _has_finished(self) -> bool:
        """Whether no more requests are begun."""
        return self._is_finishing

    def _handle(self, session: Session, header: Header, body: Bytes) -> Reply:
        """Answer a request; those of the training that watches the server are answered here."""
        if header.kind not in (Kind.WATCH, Kind.LEAVE):
            return self._server.handle(session, header, body)
        check_allowed(OF_SERVERS, session.greeting.role, header.kind)
        if header.kind == Kind.LEAVE:
            self._drain.release(header.number)
            return Reply(Kind.DONE)
        state = self._drain.watch(session, measures=header.number == MEASURES)
        return Reply(Kind.DOCUMENT, [write_document(state.to_document())])

    def _reply(self, frames: FrameStream, reply: Reply, number: int) -> None:
        frames.send_frame(reply.kind, reply.body, self._limits.patience_secs, number=number, flags=reply.flags)

    def finish(self, secs: float) -> None:
        """Begin no more requests, and wait for those that run, at most so long."""
        self._is_finishing = True
        self._requests.wait(secs)

    def close(self) -> None:
        """Answer no more: connections end, and requests that run have ended, so that another service may take over the rows."""
        self._is_finishing = True
        self._service.close()
        self.finish(_END_SECS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
