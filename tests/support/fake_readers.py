"""A reader that answers as a test wants, over real connections."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from trainer.run.reading.unit_frames import UnitFrame
from trainer.wire.flight.addresses import LOOPBACK, Address
from trainer.wire.flight.connections import listen
from trainer.wire.frame_stream import FrameStream
from trainer.wire.framed_service import FramedService, FramedStreams
from trainer.wire.frames import FrameHeader, WireProtocol

_SECS = 30.0


class FakeReader:
    """Answers a status as a reader does, and each request of a unit by ``answer``, which sends what it likes.

    ``answer`` returns whether the connection goes on.
    """

    def __init__(self, answer: Callable[[FrameStream], bool]) -> None:
        self._answer, self._lock = answer, threading.Lock()
        self.asked = 0
        self._listening = listen(LOOPBACK)
        self.address = Address(*self._listening.getsockname()[:2])
        streams = FramedStreams(WireProtocol.UNITS, UnitFrame.ERROR, "host", most=64)
        self._service = FramedService(self._listening, streams, self._serve)

    def _serve(self, frames: FrameStream, until_secs: float) -> None:
        while (frame := frames.receive_header()) is not None:
            frames.receive_new_body(frame)
            if frame.kind == UnitFrame.STATUS:
                frames.send_frame(UnitFrame.STATUS, [b"{}"], _SECS)
            elif frame.kind == UnitFrame.UNIT:
                with self._lock:
                    self.asked += 1
                if not self._answer(frames):
                    return

    def close(self) -> None:
        """Stop answering."""
        self._service.close()
        self._listening.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def send_whole(content: bytes) -> Callable[[FrameStream], bool]:
    """Answer with these bytes as a unit."""

    def answer(frames: FrameStream) -> bool:
        frames.send_frame(UnitFrame.UNIT, [content], _SECS)
        return True

    return answer


def announce(size_bytes: int, content: bytes = b"", *, is_endless: bool = False) -> Callable[[FrameStream], bool]:
    """Announce a unit of some bytes, send other ones, once or without end, and end the connection."""

    def answer(frames: FrameStream) -> bool:
        session, sequence = frames.next_place
        header = FrameHeader(
            WireProtocol.UNITS, UnitFrame.UNIT, size_bytes, body_checksum=1, session=session, sequence=sequence
        )
        frames.send([header.to_bytes()], _SECS)
        if content:
            frames.send([content], _SECS)
        while is_endless:
            frames.send([content], _SECS)
        return False

    return answer
