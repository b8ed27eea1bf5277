"""axe-core finds nothing on any screen, and no screen asks for what its policy of contents refuses: in Chromium, light and dark, wide and narrow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.headrace.web.browsers import CHROMIUM
from tests.headrace.web.hostile import MARKUP, hostile_home
from tests.headrace.web.pages import served
from tests.support.processes import PATIENCE_SECS
from warehouse import Warehouse, WarehouseConfig, quarantine_groups, read_solution
from warehouse.quarantine.query import TaskQuery

axe = pytest.importorskip("axe_playwright_python.base", reason="needs axe-playwright-python of requirements.txt")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
]

#: What every screen is opened as; axe-core measures the contrast of the colours that it sees.
VIEWS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1200, "height": 800}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1200, "height": 800}},
    "light narrow": {"color_scheme": "light", "viewport": {"width": 320, "height": 640}},
    "dark narrow": {"color_scheme": "dark", "viewport": {"width": 320, "height": 640}},
}
_NOTE_VIOLATIONS = """
window.refused = [];
document.addEventListener("securitypolicyviolation", one => window.refused.push(one.violatedDirective + " " + one.blockedURI));
"""


@pytest.fixture(scope="module")
def places(run_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """The pages of each of four servers, by its address: a home with hostile texts, pages that only show it, a home with runs, and an empty one."""
    with ExitStack() as stack:
        full = stack.enter_context(hostile_home(tmp_path_factory.mktemp("full")))
        empty = stack.enter_context(Warehouse.open(WarehouseConfig(str(tmp_path_factory.mktemp("empty") / "home"))))
        fingerprint, column = read_solution(full, "ctr").inputs[1].fingerprint, quote(MARKUP, safe="")
        task = quarantine_groups(full, TaskQuery(), limit=1)[0].example
        every = ["/", "/graphs", "/graphs?column=query&sort=size", "/graphs?column=nothing", f"/graphs/{fingerprint}", f"/graphs/{fingerprint}/memos",
                 f"/graphs/{fingerprint}/values", "/models", "/models/odd", "/models/odd/memos", "/models/ctr/memos", "/models/ctr/diff", "/tables", "/tables/odd",
                 f"/tables/odd/columns/{column}", "/tables/log/columns/query", "/evict", "/evict?column=query", "/evictions", "/evictions/1", "/evictions/2",
                 "/quarantine", "/quarantine/tasks", f"/quarantine/{task}", "/queue", "/runs", "/jobs", "/holds", "/changes/none", "/enter", "/no",
                 "/evict?budget=lots"]  # fmt: skip
        of_runs = ["/runs", "/runs/ctr-v1", "/runs/empty-v1", "/runs/ctr-v1/checkpoints", "/runs/ctr-v1/checkpoints/3", "/runs/ctr-v1/plan",
                   "/runs/diff?first=ctr-v1&second=ctr-v2", "/runs/curves?run=ctr-v1&run=ctr-v2"]  # fmt: skip
        of_nothing = [
            "/",
            "/graphs",
            "/models",
            "/tables",
            "/evictions",
            "/quarantine",
            "/queue",
            "/runs",
            "/jobs",
            "/holds",
        ]
        trained = stack.enter_context(Warehouse.open(WarehouseConfig(str(run_home))))
        runs = stack.enter_context(served(trained, allow_changes=True, folder=str(run_home))).address
        changing = stack.enter_context(served(full, allow_changes=True, folder=full.storage.root)).address
        showing = stack.enter_context(served(full)).address
        none = stack.enter_context(served(empty, folder=empty.storage.root)).address
        yield {
            changing: every,
            showing: ["/evict?column=query", "/evictions/2", f"/quarantine/{task}"],
            runs: of_runs,
            none: of_nothing,
        }


def violations_of(page: Any) -> list[str]:
    """What axe-core finds on a page: the rule, its element, and what it says."""
    page.evaluate(axe.AXE_SCRIPT)
    found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"]]


@pytest.mark.parametrize("view", VIEWS)
def test_no_screen_has_a_violation(view: str, chromium: Any, places: dict[str, list[str]]) -> None:
    context = chromium.new_context(**VIEWS[view])
    context.add_init_script(_NOTE_VIOLATIONS)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_SECS * 1000)
    said: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on(
        "requestfailed",
        lambda request: None if request.failure == "net::ERR_ABORTED" else said.append(f"failed: {request.url[:200]}"),
    )  # the next page aborts the icon of the last
    wrong: dict[str, list[str]] = {}
    opened = 0
    for address, paths in places.items():
        page.goto(address)
        for path in paths:
            said.clear()
            answer = page.goto(address.partition("/enter")[0] + path)
            opened += 1
            problems = [
                one for one in said if not (answer.status >= 400 and "the server responded with a status of" in one)
            ]
            problems += [f"refused by the policy: {one}" for one in page.evaluate("window.refused")]
            problems += violations_of(page)
            if problems:
                wrong[path] = problems
    context.close()
    print(f"{view}: {opened} screens")
    assert wrong == {}, "\n".join(f"{path}\n  " + "\n  ".join(some[:6]) for path, some in wrong.items())
    assert opened == sum(map(len, places.values()))


def test_the_events_of_the_policy_are_noted(chromium: Any, places: dict[str, list[str]]) -> None:
    """The check above can fail: a style and a script that pages refuse are events."""
    context = chromium.new_context()
    context.add_init_script(_NOTE_VIOLATIONS)
    page = context.new_page()
    page.goto(next(iter(places)))
    page.evaluate(
        'document.body.insertAdjacentHTML(\'beforeend\', \'<p style="color: red" onclick="x()">a</p><img src="http://evil.example/x.png">\')'
    )
    page.wait_for_function("window.refused.length >= 3")
    assert {one.split()[0] for one in page.evaluate("window.refused")} == {
        "style-src-attr",
        "script-src-attr",
        "img-src",
    }
    context.close()
