"""A reader as a service of framed streams: a :class:`UnitRequest` is answered with the packed bytes of the unit.

It is stateless: any reader of a job serves any unit, with the same values, so a host asks another one when it ends.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from trainer.run.reading.reader_metrics import reader_families
from trainer.run.reading.unit_frames import UnitFrame, check_greeting, check_request
from trainer.run.reading.unit_reader import UnitReader
from trainer.run.reading.unit_requests import UnitRequest
from trainer.wire.flight.addresses import Address, check_token, is_token
from trainer.wire.flight.connections import listen
from trainer.wire.flight.error_documents import Unreachable, in_one_line, to_bytes
from trainer.wire.frame_stream import FrameStream
from trainer.wire.framed_service import FramedService, FramedStreams
from trainer.wire.frames import Bytes, WireProtocol
from transforms.errors import HeadraceError, InputError
from transforms.log_fields import log_fields
from transforms.metrics.families import Family
from transforms.metrics.instruments import Histogram
from transforms.tracing.spans import span

_LOG = logging.getLogger(__name__)
#: Connections at once; more are closed unread. A host has as many to a reader as units that it receives at once.
_MOST_CONNECTIONS = 2048
#: How long a host may take to receive an answer, a wait for space in its buffer included.
_ANSWER_SECS = 60.0
#: The speed in a status is that of about this time.
_SPEED_SECS = 10.0


class ReaderService:
    """Serves the units of a :class:`UnitReader` from its construction until :meth:`close`.

    Packed units are in memory until their hosts have received them, which are as many as hosts have in flight.

    Args:
        address: where to listen; port 0 lets the system choose one.
        reader: reads and packs the units.
        token: that a host must have; empty for none.
        most_units: the units that are read and packed at once; more wait.

    Raises :class:`ConfigError` if the port is in use, or for an address off loopback without a token.
    """

    def __init__(
        self,
        address: Address,
        reader: UnitReader,
        *,
        token: str = "",
        most_units: int = 4,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader, self._clock = reader, clock
        self._reads = threading.Semaphore(most_units)
        self._changed = threading.Condition()
        self._leaving = False
        self._active = self._units = self._rows = self._bytes = 0
        self._busy_secs = 0.0
        self._marks = [(clock(), 0)]
        self._unit_times, self._queue_times = Histogram(clock=clock), Histogram(clock=clock)
        check_token(address, token)
        self._token = token
        self._listening = listen(address)
        self.address = Address(address.host, self._listening.getsockname()[1])
        streams = FramedStreams(WireProtocol.UNITS, UnitFrame.ERROR, "host", most=_MOST_CONNECTIONS)
        self._service = FramedService(self._listening, streams, self._serve)

    def _serve(self, frames: FrameStream, until_secs: float) -> None:
        """Answer the requests of one connection, one after the other."""
        self._await_greeting(frames, until_secs)
        while (frame := frames.receive_header()) is not None:
            kind = check_request(frame)
            content = frames.receive_new_body(frame)
            if kind is UnitFrame.STATUS:
                self._send(frames, kind, json.dumps(self.status()).encode())
            else:
                self._answer(frames, content)

    def _await_greeting(self, frames: FrameStream, until_secs: float) -> None:
        greeting = frames.receive_new_body(check_greeting(frames.receive_header(until_secs)), until_secs)
        if not is_token(bytes(greeting), self._token):
            raise InputError("the token must be that of the job", next_step="give the job's --token-file")

    def _answer(self, frames: FrameStream, content: Bytes) -> None:
        """Send a unit, or the error in its place."""
        with self._changed:
            self._active += 1
        try:
            self._send(frames, *self._unit(content))
        finally:  # also when the connection ends before all is sent
            with self._changed:
                self._active -= 1
                self._changed.notify_all()

    def _unit(self, content: Bytes) -> tuple[UnitFrame, Bytes]:
        """The answer to the request of a unit."""
        try:
            if self._leaving:
                raise Unreachable("a reader that is asked for units must not be leaving", where=str(self.address),
                                  next_step="ask another reader")  # fmt: skip
            return UnitFrame.UNIT, self._packed(UnitRequest.from_bytes(bytes(content)))
        except HeadraceError as error:
            _LOG.info("a unit was refused: %s", in_one_line(error))
            return UnitFrame.ERROR, to_bytes(error)
        except Exception as error:
            _LOG.exception("a unit failed")
            return UnitFrame.ERROR, to_bytes(error)

    def _send(self, frames: FrameStream, kind: UnitFrame, body: Bytes) -> None:
        frames.send_frame(kind, [body], _ANSWER_SECS)

    def _packed(self, request: UnitRequest) -> memoryview:
        arrived = self._clock()
        with (
            self._reads,
            log_fields(fragment=request.fragment, unit=request.number),
            span("unit", number=request.number),
        ):
            began = self._clock()
            content, rows = self._reader.pack(request)
            now = self._clock()
        self._queue_times.observe(began - arrived)
        self._unit_times.observe(now - began)
        with self._changed:
            self._units += 1
            self._rows += rows
            self._bytes += content.nbytes
            self._busy_secs += now - began
            self._marks.append((now, self._rows))
            while len(self._marks) > 2 and self._marks[1][0] < now - _SPEED_SECS:
                self._marks.pop(0)
        return content.data

    def status(self) -> dict[str, Any]:
        """What was served, what is being served, and the speed of the last seconds in rows."""
        with self._changed:
            (since, rows), now = self._marks[0], self._clock()
            return {
                "units": self._units,
                "rows": self._rows,
                "bytes": self._bytes,
                "busy_secs": self._busy_secs,
                "rows_per_sec": (self._rows - rows) / max(now - since, 1e-9),
                "active": self._active,
                "leaving": self._leaving,
            }

    def families(self) -> tuple[Family, ...]:
        """The metrics of the reader."""
        return reader_families(self.status(), self._unit_times.reading(), self._queue_times.reading())

    def leave(self, timeout_secs: float) -> bool:
        """Refuse new units and wait until the current ones are sent; returns whether they are."""
        with self._changed:
            self._leaving = True
            return self._changed.wait_for(lambda: not self._active, timeout_secs)

    def close(self) -> None:
        """Stop answering; connections end."""
        self._service.close()
        self._listening.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
