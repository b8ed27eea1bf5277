"""A crawler that puts hostile texts into every parameter of every page, and looks at every page of a home that is full of them.

It finds the pages in the routes of the application, and the parameters by watching which ones pages ask for: a new page and a new field are tried by themselves.
The test prints how many requests it sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest
from starlette.datastructures import QueryParams
from starlette.routing import Route

from headrace.web.app import make_app
from headrace.web.config import WebConfig
from headrace.web.guard import Guard
from tests.headrace.web.hostile import COMPUTED, LONG, MARKUP, PAYLOADS, hostile_home, hostile_parts
from tests.headrace.web.pages import Answer, Browser, served
from warehouse import Warehouse, quarantine_groups, read_solution
from warehouse.quarantine.query import TaskQuery

pytestmark = pytest.mark.medium


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def warehouse(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    server = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    url = server.database() if server else ""
    with hostile_home(tmp_path_factory.mktemp("texts"), url) as opened:
        yield opened
    if server:
        server.drop(url)


@pytest.fixture(scope="module")
def browser(warehouse: Warehouse) -> Iterator[Browser]:
    with served(warehouse, allow_changes=True, folder=warehouse.storage.root) as browser:
        yield browser.enter()


@dataclass
class Crawl:
    """What a crawl has asked for.

    Attributes:
        asked: the parameters that a page asks for, by the path of its route.
        sent: how many requests were sent.
        statuses: how many of each status.
    """

    browser: Browser
    asked: dict[str, set[str]] = field(default_factory=dict)
    sent: int = 0
    statuses: dict[int, int] = field(default_factory=dict)

    def get(self, path: str) -> Answer:
        """A page, which must be an answer without a hostile part."""
        answer = self.browser.get(path)
        self.sent += 1
        self.statuses[answer.status] = self.statuses.get(answer.status, 0) + 1
        assert answer.status in (200, 303, 307, 400, 403, 404, 409, 414), (answer.status, path[:200])
        assert "x-hx" not in answer.headers, path[:200]
        if answer.text:
            wrong = hostile_parts(answer.headers["content-type"], answer.text)
            assert wrong == [], (path[:200], wrong[:5])
        return answer


def shown_routes(warehouse: Warehouse) -> list[Route]:
    """The routes of all pages that show something."""
    guard = make_app(warehouse, WebConfig(home="home"), token="t" * 16, port=lambda: 0)
    assert isinstance(guard, Guard)
    return [one for one in guard._app.routes if isinstance(one, Route) and "GET" in (one.methods or ())]  # type: ignore[attr-defined]


def place_of(route: Route, values: dict[str, str]) -> str:
    """An address of a route, with values for the parts of its path."""
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: quote(values.get(found[1], "1"), safe=""), route.path)


@pytest.fixture(scope="module")
def known(warehouse: Warehouse) -> dict[str, str]:
    """Values for parts of paths that exist."""
    (failed, *_) = quarantine_groups(warehouse, TaskQuery(), limit=1)
    fingerprint = read_solution(warehouse, "odd").inputs[0].fingerprint
    return {
        "fingerprint": fingerprint,
        "column": MARKUP,
        "number": "1",
        "task": str(failed.example),
        "name": "odd",
        "place": "runs",
    }


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the parameters that pages have asked for since it was cleared."""
    names: set[str] = set()
    plain: dict[str, Callable[..., Any]] = {name: getattr(QueryParams, name) for name in ("__getitem__", "getlist")}

    def noting(name: str) -> Callable[..., Any]:
        def look(self: QueryParams, key: str) -> Any:
            names.add(key)
            return plain[name](self, key)

        return look

    for name in plain:
        monkeypatch.setattr(QueryParams, name, noting(name), raising=False)
    return names


def test_hostile_texts_in_every_parameter_of_every_page(
    browser: Browser, warehouse: Warehouse, known: dict[str, str], watched: set[str]
) -> None:
    crawl = Crawl(browser)
    routes = shown_routes(warehouse)
    assert len(routes) >= 14
    for route in routes:
        watched.clear()
        crawl.get(place_of(route, known))
        crawl.asked[route.path] = set(watched)
        for name in re.findall(r"\{(\w+)(?::\w+)?\}", route.path):
            for payload in PAYLOADS:
                crawl.get(place_of(route, {**known, name: payload}))
    assert {"column", "pattern", "sort", "format"} <= crawl.asked["/graphs"]
    assert {"budget", "start", "end"} <= crawl.asked["/evict"]
    for route in routes:
        place = place_of(route, known)
        for name in sorted(crawl.asked[route.path] - {"format"}):
            for payload in PAYLOADS:
                crawl.get(f"{place}?{urlencode({name: payload})}")
        crawl.get(f"{place}?{urlencode({MARKUP: MARKUP, 'format': MARKUP})}")
    for k in range(len(PAYLOADS)):  # all fields at once
        every = {
            name: PAYLOADS[(k + j) % len(PAYLOADS)][:200]
            for j, name in enumerate(sorted(crawl.asked["/graphs"] - {"format"}))
        }
        crawl.get(f"/graphs?{urlencode(every)}")
        crawl.get(f"/evict?{urlencode(every)}")
    print(f"{crawl.sent} requests: {crawl.statuses}")
    assert crawl.sent > 700


