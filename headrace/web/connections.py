"""Connections with limits for what a client may delay: its request, its reading of the answer, and its place among others.

A client that sends a byte a second, or reads nothing, costs a connection for some seconds and never a thread: pages run once their request is whole. If too many
connections are open, the one that has waited longest for its request ends, so a browser, whose request comes at once, is served however many others say nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds from the opening of a connection, or from its last answer, in which a request must be there, body and all.
REQUEST_SECS = 15.0
#: Seconds in which a client must have taken an answer.
ANSWER_SECS = 30.0
#: The most open connections: half of the files that most systems let a process open.
MOST_CONNECTIONS = 500

#: Headers of the answers to what is no HTTP. The other answers have those of the guard.
HEADERS: Mapping[str, str] = {
    "content-type": "text/plain; charset=utf-8",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
    "connection": "close",
}


class TimedConnection(H11Protocol):
    """A connection of HTTP/1.1 that ends when its client takes too long.

    Attributes:
        waiting_since: When the connection began to wait for the request that is not whole; None while one is answered.
    """

    waiting_since: float | None = None
    _request_limit: asyncio.TimerHandle | None = None
    _answer_limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, and end another connection if there are too many."""
        super().connection_made(transport)
        self._follow_request()
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the limits."""
        self._cancel_request_limit()
        self._cancel_answer_limit()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what the client sent, and see whether a request is whole."""
        super().data_received(data)
        self._follow_request()

    def on_response_complete(self) -> None:
        """Wait for the next request, and for the client to take the answer."""
        super().on_response_complete()
        self._follow_request()
        self._follow_answer()

    def pause_writing(self) -> None:
        """Limit how long the client may leave answers."""
        super().pause_writing()
        self._follow_answer()

    def resume_writing(self) -> None:
        """Limit how long the client may leave the rest of an answer."""
        super().resume_writing()
        self._follow_answer()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP: with headers as all answers, unless an answer has begun already."""
        if self.cycle is not None and not self.cycle.response_complete:  # the body is no HTTP: a page may still be made
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=msg.encode("ascii")),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self._follow_answer()

    def _follow_request(self) -> None:
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            self._cancel_request_limit()
        elif self._request_limit is None and not self.transport.is_closing():
            self.waiting_since = self.loop.time()
            self._request_limit = self.loop.call_later(REQUEST_SECS, self.transport.abort)

    def _follow_answer(self) -> None:
        self._cancel_answer_limit()
        if self.transport.get_write_buffer_size():
            self._answer_limit = self.loop.call_later(ANSWER_SECS, self._end_unread)

    def _end_unread(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _make_room(self) -> None:
        waiting = (
            one for one in self.connections if isinstance(one, TimedConnection) and one.waiting_since is not None
        )
        oldest = min(waiting, key=lambda one: one.waiting_since or 0.0)
        self.connections.discard(oldest)
        oldest.transport.abort()

    def _cancel_request_limit(self) -> None:
        self.waiting_since = None
        if self._request_limit is not None:
            self._request_limit.cancel()
            self._request_limit = None

    def _cancel_answer_limit(self) -> None:
        if self._answer_limit is not None:
            self._answer_limit.cancel()
            self._answer_limit = None
