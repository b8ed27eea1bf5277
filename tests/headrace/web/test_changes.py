"""Changes that run longer than a request waits: their page, their result, and their errors."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.views import evictions
from headrace.web import site
from headrace.web.changes import MOST_CHANGES, MOST_READERS, Changes
from tests.headrace.web.pages import Browser, served
from tests.support.processes import PATIENCE_SECS
from tests.warehouse.scenes import computed_warehouse, evict_component
from transforms.errors import Busy
from warehouse import Warehouse, read_solution
from warehouse.eviction import evict
from warehouse.eviction.history import list_evictions
from warehouse.eviction.plan import EvictionRequest
from warehouse.search.query import ComponentQuery


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with computed_warehouse(tmp_path) as opened:
        yield opened


@pytest.fixture
def browser(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    monkeypatch.setattr(site, "WAIT_SECS", 0.2)
    with served(warehouse, allow_changes=True) as found:
        yield found.enter()


def evicting(browser: Browser) -> str:
    """The page of an eviction that waits for the catalog."""
    preview = browser.get("/evict?model=ctr")
    answer = browser.post("/evict", {"form_token": preview.form_token, "preview": preview.preview, "memos": "6"})
    assert answer.status == 303, answer.text
    return answer.headers["location"]


def ended(browser: Browser, place: str) -> None:
    until = time.monotonic() + PATIENCE_SECS
    while browser.get(place).headers.get("refresh"):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_long_eviction_has_a_page_that_follows_it(browser: Browser, warehouse: Warehouse) -> None:
    with warehouse.catalog.write():
        place = evicting(browser)
        assert place.startswith("/changes/")
        page = browser.get(place)
        assert (page.status, page.headers["refresh"]) == (200, "2")
        assert "Evicting 6 memos" in page.text
        assert list_evictions(warehouse) == ()
    ended(browser, place)
    (done,) = list_evictions(warehouse)
    answer = browser.get(place)
    assert (answer.status, answer.headers["location"]) == (303, f"/evictions/{done.number}")
    assert browser.get("/changes/unknown").status == 404


def test_a_plan_that_changed_while_it_waited_is_an_error(
    browser: Browser, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An eviction waits for another change; meanwhile another user evicts."""
    evicted, may_go = evictions.evicted, threading.Event()

    def wait(*arguments: Any, **options: Any) -> Any:
        assert may_go.wait(PATIENCE_SECS)
        return evicted(*arguments, **options)

    monkeypatch.setattr(evictions, "evicted", wait)
    place = evicting(browser)
    assert browser.get(place).headers["refresh"] == "2"
    evict_component(warehouse, read_solution(warehouse, "ctr").inputs[0].fingerprint)
    may_go.set()
    ended(browser, place)
    answer = browser.get(place)
    assert (answer.status, "the eviction differs from its plan" in answer.text) == (409, True)
    assert len(list_evictions(warehouse)) == 1, "nothing more was evicted"


def test_a_long_preview_has_a_page_that_follows_it(
    browser: Browser, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, may_go = evictions.planned, threading.Event()

    def wait(*arguments: Any, **options: Any) -> Any:
        assert may_go.wait(PATIENCE_SECS)
        return planned(*arguments, **options)

    monkeypatch.setattr(evictions, "planned", wait)
    begun = browser.get("/evict?model=ctr&column=query")
    place = begun.headers["location"]
    page = browser.get(place)
    assert (begun.status, page.headers["refresh"], "Nothing is changed" in page.text) == (303, "2", True)
    for _ in range(MOST_READERS - 1):
        assert browser.get("/evict?model=ctr").status == 303
    refused = browser.get("/evict?model=ctr")
    assert (refused.status, "too many previews" in refused.text) == (409, True)
    may_go.set()
    ended(browser, place)
    answer = browser.get(place)
    assert answer.headers["location"].startswith("/evict?model=ctr&column=query&ready=")
    preview = browser.get(answer.headers["location"])
    assert "6 memos of 2 components" in preview.text
    form = {"form_token": preview.form_token, "preview": preview.preview, "memos": "6"}
    assert browser.post("/evict", form).headers["location"].startswith("/evictions/")
    assert browser.get(answer.headers["location"]).status in (200, 303), "an old address computes the preview again"


def test_a_preview_is_not_ended_by_the_limit_of_pages(tmp_path: Path, warehouse: Warehouse) -> None:
    """Pages read the catalog for a limited time; what has a page of its progress may take longer."""
    with (
        Warehouse.open(warehouse.config, read_secs=PATIENCE_SECS) as hasty,
        served(hasty, patient=warehouse, allow_changes=True) as found,
    ):
        object.__setattr__(hasty.catalog._read_limit, "secs", 1e-9)  # once the catalog is open
        browser = found.enter()
        assert browser.get("/graphs").status == 503
        assert "6 memos of 2 components" in browser.get("/evict?model=ctr").text


def test_progress_counts_each_batch(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evict, "BATCH_MEMOS", 3)
    said: list[tuple[int, int]] = []
    request = EvictionRequest(query=ComponentQuery(model="ctr"))
    evict.run_eviction(warehouse, request, why="space", progress=lambda done, memos: said.append((done, memos)))
    assert said == [(0, 6), (3, 6), (6, 6)]


def test_changes_run_one_at_a_time_and_old_ones_are_forgotten() -> None:
    numbers = iter(map(str, range(1_000)))
    changes = Changes(lambda: next(numbers), clock=lambda: 0.0)
    running, most = 0, 0

    def work(progress: object) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.0005)
        running -= 1
        return "/"

    begun = [changes.begin("x", work) for _ in range(MOST_CHANGES + 20)]
    for _, one in begun:
        assert one.wait(PATIENCE_SECS)
    changes.begin("last", work)[1].wait(PATIENCE_SECS)
    assert most == 1
    assert sum(changes.find(number) is not None for number, _ in begun) <= MOST_CHANGES


def test_readers_begin_previews_at_once_and_only_so_many_wait() -> None:
    """Many threads at a time: each begins one or is refused, and none meets a list that another one changes."""
    changes, may_go, outcomes = Changes(lambda: secrets.token_hex(8)), threading.Event(), list[str]()

    def begin() -> None:
        for _ in range(50):
            try:
                changes.begin("x", lambda progress: str(may_go.wait(PATIENCE_SECS)), most=MOST_READERS)
                outcomes.append("begun")
            except Busy:
                outcomes.append("refused")

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    may_go.set()
    assert sorted(outcomes) == ["begun"] * MOST_READERS + ["refused"] * (8 * 50 - MOST_READERS)
