"""Calls of services, with a limit of time and of size, whose errors are ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyarrow import ArrowException, flight

from trainer.flight.addresses import Address
from trainer.flight.error_documents import BadAnswer, RemoteError, Unreachable, from_bytes
from transforms.errors import DataError, HeadraceError, InputError

_T = TypeVar("_T")
MOST_MESSAGE_BYTES = 4 << 20
#: How gRPC says that a service refuses a message because of its size.
_TOO_LONG = "larger than max"


class Client:
    """A connection to one service, which any thread may use.

    ``most_bytes``: the longest message that it accepts; gRPC refuses a longer one before it takes memory for it.
    """

    def __init__(self, address: Address, *, token: str = "", most_bytes: int = MOST_MESSAGE_BYTES) -> None:
        self.address, self._most_bytes = address, most_bytes
        options = [("grpc.max_receive_message_length", most_bytes), ("grpc.initial_reconnect_backoff_ms", 50),
                   ("grpc.max_reconnect_backoff_ms", 500)]  # fmt: skip
        self._headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        self._client = flight.FlightClient(address.uri, generic_options=options)

    def call(
        self, work: Callable[[flight.FlightClient, flight.FlightCallOptions], _T], *, timeout_secs: float | None
    ) -> _T:
        """``work`` with Flight's client and options.

        Raises :class:`Unreachable`, also for a message above the limit, :class:`RemoteError`, :class:`InputError` for a refused
        token, :class:`BadAnswer` for a damaged message, and :class:`DataError` for one that is too long for the service.
        """
        options = flight.FlightCallOptions(timeout=timeout_secs, headers=self._headers)
        try:
            return work(self._client, options)
        except (ArrowException, OSError) as error:
            raise self._explained(error) from None

    def _explained(self, error: Exception) -> HeadraceError:
        where, first_line = str(self.address), (str(error).splitlines() or [type(error).__name__])[0]
        if isinstance(error, flight.FlightUnauthenticatedError):
            return InputError("the token must be that of the job", where=where, next_step="give the job's --token-file")
        content = getattr(error, "extra_info", b"")
        if content:
            try:
                return from_bytes(content, where)
            except BadAnswer as damaged:
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
