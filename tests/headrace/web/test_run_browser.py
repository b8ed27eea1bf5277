"""Pages of runs, jobs, holds and plans in a real browser, and the release of a hold by keyboard alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.jobs import job_place
from tests.headrace.web.browsers import LOOKS, NEEDS_CHROMIUM, check_places, entered, tab_to
from tests.headrace.web.pages import served
from tests.headrace.web.run_homes import add_fleet, add_planned_run
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.holds import find_hold
from warehouse import Warehouse, WarehouseConfig

pytestmark = NEEDS_CHROMIUM

CURVES = "/runs/curves?run=ctr-v1&run=ctr-v2&smoothing=0.5"


@pytest.fixture(scope="module")
def home(run_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("run_browser") / "home"
    shutil.copytree(run_home, copy)
    add_planned_run(copy)
    add_fleet(copy)
    return copy


@pytest.fixture(scope="module")
def address(home: Path) -> Iterator[str]:
    with (
        Warehouse.open(WarehouseConfig(str(home))) as warehouse,
        served(warehouse, folder=str(home), allow_changes=True, find_job_place=job_place) as browser,
    ):
        yield browser.address


@pytest.mark.parametrize("look", ["dark", "narrow"])
def test_each_page_is_drawn(look: str, address: str, chromium: Any, tmp_path: Path) -> None:
    places = ("/runs", "/runs/ctr-v1", "/runs/empty-v1", CURVES, "/runs/diff?first=ctr-v1&second=ctr-v2", "/runs/ctr-v1/checkpoints",
              "/runs/ctr-v1/checkpoints/3", "/runs/planned-v1/plan", "/jobs", "/jobs/1", "/jobs/2", "/jobs/3", "/holds", "/holds/runs/held-v1")  # fmt: skip
    check_places(chromium, address, places, LOOKS[look], tmp_path)


def test_curves_of_runs_are_chosen_and_drawn_by_keyboard(address: str, chromium: Any) -> None:
    page = entered(chromium, address)
    tab_to(page, "Runs")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs")
    for _ in range(2):
        tab_to(page, "run")
        page.keyboard.press("Space")
    tab_to(page, "Draw the curves")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/curves?run=*&run=*")
    tab_to(page, "metric")
    page.keyboard.type("auc")
    tab_to(page, "Draw")
    page.keyboard.press("Enter")
    page.wait_for_url("**metric=auc**")
    assert page.locator("tbody tr").count() == 2
    assert page.evaluate("document.images[0].complete && document.images[0].naturalWidth > 0")
    page.context.close()


def test_a_drawing_follows_the_light_or_dark_setting(address: str, chromium: Any) -> None:
    """The style sheet in a picture sees it too: white ground would hide the page's own in the dark."""
    pictures = []
    for look in ("light", "dark", "dark"):
        page = entered(chromium, address, **LOOKS[look])
        page.goto(address.partition("/enter")[0] + CURVES)
        pictures.append(page.locator("figure img").screenshot())
        page.context.close()
    assert pictures[0] != pictures[1] == pictures[2]


def test_a_page_loads_itself_again_until_it_is_stopped(address: str, chromium: Any) -> None:
    page = entered(chromium, address)
    base = address.partition("/enter")[0]
    page.goto(f"{base}/jobs/4")
    page.get_by_text("Refresh every 5 s").click()
    page.wait_for_url("**/jobs/4?refresh=5")
    with page.expect_response(lambda answer: answer.url.endswith("/jobs/4?refresh=2")):
        page.goto(f"{base}/jobs/4?refresh=2")
    with page.expect_response(lambda answer: answer.url.endswith("/jobs/4?refresh=2")):
        pass  # without a click
    page.get_by_text("Stop").click()
    page.wait_for_url("**/jobs/4")
    page.context.close()


def test_a_hold_is_released_by_keyboard(address: str, chromium: Any, home: Path) -> None:
    page = entered(chromium, address)
    page.goto(address.partition("/enter")[0] + "/jobs/2")
    tab_to(page, "Evidence and release")
    page.keyboard.press("Enter")
    page.wait_for_url("**/holds/runs/held-v1")
    tab_to(page, "Release the hold")
    page.keyboard.press("Enter")
    assert find_hold(JobFiles(home / "runs" / "held-v1")) is not None, "the box is not checked"
    assert page.evaluate("document.activeElement.name") == "corrected", "the browser asks for it"
    page.keyboard.press("Space")
    tab_to(page, "Release the hold")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=It is not held")
    assert find_hold(JobFiles(home / "runs" / "held-v1")) is None
    page.context.close()
