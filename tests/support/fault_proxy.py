"""An HTTP proxy between a client and a real server that injects faults into chosen requests."""

from __future__ import annotations

import http.client
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, quote, urlsplit

from tests.support.processes import PATIENCE_SECS

#: What becomes of a spoilt request. ``refuse``: it is reset unread by the server. ``lose``: the server does it, its answer is
#: reset. ``tear``: the server gets half of the body. ``flip``: one byte of the body is another one. ``cut``: half of the
#: answer's body arrives. ``garble``: one byte of the answer's body is another one. ``slow``: it is done a while later. A number: it is answered with this status, and the server does not see it.
Action = Literal["refuse", "lose", "tear", "flip", "cut", "garble", "slow"] | int

_SLOW_SECS = 0.5


@dataclass
class Fault:
    """Spoils the requests whose ``METHOD path?query`` matches ``pattern``: those numbered in ``which``, from 1 on."""

    pattern: str
    action: Action
    which: Sequence[int] = (1,)
    seen: int = 0

    def strikes(self, request: str) -> bool:
        if re.search(self.pattern, request) is None:
            return False
        self.seen += 1
        return self.seen in self.which


@dataclass
class Proxy:
    """``requests``: every ``METHOD path?query`` that came, spoilt ones too."""

    address: str
    server: str
    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    #: Requests are signed for the address that the client reached.
    keeps_host: bool = False
    #: Generations that resumable uploads replace, by upload: this release of the server forgets them (its issue 1967).
    replaced: dict[str, str] = field(default_factory=dict)

    def count(self, pattern: str) -> int:
        return sum(re.search(pattern, request) is not None for request in self.requests)

    def action(self, request: str) -> Action | None:
        with self.lock:
            self.requests.append(request)
            return next((fault.action for fault in self.faults if fault.strikes(request)), None)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self) -> None:
        body = self._body()
        action = self.proxy.action(f"{self.command} {self.path}")
        if action == "refuse":
            return self._reset()
        if isinstance(action, int):
            return self._send(action, [], b'{"error": {"code": %d, "message": "injected"}}' % action)
        if action == "tear":
            self._forward(body[: len(body) // 2], str(len(body)), wait=False)
            return self._reset()
        if action == "flip":
            middle = body.rfind(b"\r\n--") - 1 if b"\r\n--" in body else len(body) // 2
            body = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
        if action == "slow":
            time.sleep(_SLOW_SECS)
        if self._has_lost():
            return self._send(412, [], b'{"error": {"code": 412, "message": "Precondition failed"}}')
        status, headers, answer = self._forward(body, str(len(body)))
        self._remember(headers)
        if action == "lose":
            return self._reset()
        if action == "garble":
            answer = answer[:-1] + bytes([answer[-1] ^ 1])
        self._send(status, headers, answer, cut=action == "cut")

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = _answer

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _forward(self, body: bytes, length: str, *, wait: bool = True) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.proxy.server, timeout=PATIENCE_SECS)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("host", "content-length", "transfer-encoding", "connection", "expect"):
                    connection.putheader(name, value)
            connection.putheader("Host", self.headers["Host"] if self.proxy.keeps_host else self.proxy.server)
            connection.putheader("Content-Length", length)
            connection.endheaders(body)
            if not wait:
                return 0, [], b""
            answer = connection.getresponse()
            content = answer.read()
            headers = [(name, value.replace(self.proxy.server, self.proxy.address))
                       for name, value in answer.getheaders()]  # fmt: skip
            return answer.status, headers, content
        finally:
            connection.close()

    def _send(self, status: int, headers: list[tuple[str, str]], body: bytes, *, cut: bool = False) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        of_head = dict(headers).get("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", of_head or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.wfile.flush()
            self._reset()

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def _remember(self, headers: list[tuple[str, str]]) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        location = dict(headers).get("Location", "")
        if asked.get("uploadType") == ["resumable"] and "ifGenerationMatch" in asked and "upload_id=" in location:
            self.proxy.replaced[parse_qs(urlsplit(location).query)["upload_id"][0]] = asked["ifGenerationMatch"][0]

    def _has_lost(self) -> bool:
        """Whether the last piece of a resumable upload would replace another generation than it says."""
        parts = urlsplit(self.path)
        asked = parse_qs(parts.query)
        expected = self.proxy.replaced.get(asked.get("upload_id", [""])[0])
        if expected is None or self.headers.get("Content-Range", "*").endswith("*"):
            return False
        last, total = self.headers["Content-Range"].removeprefix("bytes ").split("-")[-1].split("/")
        if int(last) + 1 != int(total):
            return False
        path = f"{parts.path.removeprefix('/upload')}/{quote(asked['name'][0], safe='')}"
        connection = http.client.HTTPConnection(self.proxy.server, timeout=PATIENCE_SECS)
        connection.request("GET", path)
        answer = connection.getresponse()
        found = re.search(rb'"generation":\s*"(\d+)"', answer.read())
        connection.close()
        there = found.group(1).decode() if answer.status == 200 and found else "0"
        return there != expected


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: Any) -> None:
        """A connection that was reset on purpose is no error."""


@contextmanager
def proxied(server: str, *, keeps_host: bool = False) -> Iterator[Proxy]:
    """A proxy before ``server`` (host and port)."""
    handler = type("Handler", (_Handler,), {})
    listening = _Server(("127.0.0.1", 0), handler)
    proxy = Proxy(f"127.0.0.1:{listening.server_port}", server, keeps_host=keeps_host)
    handler.proxy = proxy  # type: ignore[attr-defined]
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()
