"""The manual as ``make docs`` builds it, in a browser: it is searched, and asks no other machine for anything."""

from __future__ import annotations

import pytest

from tests.conftest import ROOT
from tests.headrace.web.browsers import CHROMIUM
from tests.support.processes import PATIENCE_SECS
from tests.support.served_folder import served_folder

SITE = ROOT / ".docs" / "site"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="needs the built manual: make docs"),
]


def test_the_manual_is_searched_and_asks_no_other_machine() -> None:
    from playwright.sync_api import sync_playwright

    with served_folder(SITE) as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE_SECS * 1000)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_SECS * 1000)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{address}/index.html")
        page.get_by_role("link", name="Reference").first.click()
        page.locator("h1", has_text="Commands").wait_for()
        page.get_by_role("textbox", name="Search").fill("hash_buckets")
        found = page.locator(".md-search-result__link").first
        found.wait_for()
        found.click()
        assert page.url.startswith(address)
        assert "hash_buckets" in page.inner_text("main")
        assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
        browser.close()
