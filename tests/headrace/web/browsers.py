"""A real browser: how pages look in it, and what each of them must fulfil."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import PATIENCE_SECS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

#: Marks of a module whose tests open pages.
NEEDS_CHROMIUM = [
    pytest.mark.medium,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
]

#: Settings of a browser by name.
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1200, "height": 800}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1200, "height": 800}},
    "narrow": {"color_scheme": "light", "viewport": {"width": 320, "height": 640}},
    "without scripts": {
        "color_scheme": "light",
        "viewport": {"width": 1200, "height": 800},
        "java_script_enabled": False,
    },
}


def entered(chromium: Any, address: str, **settings: Any) -> Any:
    """A page of a new browser that has presented the token of the address."""
    page = chromium.new_context(**settings).new_page()
    page.set_default_timeout(PATIENCE_SECS * 1000)
    page.goto(address)
    return page


def check_places(chromium: Any, address: str, places: Sequence[str], settings: dict[str, Any], folder: Path) -> None:
    """Open and photograph each place: one heading, no wider than the window, all pictures drawn, all fields labelled, nothing refused."""
    page = entered(chromium, address, **settings)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    base = address.partition("/enter")[0]
    for k, place in enumerate(places):
        answer = page.goto(base + place)
        assert answer.status == 200, place
        picture = folder / f"{k}.png"
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
    page.context.close()


def tab_to(page: Any, name: str) -> None:
    """Press Tab until the part with this name, or whose text begins so, has the focus."""
    last = ""
    for _ in range(60):
        page.keyboard.press("Tab")
        last = str(
            page.evaluate("(document.activeElement.getAttribute('name') || document.activeElement.textContent).trim()")
        )
        if last.startswith(name):
            return
    raise AssertionError(f"{name} cannot be reached by Tab; the last is {last}")
