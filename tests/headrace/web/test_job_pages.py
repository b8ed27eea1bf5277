"""Pages of jobs and holds over HTTP: what each shows, that its JSON is the command's, and that a hold is released once, by a form."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.jobs import job_place
from headrace.views.jobs import TAIL_BYTES, TAIL_LINES, log_tail
from headrace.web.guard import HEADERS
from tests.headrace.web.pages import Browser, served
from tests.headrace.web.run_homes import add_fleet
from tests.trainer.job.control.serving import serving
from tests.trainer.job.launch.held_jobs import REASON, hold, make_run
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.fleet_store import FleetStore, Submission
from trainer.job.launch.holds import find_hold, release_hold
from trainer.run.progress.lock import run_lock
from trainer.scheduling.holds import describe_error
from warehouse import Warehouse, WarehouseConfig

pytestmark = pytest.mark.medium


@pytest.fixture(scope="module")
def home(run_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a fleet of four jobs, of which one has a trained run, one is held, and one has an output that tries to be more than text."""
    copy = tmp_path_factory.mktemp("jobs") / "home"
    shutil.copytree(run_home, copy)
    add_fleet(copy)
    (copy / "bucket-jobs").mkdir()
    hold(copy / "bucket-jobs" / "bucket-run-0123456789")
    damaged = hold(copy / "runs" / "torn-v1")
    damaged.log.write_bytes(b"no log of ours\n")
    return copy


@pytest.fixture(scope="module")
def pages(home: Path) -> Iterator[Browser]:
    with (
        Warehouse.open(WarehouseConfig(str(home))) as warehouse,
        served(warehouse, folder=str(home), allow_changes=True, find_job_place=job_place) as found,
    ):
        yield found


def test_each_page_is_whole_and_has_its_headers(browser: Browser) -> None:
    for place in ("/jobs", "/jobs/1", "/jobs/2", "/jobs/3", "/jobs/4", "/holds", "/holds/runs/held-v1", "/holds/bucket-jobs/bucket-run-0123456789"):  # fmt: skip
        answer = browser.get(place)
        assert (answer.status, answer.text.count("<h1>"), answer.text.rstrip()[-7:]) == (200, 1, "</html>"), place
        assert answer.headers.items() >= HEADERS.items(), place
        assert "style=" not in answer.text
        assert "<script" not in answer.text


def test_json_has_the_fields_of_the_commands(browser: Browser, call: Callable[..., Any], home: Path) -> None:
    pairs = {
        "/jobs": ("jobs", "ls"),
        "/jobs/1": ("jobs", "show", 1),
        "/jobs/4": ("jobs", "show", "waits"),
        "/holds": ("holds", "ls"),
        "/holds/runs/held-v1": ("holds", "ls", home / "runs" / "held-v1"),
    }
    for address, words in pairs.items():
        assert json.loads(browser.get(f"{address}?format=json").text) == call(*words), address


def test_a_job_has_its_states_speed_and_run(browser: Browser) -> None:
    trained, held = browser.get("/jobs/1").text, browser.get("/jobs/2").text
    assert '<a href="/runs/ctr-v1">Its run</a>' in trained
    assert "metric=rows_per_sec" in trained
    assert "Refresh every" not in trained, "it has ended"
    for said in ("HELD", "plan failed", REASON, 'src="/jobs/2/states.svg"', 'href="/holds/runs/held-v1"'):
        assert said in held
    drawing = browser.get("/jobs/2/states.svg")
    assert drawing.headers["content-type"] == "image/svg+xml"
    assert "sandbox" in drawing.headers["content-security-policy"]
    texts = [one.text for one in ElementTree.fromstring(drawing.text).iter("{http://www.w3.org/2000/svg}text")]
    assert {"STARTING", "HELD"} <= set(texts)
    assert browser.get("/jobs/4/states.svg").status == 404
    assert "Refresh every 5 s" in browser.get("/jobs/4").text


