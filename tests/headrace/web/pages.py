"""A server of pages in this process, and a client that sends what it is given."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import unescape
from typing import Any
from urllib.parse import urlencode, urlsplit

import uvicorn

from headrace.web import server
from headrace.web.config import WebConfig
from tests.support.processes import PATIENCE_SECS
from warehouse.warehouse import Warehouse


@dataclass
class Answer:
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def form_token(self) -> str:
        return self._hidden("form_token")

    @property
    def preview(self) -> str:
        return self._hidden("preview")

    def _hidden(self, name: str) -> str:
        found = re.search(rf'name="{name}" value="([^"]*)"', self.text)
        assert found, self.text
        return unescape(found[1])


@dataclass
class Browser:
    """A client with a cookie; ``origin``: what it says of itself with forms."""

    address: str
    cookie: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        return f"http://{urlsplit(self.address).netloc}"

    def enter(self) -> Browser:
        """Present the token of the address."""
        parts = urlsplit(self.address)
        answer = self.get(f"{parts.path}?{parts.query}")
        assert answer.status == 303, answer.text
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return self

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, headers=headers)

    def post(self, path: str, form: Mapping[str, Any], **headers: str) -> Answer:
        own = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Origin": self.origin,
            "Sec-Fetch-Site": "same-origin",
        }
        return self.send("POST", path, urlencode(form).encode(), {**own, **headers})

    def send(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = {}) -> Answer:
        parts = urlsplit(self.address)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_SECS)
        given = {
            "Cookie": self.cookie,
            **self.headers,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        try:
            connection.request(method, path, body or None, {name: value for name, value in given.items() if value})
            answer = connection.getresponse()
            return Answer(
                answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()
            )
        finally:
            connection.close()


@contextmanager
def served(warehouse: Warehouse, *, patient: Warehouse | None = None, **given: Any) -> Iterator[Browser]:
    """The pages of a warehouse at a free port, served by a thread as the command serves them; gives a browser that has not entered."""
    ready: list[str] = []
    servers: list[uvicorn.Server] = []
    started = threading.Event()

    class Kept(uvicorn.Server):
        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            servers.append(self)

        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            started.set()

    plain, uvicorn.Server = uvicorn.Server, Kept  # type: ignore[misc]
    config = WebConfig(home="home", port=0, **given)
    thread = threading.Thread(target=server.serve, args=(warehouse, config, ready.append), kwargs={"patient": patient})
    thread.start()
    try:
        assert started.wait(PATIENCE_SECS)
        yield Browser(ready[0])
    finally:
        uvicorn.Server = plain  # type: ignore[misc]
        servers[0].should_exit = True
        thread.join(PATIENCE_SECS)
        assert not thread.is_alive()
