"""The endpoint ``/metrics`` of a process: it is bound before the work begins, and served by a thread.

A process that forks may bind it and serve it in its child: the address stays the same over all children. Imports ``prometheus_client`` (the
extra ``metrics``).
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
from dataclasses import replace
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app

from headrace.metrics.address import MetricsAddress
from headrace.metrics.exposition import RegistryCollector
from transforms.errors import InputError
from transforms.metrics.registry import Registry

_LOG = logging.getLogger(__name__)
#: Requests at once, whose connections have a thread each; more are closed unread.
_MOST_REQUESTS = 16
#: A request's bytes must come within it, one after the other.
_SILENCE_SECS = 10.0


class Endpoint:
    """A bound address at which a process serves its metrics, from :meth:`serve` on until the end of the context.

    Args:
        address: where it listens.
        is_anonymous: the names of clients are hashed.

    Attributes:
        address: with the port that the system has chosen.

    Raises :class:`InputError` for an address that is taken, or that this machine does not have.
    """

    def __init__(self, address: MetricsAddress, *, is_anonymous: bool = False) -> None:
        self._is_anonymous = is_anonymous
        self._thread: threading.Thread | None = None
        try:
            self._server = _Server((address.host, address.port), _Handler)
        except OSError as error:
            raise InputError("metrics cannot be served at this address", where="--metrics-address",
                             value=f"{address}: {error}", allowed="a free port, 0 to 65535; 0 lets the system choose",
                             next_step="give another port") from error  # fmt: skip
        self.address = replace(address, port=self._server.server_port)

    def serve(self, registry: Registry) -> None:
        """Answer scrapes with what the sources of the registry give then."""
        served = CollectorRegistry()
        served.register(RegistryCollector(registry, is_anonymous=self._is_anonymous))
        ProcessCollector(registry=served)
        self._server.set_app(make_wsgi_app(served))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more, and free the address."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self._places = threading.BoundedSemaphore(_MOST_REQUESTS)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without a look-up of the host's name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, OSError):  # the client has ended the connection
            _LOG.info("a request for metrics ended: %s", error)
        else:
            super().handle_error(request, client_address)


class _Handler(WSGIRequestHandler):
    timeout = _SILENCE_SECS

    def log_message(self, format: str, *args: Any) -> None:
        _LOG.debug("%s", ascii(format % args))
