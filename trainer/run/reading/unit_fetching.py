"""Where a host gets its units from: a reader in its own process, or one behind an address."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from trainer.errors import DamagedFrame
from trainer.run.reading.packed_units import Delivered
from trainer.run.reading.reader_link import Admit, ReaderLink
from trainer.run.reading.unit_frames import MOST_UNIT_BYTES
from trainer.run.reading.unit_reader import UnitReader
from trainer.run.reading.unit_requests import UnitRequest
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.error_documents import RemoteError, Unreachable

_T = TypeVar("_T")
#: The name of the reader in the host's own process.
LOCAL = "local"
#: Between requests whose bytes were damaged.
_PAUSES_SECS = (0.02, 0.1, 0.3)
_PROBE_SECS = 1.0


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
    """Units of a reader behind an address, over a connection for each thread that fetches at once.

    A request without an answer is made again over another connection: at once if the earlier one had ended meanwhile, and a few times if
    bytes were damaged.

    Args:
        address: of the reader.
        token: of the job.
        timeout_secs: for a unit, a wait for space included.
        most_bytes: of a unit.
    """

    def __init__(
        self, address: str, *, token: str = "", timeout_secs: float = 60.0, most_bytes: int = MOST_UNIT_BYTES
    ) -> None:
        self._address, self._token = Address.parse(address), token
        self._timeout_secs, self._most_bytes = timeout_secs, most_bytes
        self._lock = threading.Lock()
        self._idle, self._used = list[ReaderLink](), set[ReaderLink]()
        self._closed = False

    def fetch(self, request: UnitRequest, admit: Admit) -> Delivered | None:
        """The bytes of a unit.

        Raises :class:`~trainer.wire.flight.error_documents.Unreachable`, :class:`~trainer.wire.flight.error_documents.BadAnswer`,
        :class:`DamagedFrame`, and the reader's own error as :class:`~trainer.wire.flight.error_documents.RemoteError`.
        """
        secs, most = self._timeout_secs, self._most_bytes
        return self._call(lambda link: link.unit(request, admit, timeout_secs=secs, most_bytes=most), secs)

    def probe(self) -> None:
        """Ask for the reader's status."""
        self._call(lambda link: link.status(_PROBE_SECS), _PROBE_SECS)

    def _call(self, use: Callable[[ReaderLink], _T], timeout_secs: float) -> _T:
        """What ``use`` returns of a link, which is kept for the next call unless that is None."""
        pauses_secs = iter(_PAUSES_SECS)
        try:
            while True:
                link, is_new = self._take(timeout_secs)
                found = None
                try:
                    found = use(link)
                    return found
                except (OSError, DamagedFrame, RemoteError) as error:
                    pause_secs = None if link.is_answered else _pause_secs(error, is_new, pauses_secs)
                    if pause_secs is None:
                        raise
                finally:
                    self._put_back(link, is_sound=found is not None)
                time.sleep(pause_secs)
        except OSError as error:
            raise Unreachable("a reader must answer", where=str(self._address), value=str(error) or type(error).__name__,
                              next_step="see the log of its process") from None  # fmt: skip

    def _take(self, timeout_secs: float) -> tuple[ReaderLink, bool]:
        """A link that no thread uses, and whether it is new. Raises OSError."""
        with self._lock:
            if self._closed:
                raise ConnectionError("the connection was closed")
            link = self._idle.pop() if self._idle else None
            if link is not None:
                self._used.add(link)
                return link, False
        link = ReaderLink(self._address, self._token, timeout_secs)
        with self._lock:
            self._used.add(link)
        return link, True

    def _put_back(self, link: ReaderLink, *, is_sound: bool) -> None:
        with self._lock:
            self._used.discard(link)
            if is_sound and not self._closed:
                self._idle.append(link)
                return
        link.close()

    def close(self) -> None:
        """End the connections."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for link in self._used:
                link.end()
        for link in idle:
            link.close()


def _pause_secs(
    error: OSError | DamagedFrame | RemoteError, is_new: bool, pauses_secs: Iterator[float]
) -> float | None:
    """The wait before a request without an answer is made again; None: it is not."""
    if isinstance(error, OSError):
        return None if is_new or isinstance(error, TimeoutError) else 0.0
    is_damage = isinstance(error, DamagedFrame) or DamagedFrame.__name__ in error.kinds
    return next(pauses_secs, None) if is_damage else None
