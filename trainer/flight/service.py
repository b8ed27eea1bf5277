"""The base of services that stream Arrow data: loopback unless stated otherwise, a token where there is one, errors as documents."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from pyarrow import ArrowException, flight

from trainer.errors import ConfigError
from trainer.flight.addresses import Address, check_token
from trainer.flight.error_documents import to_bytes
from transforms.errors import HeadraceError

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_HEADER = "authorization"


class Service(flight.FlightServerBase):  # type: ignore[misc]
    """A Flight server that answers while its process runs. It serves from its construction on.

    Raises :class:`ConfigError` if the port is in use, or for an address off loopback without a token.
    """

    def __init__(self, address: Address, *, token: str = "") -> None:
        check_token(address, token)
        middleware = {"token": _RequireToken(token)} if token else {}
        try:
            super().__init__(address.uri, middleware=middleware)
        except (ArrowException, OSError) as error:
            raise ConfigError("the address of a service must be free and of this machine", where=str(address),
                              value=str(error).splitlines()[0], next_step="choose another port, or 0 for any") from None  # fmt: skip
        self.address = Address(address.host, self.port)

    def answer(self, work: Callable[[], _T]) -> _T:
        """The result of ``work``; its error goes to the caller as a document."""
        try:
            return work()
        except HeadraceError as error:
            raise flight.FlightServerError(error.what, extra_info=to_bytes(error)) from None
        except Exception as error:
            _LOG.exception("%s failed", type(self).__name__)
            raise flight.FlightServerError(type(error).__name__, extra_info=to_bytes(error)) from None


class _RequireToken(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    def start_call(self, info: Any, headers: Any) -> None:
        """Refuse a call without the token."""
        given = headers.get(_HEADER, [""])[0]
        given = given if isinstance(given, bytes) else str(given).encode()
        if not hmac.compare_digest(given, self._expected):
            raise flight.FlightUnauthenticatedError("the token must be that of the job")
