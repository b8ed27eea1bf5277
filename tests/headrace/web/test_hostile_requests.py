"""Requests of hostile neighbours: other hosts, forged forms, odd targets and bodies.

It tries 31 hosts, 24 forged forms, 25 targets, 18 bodies, and the headers of 17 answers.
"""

from __future__ import annotations

import gzip
import re
import time
from collections.abc import Iterator
from urllib.parse import urlencode, urlsplit

import pytest

from headrace.web.config import WebConfig
from headrace.web.connections import HEADERS as PARSER_HEADERS
from headrace.web.guard import HEADERS, MOST_BODY_BYTES
from headrace.web.sessions import MOST_SESSIONS, MOST_SESSIONS_OF_USER, Sessions
from tests.headrace.web.hostile import hostile_home
from tests.headrace.web.pages import Answer, Browser, served
from tests.headrace.web.raw_requests import RawAnswer, head, send
from warehouse import Warehouse
from warehouse.eviction.history import list_evictions

FORM = "Content-Type: application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with hostile_home(tmp_path_factory.mktemp("requests")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(warehouse: Warehouse) -> Iterator[Browser]:
    with served(warehouse, allow_changes=True) as browser:
        yield browser


def is_guarded(answer: Answer | RawAnswer) -> bool:
    """Whether an answer has the headers of all answers."""
    return answer.headers.items() >= HEADERS.items() or answer.headers.items() >= PARSER_HEADERS.items()


def test_only_the_names_of_this_server_are_served(browser: Browser) -> None:
    """Names of another site that resolve to this machine, in every spelling that a client can send."""
    port = urlsplit(browser.address).port
    for good in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"):
        assert send(browser, head(browser, "GET / HTTP/1.1", f"Host: {good}", host=False)).status == 200, good
    bad = ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", f"127.0.0.1:{port}.evil.example", f"localhost.:{port}",
           f"127.0.0.1.:{port}", f"LOCALHOST:{port}", "localhost", "127.0.0.1", "localhost:1", f"0.0.0.0:{port}", f"127.1:{port}", f"2130706433:{port}",
           f"0x7f.1:{port}", f"[::ffff:127.0.0.1]:{port}", f"[::]:{port}", f"user@127.0.0.1:{port}", f"127.0.0.1:0{port}", f"127.0.0.1:{port}:{port}",
           f"127.0.0.1:{port}, evil.example", f"evil.example, 127.0.0.1:{port}", f"127.0.0.1:{port}/", "[", "[::1", "", " ", ":", f":{port}",
           f"127.0.0.1:{port}\u00e9")  # fmt: skip
    for name in bad:
        answer = send(browser, head(browser, "GET / HTTP/1.1", f"Host: {name}", host=False))
        assert (answer.status in (400, 421), is_guarded(answer)) == (True, True), (name, answer)
        assert b"<h1>Warehouse" not in answer.body
    host = f"Host: 127.0.0.1:{port}"
    for headers in ((host, host), (host, "Host: evil.example"), ()):
        assert send(browser, head(browser, "GET / HTTP/1.1", *headers, host=False)).status == 400, headers
    assert send(browser, head(browser, "GET / HTTP/1.0", host=False)).status == 421
    forwarded = (f"X-Forwarded-Host: 127.0.0.1:{port}", f"Forwarded: host=127.0.0.1:{port}")
    assert send(browser, head(browser, "GET / HTTP/1.1", "Host: evil.example", *forwarded, host=False)).status == 421


