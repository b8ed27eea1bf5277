"""Bytes of messages over a socket, with or without TLS: whole messages, sent from and received into memory of the caller."""

from __future__ import annotations

import math
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence

#: The parts of one call of the system.
MOST_PARTS = 512
_MOST_TLS_BYTES = 1 << 20


#: What a call raises that would wait: of a socket without waits, of TLS, and of a socket with a timeout.
WAITS = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def _limit(stream: socket.socket, until_secs: float | None, most_secs: float = math.inf) -> None:
    """Let the next call of a stream end in time. Raises TimeoutError when the time is up.

    A stream whose timeout is 0 keeps it: its caller waits by :func:`wait_for`.
    """
    if until_secs is not None:
        left_secs = until_secs - time.monotonic()
        if left_secs <= 0:
            raise TimeoutError("timed out")
        if stream.gettimeout() != 0.0:
            stream.settimeout(min(left_secs, most_secs))


def wait_for(stream: socket.socket, event: int, until_secs: float | None, most_secs: float = math.inf) -> None:
    """Wait until a stream can be read or written, select.POLLIN or POLLOUT, at most so long. Raises TimeoutError."""
    left_secs = min(math.inf if until_secs is None else until_secs - time.monotonic(), most_secs)
    look = select.poll()
    look.register(stream, event)
    if not look.poll(None if left_secs == math.inf else max(1000 * left_secs, 0)):
        raise TimeoutError("timed out")


def rest_of(parts: list[memoryview], sent: int) -> list[memoryview]:
    """What is left of parts of which some bytes were sent or received."""
    for i, part in enumerate(parts):
        if sent < len(part):
            return [part[sent:], *parts[i + 1 :]]
        sent -= len(part)
    return []


def send_parts(
    stream: socket.socket, parts: Sequence[bytes | bytearray | memoryview], until_secs: float | None = None
) -> None:
    """Send all parts, one after the other.

    ``until_secs``: when all must be sent, by the monotonic clock; None: the socket's timeout holds for each of its writes. Raises OSError,
    TimeoutError among them.
    """
    left = _views(parts)
    while left:
        _limit(stream, until_secs)
        try:
            left = rest_of(left, _send_some(stream, left))
        except BlockingIOError:
            wait_for(stream, select.POLLOUT, until_secs)


def _views(parts: Sequence[bytes | bytearray | memoryview]) -> list[memoryview]:
    return [memoryview(part).cast("B") for part in parts if len(part)]


def _send_some(stream: socket.socket, left: list[memoryview]) -> int:
    if isinstance(stream, ssl.SSLSocket):
        return stream.send(left[0][:_MOST_TLS_BYTES])
    return stream.sendmsg(left[:MOST_PARTS])


def send_while_receiving(
    stream: socket.socket, parts: Sequence[bytes | bytearray | memoryview], receive: Callable[[], None]
) -> None:
    """Send all parts to an end that may wait until what it sends is taken, where :func:`send_parts` would wait for ever.

    ``receive`` takes a message; it is called when the beginning of one is here while the other end takes nothing. The socket's timeout holds
    for each wait. Raises OSError, TimeoutError among them, and what ``receive`` raises.
    """
    left, timeout_secs = _views(parts), stream.gettimeout()
    look = select.poll()
    look.register(stream, select.POLLIN | select.POLLOUT)
    try:
        while left:
            stream.settimeout(0.0)
            try:
                left = rest_of(left, _send_some(stream, left))
                continue
            except WAITS:
                stream.settimeout(timeout_secs)
            ready = look.poll(None if timeout_secs is None else 1000 * timeout_secs)
            if not ready:
                raise TimeoutError("timed out")
            if ready[0][1] & select.POLLIN:
                receive()
    finally:
        stream.settimeout(timeout_secs)


def receive_into(
    stream: socket.socket, content: memoryview, until_secs: float | None = None, stall_secs: float = math.inf
) -> int:
    """Fill ``content``; returns its length, or less at the end of the stream.

    ``until_secs``: when it must be full, by the monotonic clock; None: the socket's timeout holds for each of its reads. ``stall_secs``: how
    long one read may take until then. Raises OSError, TimeoutError among them.
    """
    at, flags = 0, 0 if isinstance(stream, ssl.SSLSocket) else socket.MSG_WAITALL
    while at < len(content):
        _limit(stream, until_secs, stall_secs)
        # Without a timeout, one call waits for all of it.
        count = stream.recv_into(content[at:], 0, flags)
        if not count:
            break
        at += count
    return at


def receive_parts(stream: socket.socket, parts: Sequence[memoryview]) -> bool:
    """Fill all parts, one after the other; False if the stream ends before. Raises OSError."""
    if isinstance(stream, ssl.SSLSocket):
        return all(receive_into(stream, part) == len(part) for part in parts)
    return receive_at_once(stream, parts, None)


def receive_at_once(
    stream: socket.socket, parts: Sequence[memoryview], until_secs: float | None, stall_secs: float = math.inf
) -> bool:
    """As :func:`receive_parts`, of a socket without TLS and with any timeout, 0 included; by few calls of the system.

    ``until_secs`` and ``stall_secs``: as in :func:`receive_into`. Raises OSError, TimeoutError among them.
    """
    left = [part for part in parts if len(part)]
    while left:
        try:
            count = stream.recv_into(left[0]) if len(left) == 1 else stream.recvmsg_into(left[:MOST_PARTS])[0]
        except BlockingIOError:
            wait_for(stream, select.POLLIN, until_secs, stall_secs)
            continue
        if not count:
            return False
        left = rest_of(left, count)
    return True
