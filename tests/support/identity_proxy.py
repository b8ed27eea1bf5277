"""A reverse proxy that knows its users, as an identity proxy beside the pages does: it takes the header of users away from clients, and sets it."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.processes import PATIENCE_SECS
from tests.support.served_in_thread import served_in_thread

#: What a client presents to the proxy instead of a login: the name of a pass.
PASS = "X-Pass"


@contextmanager
def identity_proxy(upstream: int, header: str, users: Mapping[str, str]) -> Iterator[int]:
    """The port of a proxy of the server at ``upstream``; ``users``: of each pass. A request without a known pass gets 401."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._pass_on()

        def do_POST(self) -> None:
            self._pass_on()

        def _pass_on(self) -> None:
            user = users.get(self.headers.get(PASS, ""))
            if user is None:
                self.send_error(401)
                return
            kept = [
                (name, value)
                for name, value in self.headers.items()
                if name.lower() not in (header.lower(), PASS.lower())
            ]
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            inner = http.client.HTTPConnection("127.0.0.1", upstream, timeout=PATIENCE_SECS)
            try:
                inner.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in [*kept, (header, user)]:
                    inner.putheader(name, value)
                inner.endheaders(body or None)
                answer = inner.getresponse()
                content = answer.read()
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)
            finally:
                inner.close()

        def log_message(self, *given: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with served_in_thread(server):
        yield server.server_port