def test_a_form_is_taken_from_a_page_of_its_session_alone(browser: Browser, warehouse: Warehouse) -> None:
    """Forms of other sites, of other ports of this machine, and of other sessions, in every way that a browser marks them."""
    before = len(list_evictions(warehouse))
    page = browser.get("/evict?column=title")
    form = {"form_token": page.form_token, "preview": page.preview, "memos": "9", "why": "forged"}
    port = urlsplit(browser.address).port
    origins = ("", "null", "http://evil.example", f"http://evil.example:{port}", f"http://127.0.0.1.evil.example:{port}", "http://127.0.0.1",
               "http://127.0.0.1:1", f"ftp://127.0.0.1:{port}", f"127.0.0.1:{port}", f"http://127.0.0.1:{port}/", f"http://127.0.0.1:{port}@evil.example",
               f"http://localhost:{port}", f"HTTP://127.0.0.1:{port}", "http://[", f"http://127.0.0.1:{port} http://evil.example")  # fmt: skip
    for origin in origins:
        answer = browser.post("/evict", form, Origin=origin)
        assert (answer.status, is_guarded(answer)) == (403, True), origin
    for site in ("cross-site", "same-site", "none", "Same-Origin", "same-origin, cross-site"):
        assert browser.post("/evict", form, Sec_Fetch_Site=site).status == 403, site
    assert browser.get(f"/evict?{urlencode(form)}").status == 200
    body = urlencode(form).encode()
    twice = (f"Origin: {browser.origin}", "Origin: http://evil.example", FORM, f"Content-Length: {len(body)}")
    assert send(browser, head(browser, "POST /evict HTTP/1.1", *twice) + body).status == 403
    other = Browser(browser.address).enter()
    theirs = other.get("/evict?column=title")
    assert browser.post("/evict", {**form, "form_token": theirs.form_token}).status == 403, (
        "the token of another session"
    )
    assert browser.post("/evict", {**form, "preview": theirs.preview}).status == 400, "the preview of another session"
    assert Browser(browser.address).post("/evict", form).status == 403, "no session"
    assert len(list_evictions(warehouse)) == before


