"""A connection of a host to a reader, on which one request is made at a time."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from trainer.run.reading.packed_units import PackedUnit
from trainer.run.reading.unit_frames import MOST_STATUS_BYTES, UnitFrame, check_answer
from trainer.run.reading.unit_requests import UnitRequest
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.error_documents import from_bytes
from trainer.wire.frame_stream import FrameStream, StreamEnded
from trainer.wire.framed_service import connect_stream
from trainer.wire.frames import Bytes, FrameHeader, FrameOrder, WireProtocol

#: Called with the bytes of a unit before they are received: waits for space, and returns whether the unit is still wanted.
Admit = Callable[[int], bool]
_SESSION_BITS = 62


class ReaderLink:
    """A connection from its construction until :meth:`close`; one thread uses it.

    Its user closes it after an error, and after a unit that was not admitted. Raises OSError if the reader cannot be connected to.

    ``is_answered``: whether the answer to the last request has begun, and is no error.
    """

    def __init__(self, address: Address, token: str, timeout_secs: float) -> None:
        self._where, self._greeting = str(address), token.encode()
        stream = connect_stream(address, timeout_secs)
        self._frames = FrameStream(stream, FrameOrder(WireProtocol.UNITS, secrets.randbits(_SESSION_BITS)))
        self._is_greeted = self.is_answered = False

    def unit(self, request: UnitRequest, admit: Admit, *, timeout_secs: float, most_bytes: int) -> PackedUnit | None:
        """The bytes of a unit; None if ``admit`` refuses them.

        Memory is taken for a unit once it is admitted. Raises OSError, :class:`DamagedFrame`, :class:`RemoteError`, and
        :class:`BadAnswer` for an answer that is not a unit of at most ``most_bytes``.
        """
        until_secs, where = time.monotonic() + timeout_secs, f"{self._where}, fragment {request.fragment}"
        frame = self._asked(UnitFrame.UNIT, request.to_bytes(), until_secs, most_bytes, where)
        if not admit(frame.body_bytes):
            return None
        content = np.empty(frame.body_bytes, np.uint8)
        self._frames.receive_body(frame, [content.data], until_secs)
        return PackedUnit.of(content)

    def status(self, timeout_secs: float) -> bytes:
        """The JSON object of the reader's status. Raises as :meth:`unit`."""
        until_secs = time.monotonic() + timeout_secs
        frame = self._asked(UnitFrame.STATUS, b"", until_secs, MOST_STATUS_BYTES, self._where)
        return bytes(self._frames.receive_new_body(frame, until_secs))

    def _asked(self, kind: UnitFrame, body: Bytes, until_secs: float, most_bytes: int, where: str) -> FrameHeader:
        """Make a request; returns the header of its answer."""
        self.is_answered = False
        frame = self._header(kind, body, until_secs)
        if not check_answer(frame, kind, most_bytes, where):
            raise from_bytes(bytes(self._frames.receive_new_body(frame, until_secs)), self._where)
        self.is_answered = True
        return frame

    def _header(self, kind: UnitFrame, body: Bytes, until_secs: float) -> FrameHeader:
        parts = [] if self._is_greeted else self._frames.write(UnitFrame.GREETING, [self._greeting])
        self._is_greeted = True
        parts += self._frames.write(kind, [body])
        self._frames.send(parts, until_secs - time.monotonic())
        frame = self._frames.receive_header(until_secs)
        if frame is None:
            raise StreamEnded("the reader ended the connection")
        return frame

    def end(self) -> None:
        """End what another thread does with the connection."""
        with suppress(OSError):
            self._frames.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection."""
        self._frames.socket.close()
