"""Where a host gets its units from: a reader in its own process, or one behind an address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from trainer.run.reading.packed_units import Delivered
from trainer.run.reading.reader_service import CHUNK_BYTES, MOST_UNIT_BYTES, STATUS, Admit, fetch_unit
from trainer.run.reading.unit_reader import UnitReader
from trainer.run.reading.unit_requests import UnitRequest
from trainer.wire.flight.action_service import FRAME_BYTES
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.client import Client

#: The name of the reader in the host's own process.
LOCAL = "local"


class Fetcher(Protocol):
    """A reader as its host sees it; several threads may use it at once."""

    def fetch(self, request: UnitRequest, admit: Admit) -> Delivered | None:
        """The columns of a unit, or None if ``admit`` returns false.

        Raises :class:`~trainer.wire.flight.error_documents.Unreachable` if the reader may be gone, and what reading raises.
        """

    def probe(self) -> None:
        """Raise :class:`~trainer.wire.flight.error_documents.Unreachable` unless the reader answers within a second."""

    def close(self) -> None:
        """End the connection; calls under way fail or end by themselves."""


#: Makes the fetcher of a reader by its name, which is its address unless it is :data:`LOCAL`.
Connect = Callable[[str], Fetcher]


class LocalFetcher:
    """Units of a :class:`UnitReader` in this process."""

    def __init__(self, reader: UnitReader) -> None:
        self._reader = reader

    def fetch(self, request: UnitRequest, admit: Admit) -> Delivered | None:
        """The columns of a unit as they were read, without a copy."""
        columns = self._reader.read(request)
        return columns if admit(columns.size_bytes) else None

    def probe(self) -> None:
        """A reader in this process always answers."""

    def close(self) -> None:
        """There is no connection."""


class RemoteFetcher:
    """Units of a reader behind an address.

    ``most_bytes``: of a unit.
    """

    def __init__(
        self, address: str, *, token: str = "", timeout_secs: float = 60.0, most_bytes: int = MOST_UNIT_BYTES
    ) -> None:
        self._client = Client(Address.parse(address), token=token, most_bytes=CHUNK_BYTES + FRAME_BYTES)
        self._timeout_secs, self._most_bytes = timeout_secs, most_bytes

    def fetch(self, request: UnitRequest, admit: Admit) -> Delivered | None:
        """The bytes of a unit; the time for it includes a wait for space."""
        return fetch_unit(
            self._client, request, timeout_secs=self._timeout_secs, admit=admit, most_bytes=self._most_bytes
        )

    def probe(self) -> None:
        """Ask for the reader's status."""
        self._client.act(STATUS, b"", list, timeout_secs=1.0, repeats=True)

    def close(self) -> None:
        """End the connection."""
        self._client.close()