def test_an_output_is_text_whatever_it_holds(browser: Browser) -> None:
    text = browser.get("/jobs/3").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e\\x1b[31m" in text
    assert "\ufffd\ufffd broken \ufffd(" in text
    assert "y" * 10_000 in text
    assert "No output yet" in browser.get("/jobs/4").text
    assert "\\u202e\\x1b[31m" in browser.get("/jobs").text, "the reason of a hold, too"


def test_the_end_of_an_output_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "log"
    assert (log_tail(str(file)).lines, log_tail(str(file)).is_cut) == ((), False)
    file.write_bytes(b"")
    assert log_tail(str(file)).lines == ()
    file.write_text("".join(f"line {k}\n" for k in range(1_000)))
    found = log_tail(str(file))
    assert (len(found.lines), found.lines[-1], found.is_cut) == (TAIL_LINES, "line 999", True)
    file.write_bytes(b"x" * (3 * TAIL_BYTES))
    found = log_tail(str(file))
    assert (len(found.lines), len(found.lines[0]), found.is_cut) == (1, TAIL_BYTES, True)
    file.write_bytes(b"a\nb\n" + "ü".encode() * TAIL_BYTES + b"\nc")
    assert log_tail(str(file)).lines == ("c",), "a line without its beginning is left out"
    file.write_text("one\n\ntwo")
    assert log_tail(str(file)).lines == ("one", "", "two")


def test_a_damaged_log_hides_neither_its_job_nor_others(browser: Browser, home: Path) -> None:
    store = FleetStore(home / "fleet")
    run_dir = str(home / "runs" / "torn-v1")
    number = store.submit(
        Submission("torn", 1, 0, ("ctr", "--hosts", "1", "--run-dir", run_dir), str(home), str(home), run_dir)
    ).job.number
    try:
        answer = browser.get(f"/jobs/{number}")
        assert (answer.status, "a log must have the bytes that were written" in answer.text) == (200, True)
        assert browser.get(f"/jobs/{number}/states.svg").status == 500
        listed = browser.get("/holds").text
        assert "torn-v1" in listed
        assert 'href="/holds/runs/held-v1"' in listed
    finally:
        (home / "fleet" / "jobs" / f"{number:06d}.json").unlink()


@pytest.mark.parametrize(
    "part", ["0", "9", "-1", "1.0", "x", "%2e%2e", "..", "9" * 5_000, "1%2f..", "%D9%A3", "trained"]
)
def test_another_number_is_no_job(browser: Browser, part: str) -> None:
    for address in (f"/jobs/{part}", f"/jobs/{part}/states.svg"):
        assert browser.get(address).status == 404, address


@pytest.mark.parametrize(
    "part",
    [
        "runs/..",
        "../runs",
        "fleet/jobs",
        "runs/none",
        "bucket-jobs/held-v1",
        "runs/%2e%2e",
        "%2e%2e/home",
        "runs/held-v1%2fjob",
    ],
)
def test_an_address_outside_the_folders_of_jobs_is_refused(browser: Browser, part: str, home: Path) -> None:
    assert browser.get(f"/holds/{part}").status == 404
    token = browser.get("/holds/runs/held-v1").form_token
    assert browser.post(f"/holds/{part}/release", {"form_token": token, "corrected": "on"}).status == 404
    assert find_hold(JobFiles(home / "runs" / "held-v1")) is not None


@pytest.fixture
def held(home: Path) -> Iterator[Path]:
    """A held run of the home."""
    folder = home / "runs" / "wrong-v1"
    hold(folder)
    yield folder
    shutil.rmtree(folder)


def form_of(browser: Browser, address: str) -> dict[str, str]:
    """The fields of the form of a hold, as a browser sends them."""
    page = browser.get(address)
    key = page.text.partition('name="hold" value="')[2].partition('"')[0]
    assert key
    return {"form_token": page.form_token, "hold": key, "corrected": "on"}


def test_a_hold_is_released_once(browser: Browser, held: Path) -> None:
    address = "/holds/runs/wrong-v1"
    assert f'href="{address}"' in browser.get("/runs/wrong-v1").text, "also of a run without a commit"
    form = form_of(browser, address)
    unconfirmed = browser.post(f"{address}/release", {**form, "corrected": ""})
    assert (unconfirmed.status, "the cause must be corrected" in unconfirmed.text) == (400, True)
    done = browser.post(f"{address}/release", form)
    assert (done.status, done.headers["location"]) == (303, address)
    assert find_hold(JobFiles(held)) is None
    assert "It is not held" in browser.get(address).text
    again = browser.post(f"{address}/release", form)
    assert (again.status, again.text.count('role="alert"')) == (400, 1)
    assert "a job must be held to be released" in again.text


def test_a_hold_by_another_error_than_the_page_showed_stays(browser: Browser, held: Path) -> None:
    address = "/holds/runs/wrong-v1"
    form = form_of(browser, address)
    release_hold(JobFiles(held))
    with serving(held) as found:
        found.client.plan_failed(describe_error(ValueError("another error")))
    changed = browser.post(f"{address}/release", form)
    assert (changed.status, "the hold must be the one that was looked at" in changed.text) == (409, True)
    assert find_hold(JobFiles(held)) is not None
    assert browser.post(f"{address}/release", form_of(browser, address)).status == 303


def test_a_hold_of_a_run_that_a_process_has_stays(browser: Browser, held: Path) -> None:
    form = form_of(browser, "/holds/runs/wrong-v1")
    with run_lock(held):
        busy = browser.post("/holds/runs/wrong-v1/release", form)
    assert (busy.status, "while no process has the run" in busy.text) == (409, True)


def test_a_running_controller_releases_it(browser: Browser, home: Path) -> None:
    folder = home / "runs" / "running-v1"
    make_run(folder)
    with serving(folder) as found:
        found.client.plan_failed(describe_error(ValueError("the plan is wrong")))
        assert browser.post("/holds/runs/running-v1/release", form_of(browser, "/holds/runs/running-v1")).status == 303
        assert found.client.status().hold is None
    shutil.rmtree(folder)


def test_a_forged_form_releases_nothing(browser: Browser, held: Path) -> None:
    address = "/holds/runs/wrong-v1/release"
    form = form_of(browser, "/holds/runs/wrong-v1")
    assert browser.post(address, {**form, "form_token": "x"}).status == 403
    assert browser.post(address, form, Origin="http://evil.example").status == 403
    assert browser.get(f"{address}?{'&'.join(f'{name}={value}' for name, value in form.items())}").status in (404, 405)
    assert find_hold(JobFiles(held)) is not None


def test_pages_that_only_show_release_nothing(home: Path, held: Path) -> None:
    with Warehouse.open(WarehouseConfig(str(home))) as warehouse, served(warehouse, folder=str(home)) as found:
        browser = found.enter()
        page = browser.get("/holds/runs/wrong-v1").text
        assert "<form" not in page
        assert "headrace holds release" in page
        assert browser.post("/holds/runs/wrong-v1/release", {"form_token": ""}).status == 403
    assert find_hold(JobFiles(held)) is not None


def test_an_empty_home_has_the_next_command(tmp_path: Path) -> None:
    place = str(tmp_path / "home")
    with Warehouse.open(WarehouseConfig(place)) as warehouse, served(warehouse, folder=place) as found:
        browser = found.enter()
        assert "headrace jobs submit" in browser.get("/jobs").text
        assert "No job of this home is held" in browser.get("/holds").text


def test_a_home_elsewhere_has_no_jobs(tmp_path: Path) -> None:
    with Warehouse.open(WarehouseConfig(str(tmp_path / "home"))) as warehouse, served(warehouse) as found:
        browser = found.enter()
        for place in ("/jobs", "/jobs/1", "/holds", "/holds/runs/ctr-v1"):
            answer = browser.get(place)
            assert (answer.status, "a home must be a local folder" in answer.text) == (404, True)
