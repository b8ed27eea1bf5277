"""The pages in a real browser: each opened in light, dark, narrow and without scripts, and an eviction by keyboard alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.headrace.web.browsers import LOOKS, NEEDS_CHROMIUM, check_places, entered, tab_to
from tests.headrace.web.pages import Browser, served
from tests.warehouse.scenes import computed_warehouse, model
from warehouse import Warehouse, read_solution

pytestmark = NEEDS_CHROMIUM


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    folder = tmp_path_factory.mktemp("browser")
    with computed_warehouse(folder, model(inputs=5)) as opened:
        yield opened


@pytest.fixture(scope="module")
def address(warehouse: Warehouse) -> Iterator[str]:
    with served(warehouse, allow_changes=True) as browser:
        yield browser.address


@pytest.mark.parametrize("look", LOOKS)
def test_each_page_is_drawn(look: str, address: str, chromium: Any, warehouse: Warehouse, tmp_path: Path) -> None:
    fingerprint = read_solution(warehouse, "ctr").inputs[0].fingerprint
    places = ("/", "/graphs", "/graphs?pattern=unigrams(_)&sort=size", f"/graphs/{fingerprint}", "/models", "/models/ctr", "/tables", "/tables/log",
              "/tables/log/columns/query", "/evict", "/evict?column=query", "/evictions", "/quarantine")  # fmt: skip
    check_places(chromium, address, places, LOOKS[look], tmp_path)


def test_an_eviction_by_keyboard_and_its_undoing(address: str, chromium: Any, warehouse: Warehouse) -> None:
    page = entered(chromium, address)
    tab_to(page, "Graphs")
    page.keyboard.press("Enter")
    page.wait_for_url("**/graphs")
    tab_to(page, "column")
    page.keyboard.type("title")
    page.keyboard.press("Enter")
    page.wait_for_url("**column=title**")
    tab_to(page, "Evict what matches")
    page.keyboard.press("Enter")
    page.wait_for_url("**/evict?column=title**")
    before = read_solution(warehouse, "ctr").count("load")
    tab_to(page, "why")
    page.keyboard.type("wrong titles")
    tab_to(page, "memos")
    page.keyboard.type("9")
    page.keyboard.press("Enter")
    page.wait_for_url("**/evictions/*")
    assert read_solution(warehouse, "ctr").count("load") == before - 9
    assert "wrong titles" in page.content()
    tab_to(page, "Restore")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Nothing is left to restore")
    assert read_solution(warehouse, "ctr").count("load") == before
    page.context.close()


def test_a_page_of_another_site_can_neither_show_nor_send(
    address: str, chromium: Any, warehouse: Warehouse, tmp_path: Path
) -> None:
    """Clickjacking and a forged form, by a real browser that has the session."""
    base = address.partition("/enter")[0]
    evil = tmp_path / "evil.html"
    evil.write_text(
        f'<iframe src="{base}/evict?column=query"></iframe><form method="post" action="{base}/evict"><input name="memos" value="9"></form>'
    )
    page = entered(chromium, address)
    page.goto(f"file://{evil}")
    frame = page.frames[1]
    assert "Evict" not in frame.content()
    page.evaluate("document.forms[0].submit()")
    page.wait_for_url("**/evict")
    assert "a form must come from a page of this server" in page.content()
    assert Browser(address).enter().get("/evictions").status == 200
    page.context.close()
