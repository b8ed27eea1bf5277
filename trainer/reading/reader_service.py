"""A reader as a Flight service: an action with a :class:`UnitRequest` is answered with the packed bytes of the unit.

It is stateless: any reader of a job serves any unit, with the same values, so a host asks another one when it ends.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyarrow import flight

from trainer.flight.addresses import Address
from trainer.flight.client import Client
from trainer.flight.error_documents import Unreachable
from trainer.flight.service import Service
from trainer.reading.packed_units import PackedUnit
from trainer.reading.unit_reader import UnitReader
from trainer.reading.unit_requests import UnitRequest
from transforms.errors import DataError

STATUS, UNIT = "status", "unit"
#: The speed in a status is that of about this time.
_SPEED_SECS = 10.0
#: Called with a unit's bytes before they are received: waits for space, and returns whether the unit is still wanted.
Admit = Callable[[int], bool]


class ReaderService(Service):
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
        super().__init__(address, token=token)

    def do_action(self, context: Any, action: flight.Action) -> Iterator[pa.Buffer]:
        """The bytes of a unit, after their number as 8 bytes; or the counts of what was served."""
        return self.answer(lambda: self._act(action))

    def _act(self, action: flight.Action) -> Iterator[pa.Buffer]:
        if action.type == STATUS:
            return iter([pa.py_buffer(json.dumps(self.status()).encode())])
        if action.type != UNIT:
            raise DataError("an action of a reader must be a known one", value=action.type, allowed=f"{STATUS}, {UNIT}")
        self._enter()
        try:
            return self._sent(self._packed(UnitRequest.from_bytes(action.body.to_pybytes())))
        except BaseException:
            self._exit()
            raise

    def _packed(self, request: UnitRequest) -> pa.Buffer:
        with self._reads:
            began = self._clock()
            content, rows = self._reader.pack(request)
            now = self._clock()
        with self._changed:
            self._units += 1
            self._rows += rows
            self._bytes += content.nbytes
            self._busy_secs += now - began
            self._marks.append((now, self._rows))
            while len(self._marks) > 2 and self._marks[1][0] < now - _SPEED_SECS:
                self._marks.pop(0)
        return pa.py_buffer(content)

    def _sent(self, content: pa.Buffer) -> Iterator[pa.Buffer]:
        return _Sending(content, self._exit)

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

    def leave(self, timeout_secs: float) -> bool:
        """Refuse new units and wait until the current ones are sent; returns whether they are."""
        with self._changed:
            self._leaving = True
            return self._changed.wait_for(lambda: not self._active, timeout_secs)


class _Sending(Iterator[pa.Buffer]):
    """The messages of a unit; ``done`` is called once, when they are sent or the call ends without."""

    def __init__(self, content: pa.Buffer, done: Callable[[], None]) -> None:
        self._messages = iter([pa.py_buffer(content.size.to_bytes(8, "little")), content])
        self._done: Callable[[], None] | None = done

    def __next__(self) -> pa.Buffer:
        try:
            return next(self._messages)
        except StopIteration:
            self._end()
            raise

    def _end(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done()

    def __del__(self) -> None:
        with suppress(Exception):  # the interpreter may be ending
            self._end()


def fetch_unit(
    client: Client, request: UnitRequest, *, timeout_secs: float, admit: Admit = lambda size: True
) -> PackedUnit | None:
    """The bytes of a unit from one reader; None if ``admit`` refuses them.

    Raises what :meth:`Client.call` raises, and :class:`DataError` for an answer that is not one unit.
    """

    def get(connection: flight.FlightClient, options: flight.FlightCallOptions) -> PackedUnit | None:
        messages = iter(connection.do_action(flight.Action(UNIT, request.to_bytes()), options))
        size = int.from_bytes(_next(messages, request).body.to_pybytes()[:8], "little")
        if not admit(size):
            return None
        content = _next(messages, request).body
        if content.size != size or next(messages, None) is not None:
            raise DataError("a unit must have the length that was announced", where=f"{client.address}, fragment {request.fragment}",
                            value=content.size, allowed=str(size))  # fmt: skip
        return PackedUnit.of(content)

    return client.call(get, timeout_secs=timeout_secs)


def _next(messages: Iterator[flight.Result], request: UnitRequest) -> flight.Result:
    found = next(messages, None)
    if found is None:
        raise DataError("a reader must send a whole unit", where=f"fragment {request.fragment}")
    return found
