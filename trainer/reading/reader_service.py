"""A reader as a Flight service: a ticket is a :class:`UnitRequest`, the answer its columns.

It is stateless: any reader of a job serves any unit, with the same values, so a host asks another one when it ends.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow import flight

from trainer.flight.addresses import Address
from trainer.flight.client import Client
from trainer.flight.service import Service
from trainer.reading.unit_reader import UnitReader
from trainer.reading.unit_requests import UnitRequest
from transforms.errors import DataError

STATUS = "status"


class ReaderService(Service):
    """Serves the units of a :class:`UnitReader`."""

    def __init__(
        self, address: Address, reader: UnitReader, *, token: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._reader, self._clock = reader, clock
        self._lock = threading.Lock()
        self._units = self._rows = self._bytes = 0
        self._busy_secs = 0.0
        super().__init__(address, token=token)

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.RecordBatchStream:
        """The columns of a unit."""
        return flight.RecordBatchStream(self.answer(lambda: self._unit(ticket.ticket)))

    def _unit(self, ticket: bytes) -> pa.Table:
        request = UnitRequest.from_bytes(ticket)
        began = self._clock()
        table = self._reader.read(request)
        with self._lock:
            self._units += 1
            self._rows += table.num_rows
            self._bytes += table.nbytes
            self._busy_secs += self._clock() - began
        return table

    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        """The counts of what was served, for ``status``."""
        return self.answer(lambda: [self._status(action.type)])

    def _status(self, kind: str) -> bytes:
        if kind != STATUS:
            raise DataError("an action of a reader must be a known one", value=kind, allowed=STATUS)
        with self._lock:
            status = {"units": self._units, "rows": self._rows, "bytes": self._bytes, "busy_secs": self._busy_secs}
        return json.dumps(status).encode()


def fetch_unit(client: Client, request: UnitRequest, *, timeout_secs: float) -> pa.Table:
    """The columns of a unit from one reader, validated as Arrow data.

    Raises what :meth:`Client.call` raises, and :class:`DataError` for columns that are not sound.
    """

    def get(connection: flight.FlightClient, options: flight.FlightCallOptions) -> pa.Table:
        # Not read_all: it takes a call that gRPC cancels, as for a message above the limit, for an interrupt of the process.
        stream = connection.do_get(flight.Ticket(request.to_bytes()), options)
        return pa.Table.from_batches([chunk.data for chunk in stream], stream.schema)

    table = client.call(get, timeout_secs=timeout_secs)
    try:
        table.validate()
    except pa.ArrowInvalid as error:
        raise DataError("the columns of a unit must be sound Arrow data", where=f"{client.address}, fragment {request.fragment}",
                        value=str(error).splitlines()[0]) from None  # fmt: skip
    if table.num_rows > request.rows:
        raise DataError("a unit must not have more events than were asked for",
                        where=f"{client.address}, fragment {request.fragment}", value=table.num_rows,
                        allowed=f"{request.rows} at most")  # fmt: skip
    return table
