"""A reader as a Flight service: an action with a :class:`UnitRequest` is answered with the packed bytes of the unit, in chunks.

It is stateless: any reader of a job serves any unit, with the same values, so a host asks another one when it ends.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from trainer.run.reading.packed_units import PackedUnit
from trainer.run.reading.reader_metrics import reader_families
from trainer.run.reading.unit_reader import UnitReader
from trainer.run.reading.unit_requests import MOST_REQUEST_BYTES, UnitRequest
from trainer.wire.flight.action_service import ActionService, Bytes
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.client import Client
from trainer.wire.flight.error_documents import BadAnswer, Unreachable
from transforms.arrays import Array
from transforms.errors import DataError
from transforms.log_fields import log_fields
from transforms.metrics.families import Family
from transforms.metrics.instruments import Histogram
from transforms.tracing.spans import span

STATUS, UNIT = "status", "unit"
#: A unit is sent in messages of this length, since the memory for longer ones is mapped again each time.
CHUNK_BYTES = 1 << 20
#: The length of a unit in the first message, before its bytes, and the longest unit that is accepted.
_SIZE_BYTES = 8
MOST_UNIT_BYTES = 1 << 30
#: The speed in a status is that of about this time.
_SPEED_SECS = 10.0
#: Called with a unit's bytes before they are received: waits for space, and returns whether the unit is still wanted.
Admit = Callable[[int], bool]


class ReaderService(ActionService):
    """Serves the units of a :class:`UnitReader`.

    ``most_units``: the units that are read and packed at once; more wait. Packed units are in memory until their hosts have
    received them, which are as many as hosts have in flight.
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
        super().__init__(address, self._act, token=token, most_bytes=MOST_REQUEST_BYTES)

    def _act(self, name: str, content: bytes) -> Iterator[Bytes]:
        """The length of a unit and its bytes; or the counts of what was served."""
        if name == STATUS:
            return iter([json.dumps(self.status()).encode()])
        if name == UNIT:
            return self._unit(content)
        raise DataError("an action of a reader must be a known one", value=name[:80], allowed=f"{STATUS}, {UNIT}")

    def _unit(self, content: bytes) -> Iterator[Bytes]:
        self._enter()
        try:
            unit = self._packed(UnitRequest.from_bytes(content))
            yield len(unit).to_bytes(_SIZE_BYTES, "little")
            for at in range(0, len(unit), CHUNK_BYTES):
                yield unit[at : at + CHUNK_BYTES]
        finally:  # also when the call ends before all is sent
            self._exit()

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

    def _enter(self) -> None:
        with self._changed:
            if self._leaving:
                raise Unreachable("a reader that is asked for units must not be leaving", where=str(self.address),
                                  next_step="ask another reader")  # fmt: skip
            self._active += 1

    def _exit(self) -> None:
        with self._changed:
            self._active -= 1
            self._changed.notify_all()

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


def fetch_unit(
    client: Client,
    request: UnitRequest,
    *,
    timeout_secs: float,
    admit: Admit = lambda size: True,
    most_bytes: int = MOST_UNIT_BYTES,
) -> PackedUnit | None:
    """The bytes of a unit from one reader; None if ``admit`` refuses them.

    ``most_bytes``: of a unit. Memory is taken for a unit once it is admitted, and never more than was announced.
    Raises what :meth:`Client.act` raises, and :class:`BadAnswer` for an answer that is not one unit.
    """
    where = f"{client.address}, fragment {request.fragment}"

    def take(chunks: Iterator[memoryview]) -> PackedUnit | None:
        size = _announced(next(chunks, b""), most_bytes, where)
        return PackedUnit.of(_received(chunks, size, where)) if admit(size) else None

    return client.act(UNIT, request.to_bytes(), take, timeout_secs=timeout_secs)


def _announced(content: Any, most_bytes: int, where: str) -> int:
    """The length of a unit."""
    found = bytes(memoryview(content)[: _SIZE_BYTES + 1])
    size = int.from_bytes(found, "little")
    if len(found) != _SIZE_BYTES or size > most_bytes:
        raise BadAnswer("a reader must announce the length of a unit", where=where, value=size,
                        allowed=f"at most {most_bytes:,} in {_SIZE_BYTES} bytes")  # fmt: skip
    return size


def _received(chunks: Iterator[Any], size: int, where: str) -> Array:
    """The bytes of a unit of ``size`` bytes."""
    content, at = np.empty(size, np.uint8), 0
    for chunk in chunks:
        part = np.frombuffer(chunk, np.uint8)
        if not 0 < len(part) <= size - at:
            raise BadAnswer("a unit must have the length that was announced", where=where, value=f"at least {at + len(part)}",
                            allowed=str(size))  # fmt: skip
        content[at : at + len(part)] = part
        at += len(part)
    if at != size:
        raise BadAnswer("a reader must send a whole unit", where=where, value=f"{at} bytes", allowed=str(size))
    return content
