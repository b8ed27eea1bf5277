"""The pages in a real browser: each opened in light, dark, narrow and without scripts, and an eviction by keyboard alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.headrace.web.pages import Browser, served
from tests.support.processes import PATIENCE_SECS
from tests.warehouse.scenes import FREE_READS, model, work_together, write_log
from warehouse import Warehouse, WarehouseConfig, read_solution, register_table, submit_model

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.medium,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    folder = tmp_path_factory.mktemp("browser")
    with Warehouse.open(WarehouseConfig(str(folder / "home"), rates=FREE_READS)) as opened:
        register_table(opened, "log", str(write_log(folder / "log")))
        submit_model(opened, model(inputs=5))
        while work_together(opened):
            pass
        yield opened


@pytest.fixture(scope="module")
def address(warehouse: Warehouse) -> Iterator[str]:
    with served(warehouse, allow_changes=True) as browser:
        yield browser.address


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE_SECS * 1000)
        yield browser
        browser.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"color_scheme": "light", "viewport": {"width": 1200, "height": 800}},
        {"color_scheme": "dark", "viewport": {"width": 1200, "height": 800}},
        {"color_scheme": "light", "viewport": {"width": 320, "height": 640}},
        {"color_scheme": "light", "viewport": {"width": 1200, "height": 800}, "java_script_enabled": False},
    ],
    ids=["light", "dark", "narrow", "without scripts"],
)
def test_each_page_is_drawn(
    settings: dict[str, Any], address: str, chromium: Any, warehouse: Warehouse, tmp_path: Path
) -> None:
    context = chromium.new_context(**settings)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_SECS * 1000)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    base = address.partition("/enter")[0]
    page.goto(address)
    fingerprint = read_solution(warehouse, "ctr").inputs[0].fingerprint
    places = ("/", "/graphs", "/graphs?pattern=unigrams(_)&sort=size", f"/graphs/{fingerprint}", "/models", "/models/ctr", "/tables", "/tables/log",
              "/tables/log/columns/query", "/evict", "/evict?column=query", "/evictions", "/quarantine")  # fmt: skip
    for k, place in enumerate(places):
        answer = page.goto(base + place)
        assert answer.status == 200, place
        picture = tmp_path / f"{k}.png"
        page.screenshot(path=picture)
        assert picture.stat().st_size > 3_000, f"an empty picture of {place}"
        assert page.locator("h1").count() == 1
        if settings.get("java_script_enabled", True):
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= settings["viewport"]["width"], f"{place} scrolls to {wide} pixels"
            assert page.evaluate("[...document.images].every(one => one.complete && one.naturalWidth > 0)"), place
            assert page.evaluate(
                "[...document.querySelectorAll('input:not([type=hidden]), select')].every(one => one.labels.length > 0)"
            ), place
    assert said == [], "the policy of contents refused something, or a part is missing"
    context.close()


def test_an_eviction_by_keyboard_and_its_undoing(address: str, chromium: Any, warehouse: Warehouse) -> None:
    context = chromium.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE_SECS * 1000)
    page.goto(address)

    def focused() -> str:
        return str(
            page.evaluate("(document.activeElement.getAttribute('name') || document.activeElement.textContent).trim()")
        )

    def tab_to(name: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if focused().startswith(name):
                return
        raise AssertionError(f"{name} cannot be reached by Tab; the last is {focused()}")

    tab_to("Graphs")
    page.keyboard.press("Enter")
    page.wait_for_url("**/graphs")
    tab_to("column")
    page.keyboard.type("title")
    page.keyboard.press("Enter")
    page.wait_for_url("**column=title**")
    tab_to("Evict what matches")
    page.keyboard.press("Enter")
    page.wait_for_url("**/evict?column=title**")
    before = read_solution(warehouse, "ctr").count("load")
    tab_to("why")
    page.keyboard.type("wrong titles")
    tab_to("memos")
    page.keyboard.type("9")
    page.keyboard.press("Enter")
    page.wait_for_url("**/evictions/*")
    assert read_solution(warehouse, "ctr").count("load") == before - 9
    assert "wrong titles" in page.content()
    tab_to("Restore")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Nothing is left to restore")
    assert read_solution(warehouse, "ctr").count("load") == before
    context.close()


def test_a_page_of_another_site_can_neither_show_nor_send(
    address: str, chromium: Any, warehouse: Warehouse, tmp_path: Path
) -> None:
    """Clickjacking and a forged form, by a real browser that has the session."""
    base = address.partition("/enter")[0]
    evil = tmp_path / "evil.html"
    evil.write_text(
        f'<iframe src="{base}/evict?column=query"></iframe><form method="post" action="{base}/evict"><input name="memos" value="9"></form>'
    )
    context = chromium.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE_SECS * 1000)
    page.goto(address)
    page.goto(f"file://{evil}")
    frame = page.frames[1]
    assert "Evict" not in frame.content()
    page.evaluate("document.forms[0].submit()")
    page.wait_for_url("**/evict")
    assert "a form must come from a page of this server" in page.content()
    assert Browser(address).enter().get("/evictions").status == 200
    context.close()