def test_a_page_of_another_site_may_link_here_and_not_show_parts(browser: Browser) -> None:
    fetched = {"Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "image"}
    for site, more, status in (("cross-site", {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}, 200), ("none", {}, 200),
                               ("cross-site", {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"}, 403), ("cross-site", fetched, 403),
                               ("same-site", fetched, 403), ("same-origin", fetched, 200)):  # fmt: skip
        assert browser.get("/graphs", Sec_Fetch_Site=site, **more).status == status, (site, more)


def test_every_answer_has_the_headers_against_frames_and_sniffing(browser: Browser) -> None:
    """Pages, refusals, redirects, files, and the answers to what is no HTTP."""
    for path, status in (("/", 200), ("/graphs", 200), ("/no", 404), ("/graphs?sort=x", 400), ("/static/style.css", 200), ("/static/icon.svg", 200),
                         ("/static/no", 404), ("/static", 307), ("/healthz", 200), (browser.address.partition("/enter")[2] and "/enter", 200),
                         ("/graphs/", 307)):  # fmt: skip
        answer = browser.get(path)
        assert (answer.status in (status, 404), is_guarded(answer)) == (True, True), (
            path,
            answer.status,
            answer.headers,
        )
    entered = Browser(browser.address).get("/enter?" + urlsplit(browser.address).query)
    assert (entered.status, is_guarded(entered)) == (303, True)
    for line, status in (("GET /\x01 HTTP/1.1", 400), ("nonsense", 400), ("GET /\xff HTTP/1.1", 400), ("PUT / HTTP/1.1", 405),
                         ("GET / HTTP/1.1\r\nbad header", 400), ("GET /?" + "a" * 70_000 + " HTTP/1.1", 414)):  # fmt: skip
        answer = send(browser, head(browser, line))
        assert (answer.status, is_guarded(answer)) == (status, True), (line[:40], answer)


@pytest.mark.parametrize(
    "target",
    ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/static/../guard.py", "/static/%2e%2e/guard.py", "/static/..%2fguard.py", "/static/..%5cguard.py",
     "/static//etc/passwd", "/static/%2fetc%2fpasswd", "/static/style.css%00.svg", "/static/" + "a/" * 4000, "/static/" + "a" * 5000, "/graphs/../../x",
     "/tables/..%2f..%2f", "/tables/log/columns/..%2f..", "/models/%00", "/graphs?column=%00", "/graphs?%00=1", "/%ff%fe", "/graphs/%ff", "/models/%c0%ae%c0%ae",
     "/graphs?column=%ff%fe", "/graphs?column=%ed%a0%80", "/evictions/" + "9" * 400, "/evictions/-1", "/evictions/0x10", "//evil.example/graphs"],
)  # fmt: skip
def test_a_target_that_no_page_has(browser: Browser, target: str) -> None:
    for method in ("GET", "HEAD"):
        answer = send(browser, head(browser, f"{method} {target} HTTP/1.1"))
        assert (answer.status in (400, 404, 414), is_guarded(answer)) == (True, True), answer
        for secret in (b"root:", b"Everything that every request", b"from __future__"):
            assert secret not in answer.body


def test_an_absolute_target_is_no_page(browser: Browser) -> None:
    for target in (f"http://evil.example{path}" for path in ("/", "/graphs", "/evict?column=query")):
        assert send(browser, head(browser, f"GET {target} HTTP/1.1")).status == 404
    assert send(browser, head(browser, "OPTIONS * HTTP/1.1")).status == 405


def test_a_body_that_is_no_form_changes_nothing(browser: Browser, warehouse: Warehouse) -> None:
    before = len(list_evictions(warehouse))
    page = browser.get("/evict?column=title")
    form = urlencode({"form_token": page.form_token, "preview": page.preview, "memos": "9", "why": "w"}).encode()
    many = b"&".join(b"f%d=1" % k for k in range(6_000))
    multipart = (
        b'--x\r\nContent-Disposition: form-data; name="form_token"\r\n\r\n'
        + page.form_token.encode()
        + b"\r\n--x--\r\n"
    )
    bodies: tuple[tuple[bytes, tuple[str, ...], int], ...] = (
        (multipart, ("Content-Type: multipart/form-data; boundary=x",), 415),
        (b'{"form_token": "x"}', ("Content-Type: application/json",), 415),
        (form, ("Content-Type: text/plain",), 415),
        (form, (), 415),
        (gzip.compress(form), (FORM, "Content-Encoding: gzip"), 415),
        (many, (FORM,), 400),
        (b"form_token=%00&" + form, (FORM,), 403),
        (form + b"&why=%00", (FORM,), 400),
        (b"\xff\xfe=\xff&form_token=\xc0\x80", (FORM,), 403),
        (b"=&&&===&%zz=%", (FORM,), 403),
        (b"", (FORM,), 403),
        (b"a" * (MOST_BODY_BYTES + 1), (FORM,), 413),
    )  # fmt: skip
    for body, headers, status in bodies:
        sent = head(
            browser, "POST /evict HTTP/1.1", f"Origin: {browser.origin}", f"Content-Length: {len(body)}", *headers
        )
        answer = send(browser, sent + body)
        status = 400 if b"%00" in body else status
        assert (answer.status, is_guarded(answer)) == (status, True), (body[:40], answer)
    for length in ("-1", "9" * 30, "1, 2", "0x10", "\xb2"):
        assert send(browser, head(browser, "POST /evict HTTP/1.1", FORM, f"Content-Length: {length}")).status in (
            400,
            413,
        ), length
    both = (f"Origin: {browser.origin}", FORM, "Content-Length: 4", "Transfer-Encoding: chunked")
    smuggled = send(browser, head(browser, "POST /evict HTTP/1.1", *both) + b"0\r\n\r\nGET /evict HTTP/1.1\r\n\r\n")
    assert smuggled.status in (400, 403)
    assert len(list_evictions(warehouse)) == before


def test_many_fields_cost_little(browser: Browser) -> None:
    body = b"&" * (MOST_BODY_BYTES - 1)
    sent = head(browser, "POST /enter HTTP/1.1", f"Origin: {browser.origin}", FORM, f"Content-Length: {len(body)}")
    started = time.perf_counter()
    assert send(browser, sent + body).status == 400
    assert time.perf_counter() - started < 10


def test_no_text_of_a_client_becomes_a_header(browser: Browser) -> None:
    for path in ("/graphs?column=a%0d%0aX-Hx:%201", "/%0d%0aX-Hx:%201", "/static/a%0d%0aX-Hx:%201", "/tables/log/columns/a%0d%0aX-Hx:1?format=csv",
                 "/graphs/%0d%0a/", "/enter?token=%0d%0aSet-Cookie:a=b"):  # fmt: skip
        answer = browser.get(path)
        assert "x-hx" not in answer.headers, path
        assert "a=b" not in answer.headers.get("set-cookie", ""), path
        assert "\r" not in answer.headers.get("location", "")


def test_the_state_of_the_server_is_told_to_supervisors_without_a_word_more(pages: Browser) -> None:
    answer = Browser(pages.address).get("/healthz", Host="10.0.0.7:4180")
    assert (answer.status, answer.text, "set-cookie" in answer.headers) == (200, "ok\n", False)
    assert Browser(pages.address).post("/healthz", {}).status == 403
    assert Browser(pages.address).get("/healthz/").status == 403


def test_the_table_of_sessions_is_bounded() -> None:
    numbers = iter(range(10**9))
    sessions = Sessions("the token", lambda: f"{next(numbers):032d}")
    kept = sessions.enter("the token")
    assert kept is not None
    for k in range(100_000):
        assert sessions.enter("the token") is not None
        if k % 100 == 0:
            assert sessions.find(kept.id) is kept
    assert len(sessions._known) == MOST_SESSIONS
    for wrong in ("", "the toke", "the token ", "\0", "\u202e", "x" * 100_000, "\ud800"):
        assert sessions.enter(wrong) is None
    assert len(sessions._known) == MOST_SESSIONS


def test_a_user_without_cookies_ends_no_session_of_others() -> None:
    numbers = iter(range(10**9))
    sessions = Sessions("", lambda: str(next(numbers)))
    ann = sessions.open("ann")
    for _ in range(5_000):
        sessions.open("bob")
    assert sessions.find(ann.id) is ann
    assert len(sessions._known) == MOST_SESSIONS_OF_USER + 1


def test_the_header_of_the_proxy_names_one_user(warehouse: Warehouse) -> None:
    with served(warehouse, user_header="X-Forwarded-User") as address:
        assert isinstance(address, Browser)
        asked = lambda *headers: send(address, head(address, "GET / HTTP/1.1", *headers))  # noqa: E731
        assert asked("X-Forwarded-User: ann@example.com").status == 200
        assert "Zoë".encode() in asked(f"X-Forwarded-User: {'Zoë'.encode().decode('latin-1')}").body
        for wrong in ((), ("X-Forwarded-User:",), ("X-Forwarded-User: ann", "X-Forwarded-User: bob"), ("X_Forwarded_User: ann",),
                      (f"X-Forwarded-User: {'a' * 321}",), ("X-Forwarded-User: a\tb",), (f"X-Forwarded-User: {chr(0x202e).encode().decode('latin-1')}",),
                      ("X-Forwarded-Email: ann",)):  # fmt: skip
            assert asked(*wrong).status == 403, wrong
        assert asked("X-Forwarded-User: ann", "Cookie: headrace_session=guessed").status == 200


def test_the_loopback_page_needs_no_token_behind_a_proxy() -> None:
    assert WebConfig(home="h", user_header="X-Forwarded-User", allowed_hosts=("headrace.example.com",)).is_local


def test_of_two_sessions_that_evict_the_same_one_is_shown_the_next_step(browser: Browser, warehouse: Warehouse) -> None:
    other = Browser(browser.address).enter()
    pages = [one.get("/evict?column=query") for one in (browser, other)]
    forms = [{"form_token": page.form_token, "preview": page.preview, "why": "at once",
              "memos": re.search(r"Type (\d+) to evict", page.text)[1]} for page in pages]  # type: ignore[index]  # fmt: skip
    assert browser.post("/evict", forms[0]).status == 303
    answer = other.post("/evict", forms[1])
    assert (answer.status, is_guarded(answer)) == (409, True)
    assert "<h1>Conflict" in answer.text
    assert "Next:" in answer.text
    newest = list_evictions(warehouse)[0]
    assert newest.why == "at once"
    token = browser.get(f"/evictions/{newest.number}").form_token
    assert browser.post(f"/evictions/{newest.number}/restore", {"form_token": token}).status == 303
