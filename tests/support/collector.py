"""A collector of OpenTelemetry's spans, in a thread: what it was sent, in the JSON of OTLP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.served_in_thread import served_in_thread


class Collector:
    """``status``: of its answers."""

    def __init__(self, status: int = 200) -> None:
        self.documents: list[dict[str, Any]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.path == "/v1/traces"
                assert self.headers["Content-Type"] == "application/json"
                owner.documents.append(json.loads(content))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @property
    def spans(self) -> list[dict[str, Any]]:
        """All spans that it was sent."""
        return [
            span
            for document in self.documents
            for resource in document["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]


@contextmanager
def collecting(status: int = 200) -> Iterator[Collector]:
    """A collector that listens within the block."""
    found = Collector(status)
    with served_in_thread(found.server):
        yield found
