"""The queue and failed tasks over HTTP: what is shown, retried and dropped, also with hostile errors and samples."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.terminal.output import document
from headrace.views import tasks
from tests.headrace.web.pages import Browser, served
from tests.warehouse.scenes import FREE_READS, Clock, model, write_log
from warehouse import Failure, Warehouse, WarehouseConfig, fail_tasks, lease_tasks, register_table, submit_model
from warehouse.quarantine.query import TaskQuery
from warehouse.queue.failures import encoded_sample
from warehouse.queue.history import record_minute
from warehouse.scheduling.task_states import TaskState

SCRIPT = '<script>alert("x")</script>\u202e'


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def warehouse(tmp_path: Path, clock: Clock) -> Iterator[Warehouse]:
    """A queue of three tasks of one component that have all failed, with a sample, and others that wait."""
    with Warehouse.open(WarehouseConfig(str(tmp_path / "home"), rates=FREE_READS), clock) as opened:
        register_table(opened, "log", str(write_log(tmp_path / "log")))
        submit_model(opened, model(inputs=1))
        sample = encoded_sample(pa.table({"query": [SCRIPT + "x" * 9_000], "title": [None]}))
        for _ in range(opened.config.limits.max_attempts):
            failure = Failure("raised", f"ValueError: {SCRIPT}", "hash_buckets", SCRIPT, (7,), sample)
            fail_tasks(opened, [(one, failure) for one in lease_tasks(opened, "w")])
            clock.advance(300)
        submit_model(opened, model("mail", "mail", inputs=2))
        record_minute(opened)
        yield opened


@pytest.fixture
def browser(warehouse: Warehouse) -> Iterator[Browser]:
    with served(warehouse, allow_changes=True) as found:
        yield found.enter()


def example(warehouse: Warehouse) -> int:
    (group,) = tasks.groups(warehouse, TaskQuery()).groups
    return group.example


def test_the_queue_has_clients_workers_and_a_drawing(browser: Browser, warehouse: Warehouse) -> None:
    page = browser.get("/queue")
    assert page.status == 200
    assert 'href="/quarantine?client=search">3</a>' in page.text
    assert "No worker holds a lease" in page.text
    assert "Recorded in 1 minute of 60" in page.text
    lease_tasks(warehouse, SCRIPT, limit=2)
    held = browser.get("/queue")
    assert "&lt;script&gt;" in held.text
    assert SCRIPT not in held.text
    drawing = browser.get("/queue/history.svg?last=2d")
    assert drawing.headers["content-type"] == "image/svg+xml"
    assert drawing.text.count("<rect") > 100
    assert json.loads(browser.get("/queue?format=json").text)["minutes"] == 60
    assert browser.get("/queue?last=9d").status == 400
    assert browser.get("/queue?last=soon").status == 400


def test_failed_tasks_by_cause_and_one_by_one(browser: Browser, warehouse: Warehouse) -> None:
    number = example(warehouse)
    groups = browser.get("/quarantine?client=search&operator=hash_buckets&kind=raised&state=failed")
    assert f'href="/quarantine/{number}">task {number}</a>' in groups.text
    assert "No failed task matches" in browser.get("/quarantine?exception=KeyError").text
    each = browser.get("/quarantine/tasks?table=log")
    assert each.text.count('row"><a href="/quarantine/') == 3
    found = json.loads(browser.get(f"/quarantine/{number}?format=json").text)
    assert found == json.loads(json.dumps(document(tasks.shown(warehouse, str(number))), default=str))
    for wrong in ("state=done", "kind=odd", "component=xyz", "operator=nothing", "client=lag"):
        assert browser.get(f"/quarantine?{wrong}").status in (400, 404), wrong
    for text in (groups.text, each.text, browser.get(f"/quarantine/{number}").text):
        assert "<script" not in text
        assert "\u202e" not in text
    assert browser.get("/quarantine/999999").status == 404


def test_a_page_shows_the_sample_and_cuts_long_values(browser: Browser, warehouse: Warehouse) -> None:
    page = browser.get(f"/quarantine/{example(warehouse)}")
    assert "The smallest sample on which it fails" in page.text
    assert "&lt;script&gt;" in page.text
    assert len(page.text) < 20_000
    assert "…" in page.text


def test_one_task_or_all_of_its_component_are_retried(browser: Browser, warehouse: Warehouse) -> None:
    number = example(warehouse)
    page = browser.get(f"/quarantine/{number}")
    form = {"form_token": page.form_token}
    answer = browser.post(f"/quarantine/{number}/retry", form)
    assert (answer.status, answer.headers["location"]) == (303, f"/quarantine/{number}")
    assert tasks.shown(warehouse, str(number)).state == "queued"
    assert sum(one.tasks for one in tasks.groups(warehouse, TaskQuery()).groups) == 2
    other = example(warehouse)
    assert browser.post(f"/quarantine/{other}/retry", {**form, "which": "alike"}).status == 303
    assert tasks.groups(warehouse, TaskQuery()).groups == ()


def test_a_drop_needs_a_reason_and_keeps_it(browser: Browser, warehouse: Warehouse) -> None:
    number = example(warehouse)
    page = browser.get(f"/quarantine/{number}")
    form = {"form_token": page.form_token, "which": "alike"}
    assert browser.post(f"/quarantine/{number}/drop", {**form, "why": "  "}).status == 400
    assert browser.post(f"/quarantine/{number}/drop", {**form, "why": SCRIPT}).status == 303
    dropped = browser.get("/quarantine/tasks?state=dropped")
    assert dropped.text.count('row"><a href="/quarantine/') == 3
    shown = browser.get(f"/quarantine/{number}")
    assert "Readers compute its column" in shown.text
    assert "<script" not in shown.text
    refused = browser.post(f"/quarantine/{number}/retry", form)
    assert (refused.status, "open the task again" in refused.text) == (400, True), "none of the component is failed"
    assert browser.post(f"/quarantine/{number}/retry", {**form, "which": ""}).status == 303
    assert len(tasks.page(warehouse, TaskQuery(states=(TaskState.DROPPED,))).tasks) == 2


def test_nothing_changes_without_a_token_or_the_right(warehouse: Warehouse) -> None:
    number = example(warehouse)
    with served(warehouse) as found:
        browser = found.enter()
        page = browser.get(f"/quarantine/{number}")
        assert '<form method="post"' not in page.text
        assert "headrace tasks retry" in page.text
        assert browser.post(f"/quarantine/{number}/retry", {"form_token": ""}).status == 403
    with served(warehouse, allow_changes=True) as found:
        browser = found.enter()
        assert browser.post(f"/quarantine/{number}/drop", {"form_token": "x", "why": "y"}).status == 403
    assert tasks.shown(warehouse, str(number)).state == "failed"


def test_the_first_page_names_what_needs_attention(browser: Browser) -> None:
    page = browser.get("/")
    assert "Needs attention" in page.text
    assert '<a href="/quarantine">3 memos failed</a>' in page.text
