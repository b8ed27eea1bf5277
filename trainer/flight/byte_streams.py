"""Bytes of messages over a socket, with or without TLS: whole messages, sent from and received into memory of the caller."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Sequence

_MOST_PARTS = 512
_MOST_TLS_BYTES = 1 << 20


def _limit(stream: socket.socket, until_secs: float | None) -> None:
    """Let the next call of a stream end in time. Raises TimeoutError when the time is up."""
    if until_secs is not None:
        left_secs = until_secs - time.monotonic()
        if left_secs <= 0:
            raise TimeoutError("timed out")
        stream.settimeout(left_secs)


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
    left = [memoryview(part).cast("B") for part in parts if len(part)]
    while left:
        _limit(stream, until_secs)
        if isinstance(stream, ssl.SSLSocket):
            sent = stream.send(left[0][:_MOST_TLS_BYTES])
        else:
            sent = stream.sendmsg(left[:_MOST_PARTS])
        left = rest_of(left, sent)


def receive_into(stream: socket.socket, content: memoryview, until_secs: float | None = None) -> int:
    """Fill ``content``; returns its length, or less at the end of the stream.

    ``until_secs``: when it must be full, by the monotonic clock; None: the socket's timeout holds for each of its reads. Raises OSError, TimeoutError among them.
    """
    at, flags = 0, 0 if isinstance(stream, ssl.SSLSocket) else socket.MSG_WAITALL
    while at < len(content):
        _limit(stream, until_secs)
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
    left = [part for part in parts if len(part)]
    while left:
        count = stream.recvmsg_into(left[:_MOST_PARTS])[0]
        if not count:
            return False
        left = rest_of(left, count)
    return True
