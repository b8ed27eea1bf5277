"""Calls of services, with a limit of time and of size, whose errors are ours."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TypeVar

from pyarrow import ArrowException, flight

from trainer.errors import DamagedFrame
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.error_documents import BadAnswer, RemoteError, Unreachable, from_bytes
from trainer.wire.flight.sealed_actions import open_error, open_results, seal_request
from transforms.errors import DataError, HeadraceError, InputError

_T = TypeVar("_T")
MOST_MESSAGE_BYTES = 4 << 20
#: How gRPC says that a service refuses a message because of its size.
_TOO_LONG = "larger than max"
#: Between calls, each over a new connection, of which damaged bytes may be the cause that the service has refused them.
_PAUSES_SECS = (0.02, 0.1, 0.3)
_SESSION_BITS = 62
#: The results of an action, one by one.
Take = Callable[[Iterator[memoryview]], _T]


class _Failed(Exception):
    """A call has failed; ``is_refused``: by bytes that the service has not understood, or that are not signed by a checksum."""

    def __init__(self, error: HeadraceError, *, is_refused: bool) -> None:
        self.error, self.is_refused = error, is_refused


class Client:
    """A connection to one service, which any thread may use.

    ``most_bytes``: the longest message that it accepts; gRPC refuses a longer one before it takes memory for it.
    """

    def __init__(self, address: Address, *, token: str = "", most_bytes: int = MOST_MESSAGE_BYTES) -> None:
        self.address, self._most_bytes = address, most_bytes
        self._headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        self._lock = threading.Lock()
        self._client = self._connected()

    def _connected(self) -> flight.FlightClient:
        """A client with a connection of its own."""
        options = [("grpc.max_receive_message_length", self._most_bytes), ("grpc.initial_reconnect_backoff_ms", 50),
                   ("grpc.max_reconnect_backoff_ms", 500), ("grpc.use_local_subchannel_pool", 1)]  # fmt: skip
        return flight.FlightClient(self.address.uri, generic_options=options)

    def act(
        self, name: str, content: bytes, take: Take[_T], *, timeout_secs: float | None, repeats: bool = False
    ) -> _T:
        """``take`` with the results of an action, which are checked.

        A request whose bytes were damaged is made again a few times. ``repeats``: one whose answer was damaged, too; else it may have been
        made, and raises. ``take`` is called again then.

        Raises as :meth:`call`, and :class:`DamagedFrame`.
        """

        def work(connection: flight.FlightClient, options: flight.FlightCallOptions) -> _T:
            session = secrets.randbits(_SESSION_BITS)
            request = flight.Action(name, seal_request(name, content, session))
            with closing(connection.do_action(request, options)) as results:
                return take(open_results((one.body for one in results), session))

        for pause_secs in _PAUSES_SECS:
            try:
                return self._call_once(work, timeout_secs)
            except _Failed as failed:
                if not failed.is_refused and not (repeats and isinstance(failed.error, DamagedFrame)):
                    raise failed.error from None
            time.sleep(pause_secs)
        return self.call(work, timeout_secs=timeout_secs)

    def call(
        self, work: Callable[[flight.FlightClient, flight.FlightCallOptions], _T], *, timeout_secs: float | None
    ) -> _T:
        """``work`` with Flight's client and options.

        Raises :class:`Unreachable`, also for a message above the limit, :class:`RemoteError`, :class:`InputError` for a refused
        token, :class:`BadAnswer` for a message that is not Arrow's, and :class:`DataError` for one that is too long for the service.
        """
        try:
            return self._call_once(work, timeout_secs)
        except _Failed as failed:
            raise failed.error from None

    def _call_once(
        self, work: Callable[[flight.FlightClient, flight.FlightCallOptions], _T], timeout_secs: float | None
    ) -> _T:
        """As :meth:`call`. Raises :class:`_Failed`; the next call is made over another connection, since this one may be damaged."""
        options, client = flight.FlightCallOptions(timeout=timeout_secs, headers=self._headers), self._client
        try:
            return work(client, options)
        except DamagedFrame as error:
            self._renew(client)
            raise _Failed(error, is_refused=False) from None
        except (ArrowException, OSError) as error:
            found = self._explained(error)
            if isinstance(found, RemoteError):
                raise _Failed(found, is_refused=DamagedFrame.__name__ in found.kinds) from None
            self._renew(client)
            raise _Failed(found, is_refused=not isinstance(found, Unreachable | DamagedFrame)) from None

    def _renew(self, client: flight.FlightClient) -> None:
        """Connect again, unless another thread has; calls of others go on over the earlier connection."""
        with self._lock:
            if self._client is client:
                self._client = self._connected()

    def _explained(self, error: Exception) -> HeadraceError:
        where, first_line = str(self.address), (str(error).splitlines() or [type(error).__name__])[0]
        if isinstance(error, flight.FlightUnauthenticatedError):
            return InputError("the token must be that of the job", where=where, next_step="give the job's --token-file")
        content = getattr(error, "extra_info", b"")
        if content:
            try:
                return from_bytes(open_error(content), where)
            except (BadAnswer, DamagedFrame) as damaged:
                return damaged
        if _TOO_LONG in str(error):
            return DataError("a message must be short", where=where, value=first_line)
        if isinstance(error, flight.FlightError):
            # A message above the limit ends as a cancelled call, as does one of a service that is ending.
            return Unreachable("a service must answer", where=where, value=first_line,
                               allowed=f"messages of at most {self._most_bytes:,} bytes",
                               next_step="see the log of its process")  # fmt: skip
        return BadAnswer("a message must be one of Arrow", where=where, value=first_line)

    def close(self) -> None:
        """End the connection."""
        self._client.close()


__all__ = ["BadAnswer", "Client", "RemoteError", "Unreachable"]
