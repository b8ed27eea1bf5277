"""Pages of runs over HTTP: what each shows, that its JSON is the command's, and that damaged and hostile runs hide no others."""

from __future__ import annotations

import json
import os
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from headrace.screens.curve_drawing import MOST_CURVES
from headrace.web.guard import HEADERS
from tests.headrace.web.pages import Browser, served
from trainer.model.scores import Scores
from trainer.run.progress.evaluation_log import EvaluatedCommit, EvaluationLog
from trainer.run.progress.lock import run_lock
from warehouse import Warehouse, WarehouseConfig

pytestmark = pytest.mark.medium

#: Names of folders that try to be markup, to turn the text around, to be two parts of an address, and to be no text.
HOSTILE = (
    "<script>alert(1)</script>".replace("/", "-"),
    "\u202erun\u200b",
    "a%2Fb",
    "x" * 200,
    "a?b#c&d",
    os.fsdecode(b"run-\xff"),
)


@pytest.fixture(scope="module")
def home(run_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs, a damaged one, and hostile ones."""
    copy = tmp_path_factory.mktemp("pages") / "home"
    shutil.copytree(run_home, copy)
    runs = copy / "runs"
    shutil.copytree(runs / "ctr-v1", runs / "damaged-v1")
    for manifest in (runs / "damaged-v1").rglob("manifest.json"):
        manifest.write_bytes(b"{")
    for name in (*HOSTILE, "curves"):
        (runs / name).mkdir()
    shutil.copytree(runs / "ctr-v1", runs / "<b>-v9")
    (runs / "a-file").write_text("no run")
    (copy / "secret").mkdir()
    return copy


@pytest.fixture(scope="module")
def pages(home: Path) -> Iterator[Browser]:
    with Warehouse.open(WarehouseConfig(str(home))) as warehouse, served(warehouse, folder=str(home)) as found:
        yield found


def test_each_page_is_whole_and_has_its_headers(browser: Browser) -> None:
    places = ("/runs", "/runs/ctr-v1", "/runs/empty-v1", "/runs/damaged-v1", "/runs/ctr-v1/checkpoints", "/runs/ctr-v1/checkpoints/3",
              "/runs/diff?first=ctr-v1&second=ctr-v2", "/runs/curves?run=ctr-v1&run=ctr-v2")  # fmt: skip
    for place in places:
        answer = browser.get(place)
        assert (answer.status, answer.text.count("<h1>"), answer.text.rstrip()[-7:]) == (200, 1, "</html>"), place
        assert answer.headers.items() >= HEADERS.items(), place
        assert "style=" not in answer.text
        assert "<script" not in answer.text


def test_json_has_the_fields_of_the_commands(browser: Browser, call: Callable[..., Any], home: Path) -> None:
    one, other = home / "runs" / "ctr-v1", home / "runs" / "ctr-v2"
    pairs = {
        "/runs?": ("runs", "ls"),
        "/runs/ctr-v1?": ("runs", "show", one),
        "/runs/diff?first=ctr-v1&second=ctr-v2&": ("runs", "diff", one, other),
        "/runs/ctr-v1/checkpoints?": ("ckpt", "ls", one),
        "/runs/ctr-v1/checkpoints/2?": ("ckpt", "show", one, 2),
        "/runs/curves?run=ctr-v1&run=ctr-v2&metric=auc&x=events&smoothing=0.5&rows=commits&":
            ("runs", "plot", one, other, "--metric", "auc", "--x", "events", "--smoothing", 0.5, "--commits"),
    }  # fmt: skip
    for address, words in pairs.items():
        assert json.loads(browser.get(f"{address}format=json").text) == call(*words), address


def test_a_run_that_cannot_be_read_has_its_reason_and_hides_no_other(browser: Browser) -> None:
    text = browser.get("/runs").text
    assert "damaged-v1: a run must have an intact checkpoint" in text
    assert "empty-v1: no commit yet" in text
    for name in ("ctr-v1", "ctr-v2"):
        assert f'<a href="/runs/{name}">' in text
    assert "a run must have an intact checkpoint" in browser.get("/runs/damaged-v1").text
    assert browser.get("/runs/damaged-v1?format=json").status == 500
    assert browser.get("/runs/empty-v1?format=json").status == 404
    both = browser.get("/runs/curves?run=ctr-v1&run=damaged-v1")
    assert both.status == 200
    assert "damaged-v1</a>: a run must have an intact checkpoint" in both.text
    assert browser.get("/runs/curves?run=empty-v1").status == 404


def test_hostile_names_are_escaped_and_reach_their_pages(browser: Browser) -> None:
    text = browser.get("/runs").text
    assert "<script" not in text
    assert "\u202e" not in text
    assert "\\u202erun\\u200b" in text
    assert "run-\\udcff" in text
    assert 'href="/runs/curves"' not in text, "that is the page of curves"
    for name in HOSTILE[:-1]:
        answer = browser.get(f"/runs/{quote(name, safe='')}")
        if "%2F" not in quote(name, safe=""):
            assert answer.status == 200, name
            assert "no commit" in answer.text or "checkpoint" in answer.text
    drawn = browser.get(f"/runs/curves?run=ctr-v1&run={quote('<b>-v9')}")
    assert "&lt;b&gt;-v9" in drawn.text
    svg = browser.get(f"/runs/curves/drawing.svg?run=ctr-v1&run={quote('<b>-v9')}")
    assert not list(ElementTree.fromstring(svg.text).iter("b"))


@pytest.mark.parametrize(
    "part", ["..", "%2e%2e", "..%2fsecret", "%2e%2e%2fsecret", ".", "a-file", "none", "%00", "%ff", "..%5c..", "x" * 9_999, "ctr-v1%2f..", "ctr-v1%0a"]
)  # fmt: skip
def test_an_address_outside_the_runs_is_refused(browser: Browser, part: str) -> None:
    for address in (f"/runs/{part}", f"/runs/{part}/checkpoints", f"/runs/curves?run={part}", f"/runs/diff?first=ctr-v1&second={part}"):  # fmt: skip
        answer = browser.get(address)
        assert answer.status == (400 if "%00" in part else 404), address
        assert answer.headers.items() >= HEADERS.items()


@pytest.mark.parametrize(
    ("query", "rule"),
    [
        ("run=ctr-v1&metric=speed", "a metric must be a figure"),
        ("run=ctr-v1&metric=" + "x" * 10_000, "a metric must be a figure"),
        ("run=ctr-v1&x=miles", "an axis must be a known one"),
        ("run=ctr-v1&smoothing=1", "smoothing must be a number"),
        ("run=ctr-v1&smoothing=nan", "smoothing must be a number"),
        ("run=ctr-v1&smoothing=abc", "smoothing must be a number"),
        ("run=ctr-v1&rows=all", "rows must be windows or commits"),
        ("", "curves must be those of a run"),
    ],
)
def test_what_cannot_be_drawn_is_one_error(browser: Browser, query: str, rule: str) -> None:
    for address in (f"/runs/curves?{query}", f"/runs/curves/drawing.svg?{query}"):
        answer = browser.get(address)
        assert (answer.status, answer.text.count('role="alert"')) == (400, 1), address
        assert rule in answer.text


def test_a_drawing_is_a_picture_that_runs_nothing(browser: Browser) -> None:
    answer = browser.get("/runs/curves/drawing.svg?run=ctr-v1&run=ctr-v2&smoothing=0.5")
    assert answer.headers["content-type"] == "image/svg+xml"
    assert "sandbox" in answer.headers["content-security-policy"]
    root = ElementTree.fromstring(answer.text)
    dashes = [one.get("stroke-dasharray") for one in root.findall(".//{*}g/{*}path")]
    assert len(set(dashes[-2:])) == 2, "lines differ by more than their colours"
    page = browser.get("/runs/curves?run=ctr-v1&run=ctr-v2&smoothing=0.5").text
    assert 'src="/runs/curves/drawing.svg?run=ctr-v1&amp;run=ctr-v2&amp;smoothing=0.5"' in page


def test_more_curves_than_can_be_told_apart_are_refused(home: Path) -> None:
    names = [f"many-v{k}" for k in range(MOST_CURVES + 1)]
    for name in names:
        (home / "runs" / name).mkdir()
    try:
        with Warehouse.open(WarehouseConfig(str(home))) as warehouse, served(warehouse, folder=str(home)) as found:
            answer = found.enter().get("/runs/curves?" + "&".join(f"run={one}" for one in names))
            assert (answer.status, "their colours and dashes differ" in answer.text) == (400, True)
    finally:
        for name in names:
            (home / "runs" / name).rmdir()


@pytest.mark.parametrize("query", ["", "first=ctr-v1", "run=ctr-v1&run=ctr-v2&run=empty-v1"])
def test_differences_are_those_of_two(browser: Browser, query: str) -> None:
    answer = browser.get(f"/runs/diff?{query}")
    assert (answer.status, "differences must be those of two runs" in answer.text) == (400, True)
    assert browser.get("/runs/diff?run=ctr-v1&run=ctr-v2").status == 200


def test_figures_of_evaluated_commits_are_shown(browser: Browser, home: Path) -> None:
    scores = Scores(events=90, positives=30, auc=0.7531, log_loss=0.6, normalized_entropy=0.9, calibration=1.0)
    EvaluationLog().with_commit(EvaluatedCommit("epoch-000003", 3, 60, "2026-01-02", "", 1, scores, 0.5)).write(
        home / "runs" / "ctr-v1"
    )
    try:
        text = browser.get("/runs/ctr-v1").text
        assert "Evaluated commits" in text
        assert "0.7531" in text
        (home / "runs" / "ctr-v1" / "evaluations.json").write_text("{")
        damaged = browser.get("/runs/ctr-v1")
        assert damaged.status == 200, "the rest of the page is shown"
        assert "evaluations.json" in damaged.text
    finally:
        (home / "runs" / "ctr-v1" / "evaluations.json").unlink()


def test_a_page_of_what_is_trained_can_load_itself_again(browser: Browser, home: Path) -> None:
    assert "Refresh every" not in browser.get("/runs/ctr-v1").text
    with run_lock(home / "runs" / "ctr-v1"):
        for place in ("/runs?", "/runs/ctr-v1?", "/runs/curves?run=ctr-v1&"):
            plain = browser.get(place)
            assert "refresh" not in plain.headers
            assert f'href="{place.replace("&", "&amp;")}refresh=5"' in plain.text
            again = browser.get(f"{place}refresh=7")
            assert again.headers["refresh"] == "7"
            assert f'Loaded again every 7 s. <a href="{place[:-1]}">Stop</a>' in again.text
    assert "refresh" not in browser.get("/runs?refresh=5&format=json").headers


@pytest.mark.parametrize("secs", ["0", "1", "3601", "-5", "5.0", "x", "", "5;url=http://evil", "٥"])
def test_other_times_between_loads_are_refused(browser: Browser, secs: str) -> None:
    answer = browser.get(f"/runs?refresh={quote(secs)}")
    assert (answer.status, answer.text.count('role="alert"')) == (400, 1)
    assert "refresh" not in answer.headers


def test_an_empty_home_has_the_next_command(tmp_path: Path) -> None:
    with (
        Warehouse.open(WarehouseConfig(str(tmp_path / "home"))) as warehouse,
        served(warehouse, folder=str(tmp_path / "home")) as found,
    ):
        answer = found.enter().get("/runs")
        assert (answer.status, "headrace train MODEL" in answer.text) == (200, True)


def test_a_home_elsewhere_has_no_runs(tmp_path: Path) -> None:
    with Warehouse.open(WarehouseConfig(str(tmp_path / "home"))) as warehouse, served(warehouse) as found:
        browser = found.enter()
        for place in ("/runs", "/runs/ctr-v1", "/runs/curves?run=ctr-v1"):
            answer = browser.get(place)
            assert (answer.status, "a home must be a local folder" in answer.text) == (404, True)
