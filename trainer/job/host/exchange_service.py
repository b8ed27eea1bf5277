"""Receives what other hosts send to this one, over TCP: one connection at a time for each sender, channel and attempt.

A connection whose bytes are damaged is ended: its sender makes another one, and sends what has not arrived. Bytes go from the socket to the
arrays of a message without a copy. Memory is taken for a greeting of a few bytes, then for messages of a
sender with the token, each within the limit of the mailbox.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

import numpy as np

from trainer.job.host.host_messages import (
    MOST_DOCUMENT_BYTES,
    HostFrame,
    HostGreeting,
    array_bytes,
    read_description,
    read_greeting,
)
from trainer.job.host.mailbox import Arrival, Mailbox
from trainer.wire.flight.addresses import Address, check_token, is_token
from trainer.wire.flight.connections import listen
from trainer.wire.frame_stream import STALL_SECS, FrameStream
from trainer.wire.framed_service import FramedService, FramedStreams
from trainer.wire.frames import FrameHeader, WireProtocol
from transforms.errors import DataError, InputError

#: Connections at once; more are closed unread.
_MOST_CONNECTIONS = 1024
#: How long a sender may take to read that a message has arrived.
_ANSWER_SECS = 60.0


class ExchangeService:
    """Receives streams from its construction until :meth:`close`.

    Args:
        address: where to listen; port 0 lets the system choose one.
        mailbox: takes the messages.
        token: that a stream must have; empty for none.
        stall_secs: how long the rest of a message may be silent.

    Raises :class:`ConfigError` if the port is in use, or for an address off loopback without a token.
    """

    def __init__(self, address: Address, mailbox: Mailbox, *, token: str = "", stall_secs: float = STALL_SECS) -> None:
        check_token(address, token)
        self._mailbox, self._token = mailbox, token
        self._listening = listen(address)
        self.address = Address(address.host, self._listening.getsockname()[1])
        streams = FramedStreams(
            WireProtocol.HOSTS, HostFrame.ERROR, "host", most=_MOST_CONNECTIONS, stall_secs=stall_secs
        )
        self._service = FramedService(self._listening, streams, self._receive)

    def _receive(self, frames: FrameStream, until_secs: float) -> None:
        """One connection of one host on one channel of an attempt."""
        greeting, first = self._greeted(frames, until_secs)
        arrival, is_last = self._mailbox.open(greeting.sender, greeting.origin), False
        try:
            if first > arrival.wanted:
                raise DataError("a reconnected stream must continue after its last message", where=str(greeting.sender), value=first,
                                allowed=f"at most {arrival.wanted}")  # fmt: skip
            self._answer(frames, arrival.wanted)
            while (frame := frames.receive_header()) is not None:
                if frame.kind == HostFrame.END:
                    is_last = True
                    return
                if not self._receive_message(frames, frame, arrival):
                    return
                self._answer(frames, arrival.wanted)
        finally:
            self._mailbox.end(arrival, is_last=is_last)

    def _greeted(self, frames: FrameStream, until_secs: float) -> tuple[HostGreeting, int]:
        """The greeting, and the number of the first message that its sender has still."""
        frame = frames.receive_header(until_secs)
        if frame is None or frame.kind != HostFrame.GREETING or frame.body_bytes > MOST_DOCUMENT_BYTES:
            raise DataError("the first message of a host must be its greeting", value=None if frame is None else f"kind {frame.kind}, {frame.body_bytes:,} bytes",
                            allowed=f"at most {MOST_DOCUMENT_BYTES:,} bytes")  # fmt: skip
        greeting = read_greeting(frames.receive_new_body(frame, until_secs))
        if not is_token(greeting.token, self._token):
            raise InputError(
                "the token must be that of the job", where=str(greeting.sender), next_step="give the job's --token-file"
            )
        return greeting, frame.number

    def _receive_message(self, frames: FrameStream, frame: FrameHeader, arrival: Arrival) -> bool:
        """Receive the next message; False if it comes by another connection, or the attempt is over."""
        sender = arrival.sender
        if frame.kind != HostFrame.MESSAGE:
            raise DataError("a host must send messages", where=str(sender), value=f"kind {frame.kind}")
        size = array_bytes(frame, self._mailbox.most_bytes)
        if not self._mailbox.wait_for_space(arrival, size):
            return False
        if frame.number != arrival.wanted:
            raise DataError(
                "messages of a host must be in order",
                where=str(sender),
                value=frame.number,
                allowed=str(arrival.wanted),
            )
        description, content = bytearray(frame.flags), np.empty(size, np.uint8)
        frames.receive_body(frame, [memoryview(description), content.data])
        layout = read_description(description, frame.number, size)
        return self._mailbox.put(arrival, layout.message(content))

    def _answer(self, frames: FrameStream, wanted: int) -> None:
        frames.send(frames.write(HostFrame.ARRIVED, number=wanted), _ANSWER_SECS)

    def close(self) -> None:
        """Stop receiving; streams end."""
        self._mailbox.close()
        self._service.close()
        self._listening.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
