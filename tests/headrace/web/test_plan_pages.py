"""Pages of plans and towers over HTTP: of runs by a plan, by servers, by towers, by rows that are spread, and of one process."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.main import run
from headrace.web.guard import HEADERS
from tests.headrace.kept_run import KEPT
from tests.headrace.web.pages import Browser, served
from tests.headrace.web.run_homes import add_planned_run
from tests.trainer.job.control.controller_process import job_settings
from tests.trainer.job.launch.held_jobs import make_run
from trainer.job.launch.job_spec import JobSpec
from trainer.planning.plan_document import plan_fingerprint, read_plan
from warehouse import Warehouse, WarehouseConfig

pytestmark = pytest.mark.medium


@pytest.fixture(scope="module")
def home(run_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs: of one process, by a plan of two cores, of a job with servers whose plan followed the data before, and by towers."""
    folder = tmp_path_factory.mktemp("plans")
    copy = folder / "home"
    shutil.copytree(run_home, copy)
    runs = copy / "runs"
    add_planned_run(copy)
    with zipfile.ZipFile(KEPT) as archive:
        for name in archive.namelist():
            if name.startswith("run/"):
                archive.extract(name, folder)
    shutil.move(folder / "run", runs / "kept-v1")
    shutil.copytree(runs / "planned-v1", runs / "towers-v1")
    files = make_run(runs / "towers-v1")
    replace(JobSpec.read(files), settings=job_settings(hosts=2), towers=(("words",), ("user",)), machine_hosts=2).write(
        files
    )
    return copy


@pytest.fixture(scope="module")
def pages(home: Path) -> Iterator[Browser]:
    with Warehouse.open(WarehouseConfig(str(home))) as warehouse, served(warehouse, folder=str(home)) as found:
        yield found


@pytest.fixture
def fields(browser: Browser) -> Callable[[str], Any]:
    """The JSON of a page."""
    return lambda place: json.loads(browser.get(f"{place}?format=json").text)


def test_each_page_is_whole_and_has_its_headers(browser: Browser) -> None:
    for place in (
        "/runs/ctr-v1/plan",
        "/runs/planned-v1/plan",
        "/runs/kept-v1/plan",
        "/runs/towers-v1/plan",
        "/runs/towers-v1/towers",
    ):
        answer = browser.get(place)
        assert (answer.status, answer.text.count("<h1>"), answer.text.rstrip()[-7:]) == (200, 1, "</html>"), place
        assert answer.headers.items() >= HEADERS.items(), place
        assert "style=" not in answer.text
        assert "<script" not in answer.text


def test_a_run_by_a_plan_has_its_placement_estimates_and_reasons(
    browser: Browser, fields: Callable[[str], Any], home: Path
) -> None:
    plan = read_plan((home.parent / "plan.json").read_bytes(), "plan.json")
    found = fields("/runs/planned-v1/plan")
    assert (found["placed_by"], found["held_by"], found["commit"], found["problem"]) == ("plan", "cores", 3, "")
    assert found["plan"]["fingerprint"] == plan_fingerprint(plan)
    report = found["plan"]["report"]
    assert 0 < report["bound_secs"] <= report["step_secs"]
    assert {one["statistics"] for one in report["tables"]} == {"a sample of this run"}
    assert [one["table"] for one in found["tables"]] == [one.name for one in plan.tables]
    assert all(sum(way["is_chosen"] for way in one["ways"]) == 1 for one in found["tables"])
    text = browser.get("/runs/planned-v1/plan").text
    for said in ("a step, predicted", "lower bound", "a step, measured", "load imbalance", "<details>", "words: "):
        assert said in text
    drawing = browser.get("/runs/planned-v1/plan/drawing.svg")
    assert "sandbox" in drawing.headers["content-security-policy"]
    titles = [one.text or "" for one in ElementTree.fromstring(drawing.text).iter("{http://www.w3.org/2000/svg}title")]
    for shard in plan.shards():
        assert any(one.startswith(f"{shard.table}: ") and one.endswith(f"on core {shard.core}") for one in titles)


def test_a_run_whose_plan_followed_the_data_has_its_history(
    fields: Callable[[str], Any], browser: Browser, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = fields("/runs/kept-v1/plan")
    assert (found["held_by"], found["placed_by"], found["plan"]["cores"]) == ("parameter servers", "none", 1)
    capsys.readouterr()
    assert run(["plan", "history", str(home / "runs" / "kept-v1"), "--home", str(home), "--json"]) == 0
    assert found["history"] == json.loads(capsys.readouterr().out)
    text = browser.get("/runs/kept-v1/plan").text
    assert "rows spread over all hosts" in text
    assert "follows the data" in text


def test_a_run_of_one_process_has_no_placement(browser: Browser) -> None:
    assert "one process has all tables" in browser.get("/runs/ctr-v1/plan").text
    assert browser.get("/runs/ctr-v1/plan/drawing.svg").status == 404
    assert browser.get("/runs/empty-v1/plan").status == 404


def test_towers_have_their_hosts_features_and_bytes(browser: Browser, fields: Callable[[str], Any]) -> None:
    found = fields("/runs/towers-v1/towers")
    assert [(one["hosts"], one["features"]) for one in found["towers"]] == [([0], ["words"]), ([1], ["user"])]
    assert all(one["table_bytes"] > 0 and one["event_bytes"] > 0 for one in found["towers"])
    assert found["machine_hosts"] == 2
    assert 'href="/runs/towers-v1/towers"' in browser.get("/runs/towers-v1").text
    assert fields("/runs/towers-v1/plan")["placed_by"] == "towers"
    assert 'towers"' not in browser.get("/runs/ctr-v1").text
    for name in ("ctr-v1", "planned-v1"):
        assert browser.get(f"/runs/{name}/towers").status == 404


def test_a_damaged_sample_leaves_estimates_that_assume(home: Path, fields: Callable[[str], Any]) -> None:
    folder = home / "runs" / "torn-v1"
    shutil.copytree(home / "runs" / "planned-v1", folder)
    (folder / "checkpoints" / "statistics.json").write_bytes(b"{")
    (folder / "plans.json").write_bytes(b"{")
    found = fields("/runs/torn-v1/plan")
    assert found["history"] is None
    assert all(one["statistics"].startswith("none: ") for one in found["plan"]["report"]["tables"])
    shutil.rmtree(folder)


@pytest.mark.parametrize("part", ["..", "%2e%2e", "..%2fsecret", "none"])
def test_an_address_outside_the_runs_is_refused(browser: Browser, part: str) -> None:
    for page in ("plan", "plan/drawing.svg", "towers"):
        assert browser.get(f"/runs/{part}/{page}").status == 404
