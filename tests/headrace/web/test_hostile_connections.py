"""Clients that are slow, or many: each costs a connection for some seconds, and a browser beside them is served."""

from __future__ import annotations

import resource
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headrace.web import connections
from tests.headrace.web.pages import Browser, served
from tests.headrace.web.raw_requests import all_of, connection, head
from tests.headrace.web.ui_command import command
from tests.support.processes import PATIENCE_SECS
from tests.warehouse.scenes import computed_warehouse
from warehouse import Warehouse, WarehouseConfig

pytestmark = pytest.mark.medium

#: Within this time a page must come while neighbours hold connections: a quiet machine needs hundredths of a second.
PAGE_SECS = 5.0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("connections")
    with computed_warehouse(folder):
        return folder / "home"


@pytest.fixture
def browser(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    """A browser of a server in this process with limits of half a second, so that tests need not wait for those of the product."""
    monkeypatch.setattr(connections, "REQUEST_SECS", 0.5)
    monkeypatch.setattr(connections, "ANSWER_SECS", 0.5)
    with Warehouse.open(WarehouseConfig(str(home))) as warehouse, served(warehouse, allow_changes=True) as opened:
        yield opened.enter()


def trickle(link: socket.socket, sent: bytes) -> float:
    """Send a byte each 50 ms until the server ends the connection; the seconds until then."""
    started = time.monotonic()
    for byte in sent:
        with suppress(OSError):
            link.sendall(bytes([byte]))
        if select.select([link], [], [], 0.05)[0]:
            with suppress(OSError):
                if link.recv(65_536):
                    continue
            return time.monotonic() - started
    raise AssertionError("the connection is still open after all bytes")


def test_a_head_that_comes_by_the_byte_ends(browser: Browser) -> None:
    sent = head(browser, "GET / HTTP/1.1", *(f"X-{k}: {'a' * 50}" for k in range(100)))
    with connection(browser) as link:
        secs = trickle(link, sent)
        assert 0.4 < secs < 20
    assert browser.get("/").status == 200


def test_a_body_that_comes_by_the_byte_ends(browser: Browser) -> None:
    form = ("Content-Type: application/x-www-form-urlencoded", f"Origin: {browser.origin}", "Content-Length: 5000")
    for target, cookie in (("/enter", False), ("/evict", True), ("/evict", False)):
        with connection(browser) as link:
            link.sendall(head(browser, f"POST {target} HTTP/1.1", *form, cookie=cookie))
            assert trickle(link, b"a" * 4000) < 20, target
    assert browser.get("/").status == 200


def test_an_answered_request_does_not_renew_the_time_of_its_body(browser: Browser) -> None:
    """A form without a session is answered at once; its body, which is not read, keeps the connection no longer."""
    address = Browser(browser.address)
    line = head(address, "POST /evict HTTP/1.1", f"Origin: {address.origin}", "Content-Length: 60000").replace(
        b"Connection: close\r\n", b""
    )
    with connection(address) as link:
        link.sendall(line)
        secs = trickle(link, b"a" * 4000)
    assert secs < 20


def flood(link: socket.socket, sent: bytes) -> None:
    """Send the same a hundred times."""
    for _ in range(100):
        link.sendall(sent)


@pytest.mark.slow
def test_answers_that_are_not_read_end(browser: Browser) -> None:
    """A client asks for up to 2,000,000 files in one connection and reads none: the server stops to answer, and ends the connection."""
    one = head(browser, "GET /static/style.css HTTP/1.1").replace(b"Connection: close\r\n", b"")
    parts = urlsplit(browser.address)
    with socket.socket() as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link.settimeout(PATIENCE_SECS)
        link.connect((parts.hostname, parts.port))
        with pytest.raises(ConnectionError):
            flood(link, one * 20_000)
    assert browser.get("/").status == 200


def test_keep_alive_serves_many_requests_of_one_connection(browser: Browser) -> None:
    """The limits are those of one request: a connection that is used stays open beyond them."""
    one = head(browser, "GET /static/icon.svg HTTP/1.1").replace(b"Connection: close\r\n", b"")
    with connection(browser) as link:
        for _ in range(6):
            link.sendall(one)
            found = b""
            while not found.endswith(b"</svg>\n") and not found.endswith(b"</svg>"):
                some = link.recv(65_536)
                assert some, found
                found += some
            time.sleep(0.15)
        link.sendall(one * 3)  # pipelined
        link.sendall(head(browser, "GET /static/icon.svg HTTP/1.1"))
        assert all_of(link).count(b"HTTP/1.1 200") == 4


@contextmanager
def many_files(count: int) -> Iterator[None]:
    """Let this process open more files for a while."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"this machine lets a process open {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def slowest_page(browser: Browser, pages: int = 20) -> float:
    """The longest time in seconds of some pages in new connections."""
    slowest = 0.0
    for _ in range(pages):
        started = time.monotonic()
        assert browser.get("/graphs").status == 200
        slowest = max(slowest, time.monotonic() - started)
    return slowest


@pytest.mark.slow
def test_a_thousand_connections_leave_pages_for_a_browser(home: Path, tmp_path: Path) -> None:
    """1,000 connections that say nothing, 1,000 with half a head, 1,000 with half a form, and 1,000 that are opened again as the server ends them."""
    with many_files(4096), command(home, tmp_path / "ui.txt") as served_by:
        browser = served_by.browser
        form = head(browser, "POST /enter HTTP/1.1", "Content-Type: application/x-www-form-urlencoded", f"Origin: {browser.origin}",
                    "Content-Length: 1000", cookie=False)  # fmt: skip
        said = {"nothing": b"", "half a head": b"GET / HTTP/1.1\r\nHost: a\r\nX-A: ", "half a form": form + b"token=a"}
        for what, sent in said.items():
            with ExitStack() as held:
                for _ in range(1_000):
                    link = held.enter_context(connection(browser))
                    with suppress(OSError):
                        link.sendall(sent)
                secs = slowest_page(browser)
            print(f"1,000 connections with {what}: the slowest of 20 pages took {secs:.3f} s")
            assert secs < PAGE_SECS, what
        ended = threading.Event()

        def reopen() -> None:
            with ExitStack() as held:
                links = [held.enter_context(connection(browser)) for _ in range(250)]
                while not ended.is_set():
                    gone, _, _ = select.select(links, [], [], 0.05)
                    for one in gone:
                        one.close()
                        links[links.index(one)] = held.enter_context(connection(browser))

        threads = [threading.Thread(target=reopen) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            time.sleep(0.5)
            secs = slowest_page(browser)
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        print(f"1,000 connections that are opened again at once: the slowest of 20 pages took {secs:.3f} s")
        assert secs < PAGE_SECS
        assert "Traceback" not in served_by.log.read_text()
