"""Mutated requests by the thousand over raw sockets: the server goes on, answers no 500, and its memory stays bounded."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.headrace.web.hostile import hostile_home
from tests.headrace.web.pages import Browser
from tests.headrace.web.raw_requests import head
from tests.headrace.web.ui_command import command
from warehouse import read_solution

#: How many requests are in progress at once, and how long one is given.
AT_ONCE, GIVEN_SECS = 40, 1.0
#: What thousands of requests may add to the memory of the server.
MOST_GROWTH_BYTES = 48 * 2**20

_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_PARTS = (b"\r\n", b"\n", b"\0", b"\xff", b"%00", b"%", b"\r\n\r\n", b"Host: evil\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n",
          b"Expect: 100-continue\r\n", b"Connection: upgrade\r\nUpgrade: websocket\r\n", b"Content-Length: -1\r\n", b"Range: bytes=0-1,2-3,4-5\r\n",
          b"Cookie: a=b; headrace_session=\"\\\"\r\n", b"HTTP/1.0", b"HTTP/2.0", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"[", b"..", b"%2e%2e/", b"\xc0\xaf", b"\t",
          b"If-None-Match: *\r\n", b"X: " + b"y" * 9000 + b"\r\n", b"ffffffffffffffff\r\n", b"0\r\n\r\n", b"=&" * 500)  # fmt: skip


def seeds(browser: Browser, fingerprint: str) -> list[bytes]:
    """Requests that the server answers well."""
    gets = ("/", "/graphs", "/graphs?pattern=unigrams(_)&sort=size&offset=0", f"/graphs/{fingerprint}", f"/graphs/{fingerprint}/drawing.svg", "/models/ctr",
            "/tables/log/columns/query?format=csv", "/evict?column=query&budget=1GB", "/evictions/1", "/quarantine?format=json", "/static/style.css",
            "/healthz", "/enter")  # fmt: skip
    found = [head(browser, f"GET {path} HTTP/1.1") for path in gets]
    form = b"form_token=a&preview=b&memos=1&why=w%20%C3%A9"
    kind = (
        "Content-Type: application/x-www-form-urlencoded",
        f"Origin: {browser.origin}",
        "Sec-Fetch-Site: same-origin",
    )
    for path in ("/evict", "/evictions/1/restore", "/enter"):
        found.append(head(browser, f"POST {path} HTTP/1.1", *kind, f"Content-Length: {len(form)}") + form)
        chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(form), form)
        found.append(head(browser, f"POST {path} HTTP/1.1", *kind, "Transfer-Encoding: chunked") + chunked)
    return found


def mutated(sent: bytes, draw: random.Random) -> bytes:
    """A request with some changes: bytes replaced, parts left out, repeated, put in, or cut."""
    found = bytearray(sent)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(found) + 1)
        until = min(len(found), at + draw.randint(1, 20))
        kind = draw.randrange(6)
        if kind == 0 and at < len(found):
            found[at] = draw.randrange(256)
        elif kind == 1:
            del found[at:until]
        elif kind == 2:
            found[at:at] = found[at:until] * draw.randint(1, 50)
        elif kind == 3:
            found[at:at] = draw.choice(_PARTS)
        elif kind == 4:
            found[at:until] = bytes(draw.randrange(256) for _ in range(until - at))
        elif draw.random() < 0.2:
            del found[at:]
    return bytes(found)


async def statuses_of(address: str, requests: list[bytes]) -> Counter[int]:
    """How many answers of each status came; 0: none, as for requests that are not whole."""
    parts, found, turn = urlsplit(address), Counter[int](), asyncio.Semaphore(AT_ONCE)

    async def send(sent: bytes) -> None:
        async with turn:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            answer = b""
            try:
                writer.write(sent)
                async with asyncio.timeout(GIVEN_SECS):
                    await writer.drain()
                    while some := await reader.read(65_536):
                        answer += some
            except (TimeoutError, ConnectionError):
                pass
            finally:
                writer.close()
            statuses = [int(one) for one in _STATUS.findall(answer)] or [0]
            found.update(statuses)
            assert not {500, 503} & set(statuses), sent

    await asyncio.gather(*map(send, requests))
    return found


@pytest.mark.parametrize(
    "count", [pytest.param(200, marks=pytest.mark.medium), pytest.param(10_000, marks=pytest.mark.slow)]
)
def test_mutated_requests_leave_the_server_as_it_was(count: int, tmp_path: Path) -> None:
    with hostile_home(tmp_path) as warehouse:
        fingerprint = read_solution(warehouse, "ctr").inputs[0].fingerprint
    with command(tmp_path / "home", tmp_path / "ui.txt") as served:
        browser = served.browser
        whole = seeds(browser, fingerprint)
        for sent in whole * 3:  # what is loaded at the first use
            asyncio.run(statuses_of(browser.address, [sent]))
        before = served.resident_bytes()
        draw = random.Random(count)
        found = asyncio.run(statuses_of(browser.address, [mutated(draw.choice(whole), draw) for _ in range(count)]))
        grown = served.resident_bytes() - before
        print(f"{count:,} mutated requests: {dict(sorted(found.items()))}; memory grew by {grown / 2**20:.1f} MiB")
        assert grown < MOST_GROWTH_BYTES
        assert {200, 400, 403} <= set(found)
        for path in ("/", "/graphs", "/evict?column=query", "/quarantine", f"/graphs/{fingerprint}"):
            assert browser.get(path).status == 200
        assert "Traceback" not in served.log.read_text()
