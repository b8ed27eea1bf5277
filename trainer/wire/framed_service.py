"""A TCP service of framed streams, for readers, hosts and servers: one thread a connection, each with TLS or without it.

A stream that is damaged or refused gets an error in a frame, and ends; the other streams go on.
"""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

from trainer.errors import DamagedFrame
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.connections import Connections, refuse
from trainer.wire.flight.error_documents import in_one_line, to_bytes
from trainer.wire.frame_stream import STALL_SECS, FrameStream, StreamEnded
from trainer.wire.frames import FrameOrder, WireProtocol
from transforms.errors import HeadraceError

_LOG = logging.getLogger(__name__)
#: How long a connection may take for the handshake of TLS and its greeting.
_GREETING_SECS = 10.0


@dataclass(frozen=True, slots=True)
class FramedStreams:
    """The streams of a service.

    Attributes:
        protocol: that both ends speak.
        error_kind: of the frame with an error.
        name: of the other ends, for threads and messages.
        most: connections at once; more are closed unread.
        stall_secs: how long the rest of a frame may be silent.
        tls: the certificate of the service; None: connections are not encrypted.
    """

    protocol: WireProtocol
    error_kind: int
    name: str
    most: int
    stall_secs: float = STALL_SECS
    tls: ssl.SSLContext | None = None


class FramedService:
    """Serves the streams of a listening socket from its construction until :meth:`close`.

    Args:
        listening: the socket, which :meth:`close` leaves open.
        serve: called with the frames of each stream and the moment, by the monotonic clock, by which its greeting must be here; in a thread of
            its own. What it raises is sent to the other end.
    """

    def __init__(
        self, listening: socket.socket, streams: FramedStreams, serve: Callable[[FrameStream, float], None]
    ) -> None:
        self._streams, self._serve_frames = streams, serve
        self._connections = Connections(listening, self._serve, most=streams.most, name=streams.name)

    def _serve(self, connection: socket.socket) -> None:
        name, frames = self._streams.name, self._frames(connection)
        try:
            until_secs = time.monotonic() + _GREETING_SECS
            _keep_alive(connection)
            if self._streams.tls is not None:
                connection.settimeout(_GREETING_SECS)  # of the handshake
                stream = self._encrypted(connection, self._streams.tls)
                stream.do_handshake()
                frames = self._frames(stream)
            self._serve_frames(frames, until_secs)
        except HeadraceError as error:
            how = "is damaged" if isinstance(error, DamagedFrame) else "was refused"
            _LOG.warning("the stream of a %s %s: %s", name, how, in_one_line(error))
            self._refuse(frames, error)
        except OSError as error:
            _LOG.info("the stream of a %s ended: %s", name, error)
        except Exception as error:
            _LOG.exception("the stream of a %s failed", name)
            self._refuse(frames, error)

    def _refuse(self, frames: FrameStream, error: Exception) -> None:
        refuse(frames.socket, frames.write(self._streams.error_kind, [to_bytes(error)]))

    def _frames(self, stream: socket.socket) -> FrameStream:
        return FrameStream(stream, FrameOrder(self._streams.protocol, None), stall_secs=self._streams.stall_secs)

    def _encrypted(self, connection: socket.socket, tls: ssl.SSLContext) -> ssl.SSLSocket:
        """The connection with TLS, in its place among those that :meth:`close` ends, before the handshake."""
        stream = tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        self._connections.replace(connection, stream)
        return stream

    def close(self) -> None:
        """Serve no more: all streams end."""
        self._connections.close()


def connect_stream(address: Address, timeout_secs: float) -> socket.socket:
    """A connection to a framed service. Raises OSError."""
    stream = socket.create_connection((address.host, address.port), timeout_secs)
    try:
        if stream.getsockname() == stream.getpeername():
            # A port of the system's range may be connected to itself.
            raise StreamEnded("nothing listens at the address")
        _keep_alive(stream)
    except BaseException:
        stream.close()
        raise
    return stream


def _keep_alive(stream: socket.socket) -> None:
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
