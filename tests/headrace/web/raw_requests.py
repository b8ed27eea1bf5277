"""Requests as bytes, for what no client of HTTP sends."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.headrace.web.pages import Browser
from tests.support.processes import PATIENCE_SECS


@dataclass(frozen=True)
class RawAnswer:
    """The answer to bytes; ``status`` 0: the connection ended without one."""

    status: int
    headers: dict[str, str]
    body: bytes


def connection(browser: Browser) -> socket.socket:
    """A connection to the server of a browser."""
    parts = urlsplit(browser.address)
    return socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_SECS)


def head(browser: Browser, line: str, *headers: str, host: bool = True, cookie: bool = True) -> bytes:
    """The head of a request that asks for the end of its connection."""
    own = [f"Host: {urlsplit(browser.address).netloc}"] if host else []
    own += [f"Cookie: {browser.cookie}"] if cookie and browser.cookie else []
    return "\r\n".join((line, *own, "Connection: close", *headers, "", "")).encode("latin-1")


def send(browser: Browser, sent: bytes) -> RawAnswer:
    """Send bytes, and read until the server ends the connection."""
    with connection(browser) as link:
        link.sendall(sent)
        return parsed(all_of(link))


def all_of(link: socket.socket) -> bytes:
    """What comes until the connection ends."""
    found = b""
    try:
        while some := link.recv(65_536):
            found += some
    except ConnectionError:
        pass
    return found


def parsed(found: bytes) -> RawAnswer:
    """The first answer of bytes."""
    start, _, body = found.partition(b"\r\n\r\n")
    line, _, rest = start.partition(b"\r\n")
    pairs = (one.decode("latin-1").partition(":")[::2] for one in rest.split(b"\r\n") if one)
    status = int(line.split()[1]) if line.startswith(b"HTTP/1.1 ") else 0
    return RawAnswer(status, {name.lower(): value.strip() for name, value in pairs}, body)