def test_hostile_texts_of_the_catalog_are_texts_of_pages(
    browser: Browser, warehouse: Warehouse, known: dict[str, str]
) -> None:
    """Names of columns, errors of failed tasks, reasons and users, each shown somewhere, and escaped; every link of a page leads to a page."""
    crawl = Crawl(browser)
    seen: set[str] = set()
    found = ""
    left = ["/"]
    while left:
        path = left.pop()
        answer = crawl.get(path)
        assert answer.status != 404, path[:200]
        if not answer.headers["content-type"].startswith("text/html"):
            continue
        found += answer.text
        links = {one.replace("&amp;", "&") for one in re.findall(r'(?:href|src)="(/[^"#]*)"', answer.text)}
        fresh = {
            one
            for one in links
            if urlsplit(one).path not in {urlsplit(old).path for old in seen} or ("?" in one and len(seen) < 150)
        }
        left += sorted(fresh - seen)
        seen |= links
    for text in (MARKUP[:20], LONG[:200], COMPUTED[:20]):
        assert text in unescape(found), f"{text} is shown nowhere"
    for shown in ("&lt;hxtag hxattr=1&gt;", "ValueError: &lt;hxtag", "\\u202eright to left", "\\u200b", "\\x1b"):
        assert shown in found, shown
    assert crawl.sent > 40
    print(f"{crawl.sent} requests: {crawl.statuses}")


def test_json_of_hostile_texts_is_json_for_programs_alone(
    browser: Browser, known: dict[str, str], warehouse: Warehouse
) -> None:
    for route in shown_routes(warehouse):
        answer = browser.get(place_of(route, known) + "?format=json")
        if answer.headers["content-type"].startswith("application/json"):
            json.loads(answer.text)
            assert answer.headers["x-content-type-options"] == "nosniff"


def test_hostile_texts_in_forms_are_kept_as_texts(browser: Browser) -> None:
    tried = 0
    for payload in PAYLOADS:
        page = browser.get("/evict?column=title")
        form = {"form_token": page.form_token, "preview": page.preview, "memos": "1", "why": "w"}
        for name in form:
            answer = browser.post("/evict", {**form, name: payload})
            tried += 1
            assert answer.status in (400, 403), (name, payload[:40], answer.status)
            assert hostile_parts(answer.headers["content-type"], answer.text) == [], (name, payload[:40])
        answer = Browser(browser.address).post("/enter", {"token": payload})
        tried += 1
        assert answer.status in (400, 403)
        assert hostile_parts(answer.headers["content-type"], answer.text) == []
    print(f"{tried} forms")


def test_each_form_of_the_pages_asks_for_its_origin_and_token(
    browser: Browser, warehouse: Warehouse, known: dict[str, str]
) -> None:
    """A form that a later page adds is tried by itself."""
    guard = make_app(warehouse, WebConfig(home="home"), token="t" * 16, port=lambda: 0)
    assert isinstance(guard, Guard)
    forms = [one for one in guard._app.routes if isinstance(one, Route) and "POST" in (one.methods or ())]  # type: ignore[attr-defined]
    assert len(forms) >= 5
    token = browser.get("/evict?column=title").form_token
    stranger = Browser(browser.address)
    for route in forms:
        place = place_of(route, known)
        assert browser.post(place, {"form_token": token}, Origin="http://evil.example").status == 403, place
        if route.path == "/enter":
            continue
        assert browser.post(place, {"form_token": "guessed", "why": "w"}).status == 403, place
        assert browser.post(place, {"why": "w"}).status == 403, place
        assert stranger.post(place, {"form_token": token}).status == 403, place


def test_a_hostile_home_and_user_are_texts(warehouse: Warehouse, tmp_path: Path) -> None:
    del tmp_path
    with served(warehouse, user_header="X-User", allowed_hosts=("headrace.example",)) as address:
        shown = Browser(address.address, headers={"X-User": MARKUP, "Host": "headrace.example"}).get("/")
        assert hostile_parts(shown.headers["content-type"], shown.text) == []
        assert "&lt;hxtag hxattr=1&gt;" in shown.text
