"""A preemption notice by HTTP. A request has a limit of length and of time, and few are read at once, whatever a client sends."""

from __future__ import annotations

import io
import json
import logging
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

from trainer.job.launch.notices import MOST_GRACE_SECS, OnNotice
from trainer.wire.flight.addresses import Address, is_token
from trainer.wire.flight.connections import Connections, listen
from trainer.wire.flight.error_documents import printable_line
from transforms.errors import InputError

_LOG = logging.getLogger(__name__)
#: Connections at once; more are closed unread.
_MOST_CONNECTIONS = 16
#: The longest request, and how long a client may take for it.
_MOST_REQUEST_BYTES, _REQUEST_SECS = 16 << 10, 10.0
_MOST_BODY_BYTES = 4096


class HttpNotice:
    """A notice by ``POST /notice`` with the job's token, and perhaps ``{"grace_secs": 30}``.

    Args:
        address: where it listens; port 0 is any.
        token: of the job.
        grace_secs: without a number in the request.

    Raises :class:`~trainer.errors.ConfigError` if the port is in use, :class:`InputError` without a token.
    """

    def __init__(self, address: Address, *, token: str, grace_secs: float = 30.0) -> None:
        if not token:
            raise InputError("a service must have the token of its job", where=str(address))
        self._token, self._grace_secs = token, grace_secs
        self._on_notice: OnNotice = lambda secs: None
        self._listening = listen(address)
        self.address = Address(address.host, self._listening.getsockname()[1])

    def run(self, on_notice: OnNotice, ended: threading.Event) -> None:
        """Serve until the end."""
        self._on_notice = on_notice
        connections = Connections(self._listening, self._serve, most=_MOST_CONNECTIONS, name="notices")
        ended.wait()
        connections.close()
        self._listening.close()

    def _serve(self, connection: socket.socket) -> None:
        source = self

        class Handler(_Handler):
            def do_POST(self) -> None:
                source.answer(self)

        try:
            Handler(connection, connection.getpeername(), None)  # type: ignore[arg-type]  # it needs no server
        except OSError as error:
            _LOG.info("a request for a notice ended: %s", error)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer a request: 204 for a notice, 401, 404, 413 or 400 for others."""
        sent = request.headers.get("Authorization", "").encode("utf-8", "replace")
        if not is_token(sent, f"Bearer {self._token}"):
            _LOG.warning("a request for a notice was refused: the token must be that of the job")
            return _reply(request, 401)
        if request.path != "/notice":
            return _reply(request, 404)
        length = request.headers.get("Content-Length", "0")
        if not (length.isascii() and length.isdigit()):
            return _reply(request, 400)
        if len(length) > 6 or int(length) > _MOST_BODY_BYTES:
            return _reply(request, 413)
        try:
            secs = _requested_secs(request.rfile.read(int(length)), self._grace_secs)
        except (ValueError, RecursionError):
            return _reply(request, 400)
        self._on_notice(secs)
        return _reply(request, 204)


def _requested_secs(content: bytes, otherwise: float) -> float:
    """The seconds in a request. Raises ValueError for another document."""
    if not content:
        return otherwise
    found = json.loads(content)
    if not isinstance(found, dict) or not found.keys() <= {"grace_secs"}:
        raise ValueError("not a notice")
    secs = found.get("grace_secs", otherwise)
    if isinstance(secs, bool) or not isinstance(secs, (int, float)) or not 0 <= secs <= MOST_GRACE_SECS:
        raise ValueError("no seconds")
    return float(secs)


def _reply(request: BaseHTTPRequestHandler, status: int) -> None:
    request.send_response(status)
    request.send_header("Content-Length", "0")
    request.end_headers()
    request.close_connection = True


class _Handler(BaseHTTPRequestHandler):
    """Answers one request of a stream."""

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_LimitedInput(self.connection))

    def log_message(self, format: str, *args: Any) -> None:
        _LOG.debug("%s", printable_line(format % args))

    def log_error(self, format: str, *args: Any) -> None:
        _LOG.warning("a request for a notice was refused: %s", printable_line(format % args))


class _LimitedInput(io.RawIOBase):
    """The bytes of a socket, up to a length and a moment. Raises TimeoutError after it."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream, self._left, self._until = stream, _MOST_REQUEST_BYTES, time.monotonic() + _REQUEST_SECS

    def readable(self) -> bool:
        return True

    def readinto(self, content: Any) -> int:
        view = memoryview(content)[: self._left]
        if not len(view):
            return 0
        self._stream.settimeout(max(self._until - time.monotonic(), 1e-3))
        found = self._stream.recv_into(view)
        self._left -= found
        return found
