"""Frames over a socket, with or without TLS: whole ones, or an error that says what came instead."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Sequence

from trainer.wire.byte_streams import (
    MOST_PARTS,
    receive_at_once,
    receive_into,
    receive_parts,
    rest_of,
    send_parts,
    send_while_receiving,
    wait_for,
)
from trainer.wire.frames import HEADER_BYTES, Bytes, FrameHeader, FrameOrder, check_body, damaged

#: The most bytes of a connection that are read ahead of their use. Longer bodies are received where they are used.
MOST_AHEAD_BYTES = 1 << 15
_FIRST_AHEAD_BYTES = 1 << 12
#: How long the rest of a frame may be silent by default: bytes that the network has lost do not come later.
STALL_SECS = 5.0


class StreamEnded(ConnectionError):
    """The other end has ended the stream."""


class FrameStream:
    """The frames of one end of a connection; one thread uses it at a time.

    Args:
        stream: the socket, whose timeout is changed: without TLS it is 0, and waits are those of this class.
        order: numbers and checks the frames.
        stall_secs: how long the rest of a frame may be silent.
    """

    def __init__(self, stream: socket.socket, order: FrameOrder, *, stall_secs: float = STALL_SECS) -> None:
        self.socket, self._order, self._stall_secs = stream, order, stall_secs
        self._is_plain, self._is_ready = not isinstance(stream, ssl.SSLSocket), False
        self._make_ahead(_FIRST_AHEAD_BYTES)
        if self._is_plain:
            stream.settimeout(0.0)  # a call with a timeout is three calls of the system
        self._looks = select.poll()
        self._looks.register(stream, select.POLLIN)

    def write(
        self, kind: int, body: Iterable[Bytes] = (), *, number: int = 0, floor: int = 0, flags: int = 0
    ) -> list[Bytes]:
        """The next frame in parts, which must be sent next."""
        return self._order.write(kind, body, number=number, floor=floor, flags=flags)

    @property
    def next_place(self) -> tuple[int, int]:
        """See :attr:`~trainer.wire.frames.FrameOrder.next_place`."""
        return self._order.next_place

    def send(self, parts: Sequence[Bytes], patience_secs: float) -> None:
        """Send a written frame within a time. Raises OSError."""
        left = self._send_at_once(parts, sum(map(len, parts)))
        if left:
            send_parts(self.socket, left, time.monotonic() + patience_secs)

    def send_frame(
        self, kind: int, body: Sequence[Bytes], patience_secs: float, *, number: int = 0, floor: int = 0, flags: int = 0,
        receive: Callable[[], None] | None = None,
    ) -> int:  # fmt: skip
        """Write and send the next frame within a time; returns its bytes.

        ``receive``: of an end that may first want its own frames to be taken; see :func:`~trainer.wire.byte_streams.send_while_receiving`.
        Raises OSError, and what ``receive`` raises.
        """
        parts = self._order.write(kind, body, number=number, floor=floor, flags=flags)
        size = sum(map(len, parts))
        left = self._send_at_once(parts, size)
        if not left:
            return size
        if receive is None:
            send_parts(self.socket, left, time.monotonic() + patience_secs)
            return size
        self.socket.settimeout(patience_secs)
        try:
            send_while_receiving(self.socket, left, receive)
        finally:
            if self._is_plain:
                self.socket.settimeout(0.0)
        return size

    def _send_at_once(self, parts: Sequence[Bytes], size: int) -> Sequence[Bytes]:
        """Send what the system takes now of parts of ``size`` bytes, without TLS; returns what is left of them."""
        if not self._is_plain:
            return parts
        try:
            sent = self.socket.sendmsg(parts if len(parts) <= MOST_PARTS else parts[:MOST_PARTS])
        except BlockingIOError:
            return parts
        return () if sent == size else rest_of([memoryview(part) for part in parts], sent)

    def _make_ahead(self, size_bytes: int) -> None:
        """Make the memory of bytes that are read ahead, without any."""
        self._ahead = memoryview(bytearray(size_bytes))
        self._at = self._end = 0

    def has_bytes(self, timeout_secs: float | None) -> bool:
        """Whether something can be read, after at most a time; None: wait until then."""
        if self._at < self._end:
            return True
        if isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
            return True
        self._is_ready = bool(self._looks.poll(None if timeout_secs is None else 1000 * timeout_secs))
        return self._is_ready

    def takes_bytes(self, timeout_secs: float) -> bool:
        """Whether something can be sent, after at most a time."""
        try:
            wait_for(self.socket, select.POLLOUT, None, timeout_secs)
        except TimeoutError:
            return False
        return True

    def receive_header(self, until_secs: float | None = None) -> FrameHeader | None:
        """The next header; None at the end of the stream.

        ``until_secs``: when it must be here, by the monotonic clock; None: its first byte may come at any time. Raises OSError, and
        :class:`DamagedFrame`, also if its rest does not come.
        """
        if self._end - self._at < HEADER_BYTES and not self._receive_ahead(until_secs):
            return None
        header = self._order.read(self._ahead[self._at : self._at + HEADER_BYTES])
        self._at += HEADER_BYTES
        return header

    def _receive_ahead(self, until_secs: float | None) -> bool:
        """Receive a header, and what comes with it; False at the end of the stream."""
        if self._at:
            self._ahead[: self._end - self._at] = self._ahead[self._at : self._end]
            self._at, self._end = 0, self._end - self._at
        while not self._end:
            left_secs = None if until_secs is None else max(until_secs - time.monotonic(), 0.0)
            if not self._is_ready and not self.has_bytes(left_secs):
                raise TimeoutError("timed out")
            self._is_ready = False
            if not self._is_plain:
                self.socket.settimeout(self._stall_secs)
            try:
                found = self.socket.recv_into(self._ahead)
            except (TimeoutError, BlockingIOError):
                continue  # bytes of TLS alone, or none after all
            if not found:
                return False
            self._end = found
        if self._end < HEADER_BYTES:
            self._receive_rest([self._ahead[self._end : HEADER_BYTES]], until_secs)
            self._end = HEADER_BYTES
        return True

    def receive_body(self, header: FrameHeader, parts: Sequence[memoryview], until_secs: float | None = None) -> None:
        """Fill ``parts``, as long as the body together. Raises OSError, and :class:`DamagedFrame`, also if its rest does not come."""
        left = self._take_ahead(parts) if self._at < self._end else parts
        if left:
            self._receive_rest(left, until_secs)
            if len(self._ahead) - HEADER_BYTES < header.body_bytes <= MOST_AHEAD_BYTES - HEADER_BYTES:
                self._make_ahead(1 << (HEADER_BYTES + header.body_bytes - 1).bit_length())  # for the next frame
        check_body(header, parts)

    def _take_ahead(self, parts: Sequence[memoryview]) -> list[memoryview]:
        """Fill parts from what was read ahead; returns what is left of them."""
        for k, part in enumerate(parts):
            found = min(len(part), self._end - self._at)
            part[:found] = self._ahead[self._at : self._at + found]
            self._at += found
            if found < len(part):
                return [part[found:], *parts[k + 1 :]]
        return []

    def receive_new_body(self, header: FrameHeader, until_secs: float | None = None) -> bytearray:
        """The body in new memory; see :meth:`receive_body`. The header's length must have been checked."""
        stop = self._at + header.body_bytes
        if stop <= self._end:
            body = bytearray(self._ahead[self._at : stop])
            self._at = stop
            check_body(header, (body,))
        else:
            body = bytearray(header.body_bytes)
            self.receive_body(header, [memoryview(body)], until_secs)
        return body

    def _receive_rest(self, parts: Sequence[memoryview], until_secs: float | None) -> None:
        try:
            if self._is_plain:
                is_whole = receive_at_once(self.socket, parts, until_secs, self._stall_secs)
            elif until_secs is None:
                self.socket.settimeout(self._stall_secs)
                is_whole = receive_parts(self.socket, parts)
            else:
                is_whole = all(
                    receive_into(self.socket, part, until_secs, self._stall_secs) == len(part) for part in parts
                )
        except TimeoutError:
            raise damaged("rest does not come", f"silent for {self._stall_secs:g} s") from None
        if not is_whole:
            raise StreamEnded("the stream ended inside a frame")
