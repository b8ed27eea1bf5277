"""A receiver of OpenLineage's events, in a thread: it checks each by the rules of the specification."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.lineage_rules import checked_event
from tests.support.served_in_thread import served_in_thread


class LineageReceiver:
    """Answers with :attr:`status`, after :attr:`delay_secs`.

    Attributes:
        bodies: the events that were taken, as they came.
        requests: all that came.
        problems: what was wrong with requests.
    """

    def __init__(self) -> None:
        self.status, self.delay_secs, self.requests = 201, 0.0, 0
        self.bodies: list[bytes] = []
        self.problems: list[str] = []
        self.tokens: set[str | None] = set()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                owner.requests += 1
                owner.tokens.add(self.headers["Authorization"])
                if self.path != "/api/v1/lineage" or self.headers["Content-Type"] != "application/json":
                    owner.problems.append(f"{self.path} {self.headers['Content-Type']}")
                try:
                    checked_event(content)
                except Exception as error:
                    owner.problems.append(str(error))
                time.sleep(owner.delay_secs)
                if owner.status < 300:
                    owner.bodies.append(content)
                self.send_response(owner.status)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @property
    def events(self) -> list[dict[str, Any]]:
        """Each event once, in order; one that came twice must have equal bytes."""
        assert self.problems == []
        found = {body: checked_event(body) for body in self.bodies}
        ends = Counter(
            (one["run"]["runId"], one["eventType"]) for one in found.values() if one["eventType"] != "RUNNING"
        )
        assert set(ends.values()) <= {1}, "an event that is sent again has the same bytes"
        return [*found.values()]


@contextmanager
def receiving() -> Iterator[LineageReceiver]:
    """A receiver that listens within the block."""
    found = LineageReceiver()
    with served_in_thread(found.server):
        yield found
