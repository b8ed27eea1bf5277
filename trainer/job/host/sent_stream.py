"""The messages of this host to one other host on one channel: each is kept until it has arrived, and sent again over a new connection."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from trainer.errors import DamagedFrame, HostLost
from trainer.job.host.host_messages import HostFrame, HostGreeting, Sender, write_greeting
from trainer.tables.kernels.outputs import OutputPool
from trainer.wire.byte_streams import rest_of
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.error_documents import MOST_ERROR_BYTES, BadAnswer, damaged_frame, from_bytes
from trainer.wire.frame_stream import STALL_SECS, FrameStream, StreamEnded
from trainer.wire.framed_service import connect_stream
from trainer.wire.frames import Bytes, FrameHeader, FrameOrder, WireProtocol

_LOOK_SECS = 0.05
_CONNECT_SECS = 10.0
#: How long a host is tried that ends each connection, or refuses it: one that has ended does not return in the attempt.
_RETRY_SECS = 2.0
_BACKOFF_SECS, _MOST_BACKOFF_SECS = 0.02, 0.5
#: How long a host may take to say why it ended a stream.
_ERROR_SECS = 1.0
#: After this time without an answer a message is sent again: it may be lost as a whole.
_ARRIVED_SECS = 15.0
_MOST_REASON = 500
_NEXT_STEP = "the job trains the epoch again from its last commit"
_FAILURES = (OSError, DamagedFrame)
#: Shorter messages are kept in memory of their own.
_POOLED_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """A message that may not have arrived."""

    number: int
    description: bytes
    content: Bytes


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a host sends to another one.

    Attributes:
        check: is called while it waits; raises to end the wait.
        patience_secs: how long the other host may take nothing, or damage may last.
        retry_secs: how long connections are tried that the other host ends or refuses.
        stall_secs: how long the rest of an answer may be silent.
        clock: monotonic seconds.
        sleep: waits for seconds.
    """

    check: Callable[[], None]
    patience_secs: float = 300.0
    retry_secs: float = _RETRY_SECS
    stall_secs: float = STALL_SECS
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class SentStream:
    """Sends messages in order, over one connection after the other; any thread may use it.

    Args:
        greeting: what each connection begins with.
        other: the receiver.
        address: of its :class:`~trainer.job.host.exchange_service.ExchangeService`.
        draw_session: draws the number of a connection.
    """

    def __init__(
        self,
        greeting: HostGreeting,
        other: Sender,
        address: Address,
        options: StreamOptions,
        draw_session: Callable[[], int],
    ) -> None:
        self._greeting, self._other, self._address = greeting, other, address
        self._options, self._draw_session = options, draw_session
        self._lock = threading.Lock()
        self._frames: FrameStream | None = None
        self._kept: deque[_Kept] = deque()
        self._pool = OutputPool(spare=0.25, kept=4)
        self._next = self._damaged = 0
        self._damaged_since = self._progress_secs = 0.0
        self.reconnections = 0

    def send(self, description: bytes, parts: Sequence[Bytes]) -> None:
        """Send the next message, which is kept. Raises :class:`HostLost`, and what ``check`` raises."""
        with self._lock:
            kept = _Kept(self._next, description, self._copy(parts))
            self._next += 1
            if not self._kept:
                self._progress_secs = self._options.clock()
            self._kept.append(kept)
            try:
                if self._frames is None:
                    self._reconnect(None)
                else:
                    self._read_answers(self._frames)
                    self._transmit(self._frames, kept)
            except _FAILURES as error:
                self._reconnect(error)

    def _copy(self, parts: Sequence[Bytes]) -> Bytes:
        """The parts as one, in memory that the caller does not write to."""
        size = sum(map(len, parts))
        if size < _POOLED_BYTES:
            return b"".join(parts)
        content, at = self._pool.take(-(-size // 4)).view(np.uint8)[:size], 0
        for part in parts:
            content[at : at + len(part)] = np.frombuffer(part, np.uint8)
            at += len(part)
        return content.data

    def look(self, wait_secs: float = 0.0) -> None:
        """Take what the other host has answered, after at most a time, and make a lost connection again. Raises as :meth:`send`."""
        if self._frames is None or not self._lock.acquire(blocking=False):
            return  # nothing was sent, or another thread sends, and finds what there is
        try:
            if self._frames is not None:
                self._look(self._frames, wait_secs)
        finally:
            self._lock.release()

    def _look(self, frames: FrameStream, wait_secs: float) -> None:
        try:
            frames.has_bytes(wait_secs)
            self._read_answers(frames)
            if self._kept and self._options.clock() >= self._progress_secs + _ARRIVED_SECS:
                raise TimeoutError(f"no message has arrived for {_ARRIVED_SECS:g} s")
        except _FAILURES as error:
            self._reconnect(error)

    def finish(self) -> None:
        """Wait until all messages have arrived. Raises as :meth:`send`."""
        until = self._options.clock() + self._options.patience_secs
        while self._kept:
            self._options.check()
            self.look(_LOOK_SECS)
            if self._kept and self._options.clock() >= until:
                raise self._silent()

    def _read_answers(self, frames: FrameStream) -> None:
        """Take the answers that are here. Raises OSError at the end of the stream, :class:`DamagedFrame`, and :class:`HostLost`."""
        while frames.has_bytes(0.0):
            self._take_answer(frames, frames.receive_header())

    def _take_answer(self, frames: FrameStream, frame: FrameHeader | None) -> None:
        if frame is None:
            raise StreamEnded("it ended the stream")
        if frame.kind == HostFrame.ERROR and frame.body_bytes <= MOST_ERROR_BYTES:
            raise self._refusal(bytes(frames.receive_new_body(frame)))
        first = self._kept[0].number if self._kept else self._next
        if frame.kind != HostFrame.ARRIVED or not first <= frame.number <= self._next or frame.body_bytes:
            raise self._lost(f"an answer of kind {frame.kind} with number {frame.number}")
        while self._kept and self._kept[0].number < frame.number:
            self._kept.popleft()
            self._damaged = 0
        self._progress_secs = self._options.clock()

    def _refusal(self, content: bytes) -> DamagedFrame | HostLost:
        """The error that the other host has sent."""
        try:
            error = from_bytes(content, str(self._address))
        except BadAnswer as bad:
            return self._lost(str(bad))
        if DamagedFrame.__name__ in error.kinds:
            return damaged_frame(error)
        return self._lost(str(error)[:_MOST_REASON])

    def _transmit(self, frames: FrameStream, kept: _Kept) -> None:
        parts = frames.write(HostFrame.MESSAGE, [kept.description, kept.content], number=kept.number, flags=len(kept.description))  # fmt: skip
        self._send_bytes(frames, parts)

    def _send_bytes(self, frames: FrameStream, parts: Sequence[Bytes]) -> None:
        """Send bytes, and check while the other host does not take them."""
        options = self._options
        until = options.clock() + options.patience_secs
        left = [memoryview(part) for part in parts]
        while left:
            try:
                sent = frames.socket.sendmsg(left)
            except BlockingIOError:
                if not frames.takes_bytes(_LOOK_SECS):
                    options.check()
                    if options.clock() >= until:
                        raise self._silent() from None
                continue
            left = rest_of(left, sent)

    def _reconnect(self, failure: OSError | DamagedFrame | None) -> None:
        """Connect, and send what has not arrived. Raises :class:`HostLost` for a host that has ended, and for damage without end."""
        options = self._options
        failure = self._explained(failure)
        until, backoff = options.clock() + options.retry_secs, _BACKOFF_SECS
        self.reconnections += failure is not None
        while True:
            self._end_connection()
            options.check()
            if isinstance(failure, DamagedFrame):
                self._note_damage(failure)
                until = options.clock() + options.retry_secs
            try:
                self._connect()
                return
            except _FAILURES as error:
                failure = self._explained(error)
            if not isinstance(failure, DamagedFrame) and options.clock() + backoff >= until:
                options.check()  # an attempt that was given up is not a lost host
                raise self._lost(str(failure)) from None
            options.sleep(backoff)
            backoff = min(2 * backoff, _MOST_BACKOFF_SECS)

    def _note_damage(self, failure: DamagedFrame) -> None:
        """Wait after the second damage, one after the other, and longer each time. Raises :class:`HostLost` after the patience."""
        options = self._options
        if not self._damaged:
            self._damaged_since = options.clock()
        self._damaged += 1
        if options.clock() >= self._damaged_since + options.patience_secs:
            raise HostLost("a connection to a host must deliver bytes as they were sent",
                           where=f"from {self._greeting.sender} on {socket.gethostname()} to {self._other} at {self._address}",
                           value=f"{failure.value} ({self._damaged} damaged connections in {options.patience_secs:g} s)",
                           next_step=f"{failure.next_step}; {_NEXT_STEP}")  # fmt: skip
        if self._damaged > 1:
            options.sleep(min(_BACKOFF_SECS * 2.0 ** min(self._damaged - 2, 10), _MOST_BACKOFF_SECS))

    def _explained(self, failure: OSError | DamagedFrame | None) -> OSError | DamagedFrame | None:
        """The failure, or the error that the other host has sent before it ended the stream. Raises :class:`HostLost` for one that lasts."""
        if self._frames is None or isinstance(failure, DamagedFrame) or failure is None:
            return failure
        try:
            while self._frames.has_bytes(_ERROR_SECS):
                self._take_answer(self._frames, self._frames.receive_header())
        except _FAILURES as error:
            return error
        return failure

    def _connect(self) -> None:
        options = self._options
        stream = connect_stream(self._address, _CONNECT_SECS)
        order = FrameOrder(WireProtocol.HOSTS, self._draw_session())
        frames = self._frames = FrameStream(stream, order, stall_secs=options.stall_secs)
        first = self._kept[0].number if self._kept else self._next
        self._send_bytes(frames, frames.write(HostFrame.GREETING, [write_greeting(self._greeting)], number=first))
        until = options.clock() + options.patience_secs
        while not frames.has_bytes(_LOOK_SECS):
            options.check()
            if options.clock() >= until:
                raise self._silent()
        self._take_answer(frames, frames.receive_header())
        for kept in tuple(self._kept):
            self._transmit(frames, kept)

    def _lost(self, reason: str) -> HostLost:
        return HostLost(
            "a host must take what is sent to it", where=str(self._other), value=reason, next_step=_NEXT_STEP
        )

    def _silent(self) -> HostLost:
        return HostLost("a host must answer", where=str(self._other), value=f"silent for {self._options.patience_secs:g} s",
                        next_step=_NEXT_STEP)  # fmt: skip

    def close(self) -> None:
        """End the stream; sends of other threads must have ended."""
        if self._frames is not None:
            with suppress(OSError, DamagedFrame, HostLost):  # the other host finds the end of the connection instead
                self._frames.send(self._frames.write(HostFrame.END), _LOOK_SECS)
                self._read_answers(self._frames)  # unread ones would make the system discard what is on its way
            self._end_connection()

    def _end_connection(self) -> None:
        if self._frames is not None:
            self._frames.socket.close()
            self._frames = None
