"""Joined columns on the page of their table, and on those of the columns that they are computed from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from tests.headrace.web.browsers import LOOKS, NEEDS_CHROMIUM, check_places
from tests.headrace.web.pages import Browser, served
from tests.warehouse.joins.scenes import write_tables
from tests.warehouse.joins.test_refresh import CLICKS, model, refresh
from warehouse import Warehouse, WarehouseConfig, register_table, submit_model

MEAN = CLICKS.mean(hr.float64("paid"), window="1h")


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    folder = tmp_path_factory.mktemp("joined")
    folders = write_tables(folder)
    with Warehouse.open(WarehouseConfig(str(folder / "home"), read_threads=1)) as opened:
        register_table(opened, "log", str(folders.log), time_column="at")
        register_table(opened, "clicks", str(folders.clicks), time_column="time")
        submit_model(opened, model(MEAN * 2.0))
        yield opened


@pytest.fixture(scope="module")
def pages(warehouse: Warehouse) -> Iterator[Browser]:
    with served(warehouse) as browser:
        yield browser


def test_the_page_of_a_table_shows_them_before_and_after_they_are_computed(
    browser: Browser, warehouse: Warehouse
) -> None:
    text = browser.get("/tables/log").text
    assert "table(clicks).by(id, equals=user).mean(paid, window=1h)" in text
    assert "0 of 3" in text
    refresh(warehouse)
    assert "<td>all</td>" in browser.get("/tables/log").text
    assert MEAN.node.name.replace("#", "%23").replace("@", "%40") in browser.get("/tables/log").text, (
        "its page is linked"
    )
    assert f"joined column {MEAN.node.name} of table log" in browser.get("/tables/clicks/columns/paid").text
    assert "Joined columns" not in browser.get("/tables/clicks").text


@pytest.mark.parametrize("look", [pytest.param("narrow", marks=NEEDS_CHROMIUM)])
def test_they_are_drawn_in_a_browser(look: str, pages: Browser, chromium: Any, tmp_path: Path) -> None:
    check_places(chromium, pages.address, ("/tables/log", "/tables/clicks/columns/paid"), LOOKS[look], tmp_path)
