"""The connections of a listening socket: a thread each, up to a number, until they are closed."""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence

from trainer.errors import ConfigError
from trainer.wire.byte_streams import send_parts
from trainer.wire.flight.addresses import Address

_LOG = logging.getLogger(__name__)
#: After a failure such as too many open files.
_PAUSE_SECS = 0.1
_JOIN_SECS = 5.0
#: How long the other end may take to read an error.
_REFUSAL_SECS = 1.0


def listen(address: Address) -> socket.socket:
    """A socket that listens at an address. Raises :class:`ConfigError` for one that is in use, or not of this machine."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=512)
    except OSError as error:
        raise ConfigError("the address of a service must be free and of this machine", where=str(address),
                          value=error.strerror or str(error), next_step="choose another port, or 0 for any") from None  # fmt: skip


class Connections:
    """Accepts connections from its construction until :meth:`close`; those above ``most`` are closed unread.

    Args:
        listening: the socket, which stays open.
        serve: called in a thread with each connection, which it does not close.
        most: connections at once.
        name: of the threads.
    """

    def __init__(
        self, listening: socket.socket, serve: Callable[[socket.socket], None], *, most: int, name: str
    ) -> None:
        self._listening, self._serve_one, self._most, self._name = listening, serve, most, name
        self._lock = threading.Lock()
        self._open: dict[socket.socket, socket.socket] = {}  # each connection, and what has taken its place
        self._closed = False
        self._woken, self._wake = socket.socketpair()
        self._accepting = threading.Thread(target=self._accept, name=f"{name}-accept", daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        self._listening.settimeout(0.0)
        looks = select.poll()
        looks.register(self._listening, select.POLLIN)
        looks.register(self._woken, select.POLLIN)
        while not self._closed:
            looks.poll()
            if self._closed:
                return
            try:
                connection, _ = self._listening.accept()
            except BlockingIOError:  # another process has taken it
                continue
            except OSError as error:
                _LOG.warning("a connection failed: %s", error)
                time.sleep(_PAUSE_SECS)
                continue
            connection.settimeout(None)
            with self._lock:
                takes = len(self._open) < self._most and not self._closed
                if takes:
                    self._open[connection] = connection
            if takes:
                threading.Thread(target=self._serve, args=(connection,), name=self._name, daemon=True).start()
            else:
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            self._serve_one(connection)
        finally:
            with self._lock:
                stream = self._open.pop(connection)
            stream.close()

    @property
    def open_count(self) -> int:
        """The connections that are open."""
        return len(self._open)

    def replace(self, connection: socket.socket, stream: socket.socket) -> None:
        """Let a stream take the place of a connection, such as one with TLS: :meth:`close` ends it instead."""
        with self._lock:
            self._open[connection] = stream

    def close(self) -> None:
        """Accept no more, and end all connections; their threads close them."""
        self._closed = True
        self._wake.close()
        with self._lock:
            for stream in self._open.values():
                try:
                    stream.shutdown(socket.SHUT_RDWR)
                except OSError as error:
                    _LOG.debug("a connection has ended already: %s", error)
        self._accepting.join(_JOIN_SECS)
        self._woken.close()


def refuse(stream: socket.socket, parts: Sequence[bytes | bytearray | memoryview]) -> None:
    """Send an error and end the stream. What was sent meanwhile is discarded, since the system would discard the error else."""
    try:
        send_parts(stream, parts, time.monotonic() + _REFUSAL_SECS)
        stream.shutdown(socket.SHUT_WR)
        stream.settimeout(_REFUSAL_SECS)
        discarded, until = bytearray(1 << 16), time.monotonic() + _REFUSAL_SECS
        while stream.recv_into(discarded) and time.monotonic() < until:
            continue
    except OSError as failed:
        _LOG.info("an error was not sent: %s", failed)
